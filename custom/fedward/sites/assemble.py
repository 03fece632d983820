"""From checked images with splits to a site's four sets; and the limit on rejected rows."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fedward.errors import DataError
from fedward.sites.data import SPLITS, Images, Labels, Pixels, SetAside, SiteData
from fedward.sites.site_file import ManifestSite, NpzSite
from fedward.sites.split import labelled_share


def divide(  # noqa: PLR0913 - named fields of one result
    site: str,
    classes: Sequence[str],
    *,
    ids: Sequence[str],
    pixels: Pixels,
    labels: Labels,
    splits: Sequence[str],
    labelled: float,
    rng: np.random.Generator,
    aside: Sequence[SetAside] = (),
    readable: npt.NDArray[np.bool_] | None = None,
) -> SiteData:
    """Return the four sets of N images whose splits are known, hiding all but a share of the training labels.

    ``readable`` says of which of the N images there are ``pixels``; None: of all. Whose label is seen is drawn before
    the others go. A set whose images lie next to each other stays a view of ``pixels``: val and test of a memmap are
    not read.
    """
    split = np.array([SPLITS.index(name) for name in splits], np.int64)
    train = np.flatnonzero(split == 0)
    seen = np.zeros(len(split), np.bool_)
    seen[train] = labelled_share(labels[train], labelled, rng)
    there = np.arange(len(split)) if readable is None else np.flatnonzero(readable)
    split, seen, labels = split[there], seen[there], labels[there]
    hidden = np.full_like(labels, -1)

    def images(chosen: npt.NDArray[np.bool_], shown: Labels) -> Images:
        index = np.flatnonzero(chosen)
        together = len(index) and index[-1] - index[0] == len(index) - 1
        own = pixels[index[0] : index[-1] + 1] if together else pixels[index]
        return Images(tuple(ids[int(i)] for i in there[index]), own, shown[index])

    return SiteData(
        site=site,
        classes=tuple(classes),
        labelled=images((split == 0) & seen, labels),
        unlabelled=images((split == 0) & ~seen, hidden),
        val=images(split == 1, labels),
        test=images(split == 2, labels),
        set_aside=tuple(aside),
    )


def assemble(
    file: ManifestSite | NpzSite,
    classes: Sequence[str],
    *,
    ids: Sequence[str],
    pixels: Pixels,
    labels: Labels,
    splits: Sequence[str],
    readable: npt.NDArray[np.bool_],
    aside: Sequence[SetAside],
) -> SiteData:
    """Return the four sets of a site with a file, as :func:`divide`: ``labelled`` and the seed are the file's.

    Raises:
        DataError: nothing is left to use.
    """
    from fedward.seeds import numpy_generator  # here: it imports torch, which looking at a site does not need

    if not readable.any():
        found = f"none ({len(aside)} rows set aside)"
        remedy = "Check the site file."
        raise DataError(f"site {file.site}", expected="at least one usable image", found=found, remedy=remedy)
    return divide(
        f"{file.site}",
        classes,
        ids=ids,
        pixels=pixels,
        labels=labels,
        splits=splits,
        labelled=file.labelled,
        rng=numpy_generator(file.split.seed, "labelled"),
        aside=aside,
        readable=readable,
    )


def check_set_aside(where: str, aside: Sequence[SetAside], total: int, limit: float) -> None:
    """Refuse a site with too many rejected rows.

    Raises:
        DataError: more than ``limit`` of the ``total`` rows, not counting those that are not ``counted``; lists the
            first five.
    """
    counted = [problem for problem in aside if problem.counted]
    if total and len(counted) > limit * total:
        first = "; ".join(f"row {problem.row} ({problem.sample_id}): {problem.reason}" for problem in counted[:5])
        expected = f"at most {limit:.0%} of {total} rows unusable"
        remedy = "Fix the rows, or raise max_set_aside in the site file."
        raise DataError(where, expected=expected, found=f"{len(counted)}, the first: {first}", remedy=remedy)

"""From rows whose splits are known to a site's four sets."""

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from fedward.errors import DataError
from fedward.sites.data import SPLITS, Images, Labels, Row, SiteData
from fedward.sites.decoding import Pixels
from fedward.sites.labels import known, strata
from fedward.sites.split import labelled_share


def divide(
    site: str,
    classes: Sequence[str],
    rows: Sequence[Row],
    pixels: Pixels,
    labelled: float | Collection[str],
    rng: np.random.Generator,
    by_patient: bool = False,
) -> SiteData:
    """Return the four sets of a site, hiding all but some of the training labels.

    Whose label is seen is drawn before the rows without images go, so fixing one moves no other
    image. A set whose images lie next to each other stays a view of ``pixels``: val and test of a
    memmap are not read.

    Args:
        site: for messages.
        classes: of the job.
        rows: N rows, in the order of their images. A row of several images has one label, seen for
            all or for none.
        pixels: uint8 (M, H, W, C) of the rows' M images.
        labelled: share of training labels that are seen, as for
            :func:`~fedward.sites.split.labelled_share`, or the ids of the images whose labels are.
        rng: draws whose label is seen.
        by_patient: whether the images of a group are evaluated as one.

    Raises:
        DataError: no row has an image, or a named image is no training image with a label; or
            a group that is to be evaluated as one has several labels.
    """
    ids = [f"{row.sample_id}{part}" for row in rows for part in row.parts]
    if not ids:
        found = f"none of {len(rows)} rows"
        remedy = "Check the site file."
        raise DataError(
            f"site {site}", expected="at least one usable image", found=found, remedy=remedy
        )
    if len(set(ids)) < len(ids):
        found = "some that end as if they were frames of others"
        remedy = "Rename ids that end in # and a number."
        raise DataError(
            f"site {site}", expected="ids of their own for all images", found=found, remedy=remedy
        )
    split = np.array([SPLITS.index(row.split) for row in rows])
    labels = np.array([row.label for row in rows], np.int64)
    train = np.flatnonzero(split == 0)
    seen = np.zeros(len(split), np.bool_)
    if isinstance(labelled, float):
        seen[train] = labelled_share(strata(labels[train]), labelled, rng)
    else:
        seen[train] = _named(
            site, [rows[int(i)].sample_id for i in train], known(labels[train]), set(labelled)
        )
    row_of = np.repeat(np.arange(len(rows)), [len(row.parts) for row in rows])
    split = split[row_of]
    seen = seen[row_of]
    labels = labels[row_of]

    def images(chosen: npt.NDArray[np.bool_], shown: Labels) -> Images:
        index = np.flatnonzero(chosen)
        together = len(index) and index[-1] - index[0] == len(index) - 1
        own = pixels[index[0] : index[-1] + 1] if together else pixels[index]
        groups = (
            tuple(rows[int(row_of[i])].group or rows[int(row_of[i])].sample_id for i in index)
            if by_patient
            else ()
        )
        return Images(tuple(ids[int(i)] for i in index), own, shown[index], groups)

    data = SiteData(
        site=site,
        classes=tuple(classes),
        labelled=images((split == 0) & seen, labels),
        unlabelled=images((split == 0) & ~seen, np.full_like(labels, -1)),
        val=images(split == 1, labels),
        test=images(split == 2, labels),
    )
    for part in (data.val, data.test):
        require_one_label(site, part)
    return data


def require_one_label(site: str, images: Images) -> None:
    """Raise DataError where the images of a group, which are evaluated as one, have several labels."""
    found: dict[str, set[int]] = {}
    for group, label in zip(images.groups, images.labels, strict=False):
        found.setdefault(group, set()).add(int(label))
    several = sorted(group for group, labels in found.items() if len(labels) > 1)
    if several:
        expected = "one label for each group, as the job evaluates by patient"
        told = f"{len(several)} with several, such as {several[0]!r:.80}"
        remedy = "Evaluate by image (data.evaluate_by=image), or name another column of groups, such as lesions."
        raise DataError(f"site {site}", expected=expected, found=told, remedy=remedy)


def _named(
    site: str, ids: Sequence[str], labelled: npt.NDArray[np.bool_], named: set[str]
) -> npt.NDArray[np.bool_]:
    """Return which training images are among the named ones; DataError where one of these has no
    label here.
    """
    unknown = sorted(named - {name for name, there in zip(ids, labelled, strict=True) if there})
    if unknown:
        expected = "ids of training images that have a label"
        found = f"{len(unknown)} others, such as {unknown[0]!r:.80}"
        remedy = "Take them out of the list, or give a share of the labels."
        raise DataError(
            f"site {site}, field labelled", expected=expected, found=found, remedy=remedy
        )
    return np.array([name in named for name in ids], np.bool_)

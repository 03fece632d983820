"""From rows whose splits are known to a site's four sets."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fedward.errors import DataError
from fedward.sites.data import SPLITS, Images, Labels, Pixels, Row, SiteData
from fedward.sites.split import labelled_share


def divide(
    site: str, classes: Sequence[str], rows: Sequence[Row], pixels: Pixels, labelled: float, rng: np.random.Generator
) -> SiteData:
    """Return the four sets of a site, hiding all but a share of the training labels.

    Whose label is seen is drawn before the rows that are not readable go, so fixing one moves no other image. A set
    whose images lie next to each other stays a view of ``pixels``: val and test of a memmap are not read.

    Args:
        site: for messages.
        classes: of the job.
        rows: N rows, in the order of their images.
        pixels: uint8 (M, H, W, C) of the M rows that are readable.
        labelled: share of training labels that are seen, as for :func:`~fedward.sites.split.labelled_share`.
        rng: draws whose label is seen.

    Raises:
        DataError: no row is readable.
    """
    there = np.flatnonzero([row.readable for row in rows])
    if not len(there):
        found, remedy = f"none of {len(rows)} rows", "Check the site file."
        raise DataError(f"site {site}", expected="at least one usable image", found=found, remedy=remedy)
    split = np.array([SPLITS.index(row.split) for row in rows])
    labels = np.array([row.label for row in rows], np.int64)
    train = np.flatnonzero(split == 0)
    seen = np.zeros(len(split), np.bool_)
    seen[train] = labelled_share(labels[train], labelled, rng)
    split, seen, labels = split[there], seen[there], labels[there]

    def images(chosen: npt.NDArray[np.bool_], shown: Labels) -> Images:
        index = np.flatnonzero(chosen)
        together = len(index) and index[-1] - index[0] == len(index) - 1
        own = pixels[index[0] : index[-1] + 1] if together else pixels[index]
        return Images(tuple(rows[int(i)].sample_id for i in there[index]), own, shown[index])

    return SiteData(
        site=site,
        classes=tuple(classes),
        labelled=images((split == 0) & seen, labels),
        unlabelled=images((split == 0) & ~seen, np.full_like(labels, -1)),
        val=images(split == 1, labels),
        test=images(split == 2, labels),
    )

"""What a site's data is to the rest of the package: four sets of images, and the rows that could not be used."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Pixels: TypeAlias = npt.NDArray[np.uint8]
Labels: TypeAlias = npt.NDArray[np.int64]

SPLITS = ("train", "val", "test")


class BadRow(Exception):  # noqa: N818 - not an error of the program: caught per row, kept as SetAside
    """One row or image cannot be used; the text says what was expected and what was found."""


@dataclass(frozen=True, eq=False)
class Images:
    """N images in memory or on disk, with the labels a method may see.

    ``pixels`` is uint8 (N, H, W, C), C = 1 or 3, and may be a read-only memmap; ``labels`` is int64 (N,), an index into
    the job's classes or -1 for none. ``ids`` are the site's own sample ids: they never leave the site.
    """

    ids: tuple[str, ...]
    pixels: Pixels
    labels: Labels

    def __post_init__(self) -> None:
        if not len(self.ids) == len(self.pixels) == len(self.labels):
            raise ValueError(f"{len(self.ids)} ids, {len(self.pixels)} images and {len(self.labels)} labels")

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class SetAside:
    """A row that is not used, and why.

    ``row`` is the line in the CSV (header = 1), or the index in an npz split.
    """

    row: int
    sample_id: str
    reason: str


@dataclass(frozen=True, eq=False)
class SiteData:
    """One site's images in four disjoint sets.

    ``unlabelled`` are training images whose labels are absent or hidden: all its labels are -1, the hidden ones are not
    in here. The labelled images are not repeated in it. No group (patient, lesion) is in two of train (labelled or
    not), val and test. Any of the sets may be empty: a site without labels, a server's validation set.
    """

    site: str
    classes: tuple[str, ...]
    labelled: Images
    unlabelled: Images
    val: Images
    test: Images
    set_aside: tuple[SetAside, ...] = ()

"""What a site's data is to the rest of the package: four sets of images, and the rows that could
not be used.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fedward.sites.decoding import Pixels
from fedward.sites.labels import known

Label: TypeAlias = int | Sequence[int]
"""Of one image: the class index, -1 = none; in a multi-label job 0 or 1 for each of K classes, all
-1 = none.
"""
Labels: TypeAlias = npt.NDArray[np.int64]
"""Of N images: (N,), or in a multi-label job (N, K)."""

Annotation: TypeAlias = Literal["none", "oracle", "queue"]
"""Who gives labels that a job asks for: nobody; the data itself, whose labels a job sees once it
asked for them, as in benchmarks; or people, through the site's queue
(:mod:`fedward.annotation`)."""

SPLITS = ("train", "val", "test")
NO_LABEL_TO_EVALUATE = (
    "not used: it has no label, and its group is in a split that is only evaluated"
)
"""Reason of a rejected row."""


@dataclass(frozen=True, eq=False)
class Images:
    """N images in memory or on disk, with the labels a method may see.

    ``pixels`` is uint8 (N, H, W, C), C = 1 or 3, and may be a read-only memmap; ``labels`` are
    :data:`Labels`. ``ids`` are the site's own sample ids: they never leave the site. ``groups``
    says what is evaluated as one, such as the images of a patient; it is empty where each image is
    evaluated alone.
    """

    ids: tuple[str, ...]
    pixels: Pixels
    labels: Labels
    groups: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not len(self.ids) == len(self.pixels) == len(self.labels):
            raise ValueError(
                f"{len(self.ids)} ids, {len(self.pixels)} images and {len(self.labels)} labels"
            )
        if len(self.groups) not in (0, len(self)):
            raise ValueError(f"{len(self)} images and {len(self.groups)} groups")

    def __len__(self) -> int:
        return len(self.ids)

    def named(self, ids: Sequence[str]) -> "Images":
        """Return the images of these ids, in their order; KeyError for an id that is not among
        them.
        """
        place = {name: index for index, name in enumerate(self.ids)}
        return self.taken([place[name] for name in ids])

    def taken(self, chosen: Sequence[int] | npt.NDArray[np.int64]) -> "Images":
        """Return the images at these places, in their order."""
        ids, groups = (
            tuple(names[place] for place in chosen) for names in (self.ids, self.groups or self.ids)
        )
        places = np.asarray(chosen, np.int64)
        return Images(ids, self.pixels[places], self.labels[places], groups if self.groups else ())


class Decoded(NamedTuple):
    """The images of many files."""

    pixels: Pixels
    """uint8 (M, size, size, channels), in the order of the files; a read-only memmap if cached."""
    failed: dict[int, str]
    """Index of a file that gave none -> the reason."""
    parts: list[list[str]]
    """The images of each file by what follows its name: the empty text, or ``#12`` for the frame or
    slice 12.
    """


class Row(NamedTuple):
    """One file that a site lists, or one image of an array."""

    sample_id: str
    label: Label
    split: str
    """One of :data:`SPLITS`."""
    group: str = ""
    """What it belongs to, such as a patient; empty: it stands alone."""
    parts: Sequence[str] = ("",)
    """Its images by what follows the id, next to each other among the pixels; none where it cannot
    be read.
    """


class Rejected(NamedTuple):
    """A row that is not used, and why."""

    row: int
    """The line in the CSV (header = 1), or the index in an npz split."""
    sample_id: str
    reason: str
    counted: bool = True
    """Whether it counts against ``max_rejected``: not where the row may be another site's, or only
    lacks a label.
    """


class Listed(NamedTuple):
    """What a site's files hold: rows, the pixels (M, H, W, C) of their M images, the rejected rows,
    the total.
    """

    rows: Sequence[Row]
    pixels: Pixels
    rejected: Sequence[Rejected]
    total: int
    """Rows that are the site's for sure, the counted ones among the rejected included."""


@dataclass(frozen=True, eq=False)
class SiteData:
    """One site's images in four disjoint sets.

    ``unlabelled`` are training images whose labels are absent or hidden: all its labels are -1, the
    hidden ones are not in here. The labelled images are not repeated in it. No group (patient,
    lesion) is in two of train (labelled or not), val and test. Any of the sets may be empty: a site
    without labels, a server's validation set.
    """

    site: str
    classes: tuple[str, ...]
    labelled: Images
    unlabelled: Images
    val: Images
    test: Images
    rejected: tuple[Rejected, ...] = ()
    device: str = "auto"
    """Where the site works, as its file says."""
    threads: int = 1
    """CPU threads of its work; 0: all cores."""
    processes: int = 1
    """How many are to train on them together, as the site's file says."""
    annotation: Annotation = "none"
    """Who answers questions for labels."""
    wait_for_labels: float = 0.0
    """Seconds a round waits for an answer."""
    minutes_per_label: float | None = None
    """What an answer costs."""
    refused: frozenset[str] = frozenset()
    """Unlabelled images that people found unusable, or of none of the classes: nothing trains on
    them.
    """

    def with_labels(self, labels: Mapping[str, Label]) -> "SiteData":
        """Return the same images, of which those named have these labels and no other training
        image has any.

        Training images keep their order: first those that have a label here, then the others.
        """
        parts = (self.labelled, self.unlabelled)
        ids = [name for part in parts for name in part.ids]
        shape = self.labelled.labels.shape[1:]
        none = np.full(shape, -1).tolist()
        given = np.array([labels.get(name, none) for name in ids], np.int64).reshape(
            len(ids), *shape
        )

        def images(chosen: npt.NDArray[np.bool_]) -> Images:
            cut = len(self.labelled)
            pixels = np.concatenate(
                [self.labelled.pixels[chosen[:cut]], self.unlabelled.pixels[chosen[cut:]]]
            )
            return Images(
                tuple(name for name, take in zip(ids, chosen, strict=True) if take),
                pixels,
                given[chosen],
            )

        return replace(self, labelled=images(known(given)), unlabelled=images(~known(given)))

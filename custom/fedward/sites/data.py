"""A site's data as the rest of the package sees it: four sets of images, and rejected rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fedward.labels import Label, Labels, known
from fedward.sites.decoding import Pixels

Annotation: TypeAlias = Literal["none", "oracle", "queue"]
"""Who gives labels that a job asks for.

- ``none``: nobody
- ``oracle``: the data itself, as in benchmarks; a job sees a label once it has asked for it
- ``queue``: people, through the site's queue (:mod:`fedward.annotation`)
"""

SPLITS = ("train", "val", "test")
NO_LABEL_TO_EVALUATE = (
    "not used: it has no label, and its group is in a split that is only evaluated"
)
"""Reason of a rejected row."""


@dataclass(frozen=True, eq=False)
class Images:
    """N images in memory or on disk, with the labels a method may see."""

    ids: tuple[str, ...]
    """The site's own sample ids: they never leave the site."""
    pixels: Pixels
    """uint8 (N, H, W, C), C = 1 or 3; may be a read-only memmap."""
    labels: Labels
    """(N,), or in a multi-label job (N, K)."""
    groups: tuple[str, ...] = ()
    """What is evaluated as one, such as a patient; empty where each image is evaluated alone."""
    subgroups: tuple[tuple[str, ...], ...] = ()
    """Each image's group in each of the site's columns of subgroups; empty without columns."""
    patients: tuple[str, ...] = ()
    """The patient or lesion of each image; empty where the site names none."""

    def __post_init__(self) -> None:
        if not len(self.ids) == len(self.pixels) == len(self.labels):
            raise ValueError(
                f"{len(self.ids)} ids, {len(self.pixels)} images and {len(self.labels)} labels"
            )
        for name in ("groups", "subgroups", "patients"):
            values = getattr(self, name)
            if len(values) not in (0, len(self)):
                raise ValueError(f"{len(self)} images and {len(values)} {name}")

    def __len__(self) -> int:
        return len(self.ids)

    def named(self, ids: Sequence[str]) -> "Images":
        """Return the images of these ids, in their order; an unknown id is a KeyError."""
        places = {name: place for place, name in enumerate(self.ids)}
        return self.taken([places[name] for name in ids])

    def taken(self, chosen: Sequence[int] | npt.NDArray[np.int64]) -> "Images":
        """Return the images at these places, in their order."""
        places = np.asarray(chosen, np.int64)
        return Images(
            ids=tuple(self.ids[place] for place in chosen),
            pixels=self.pixels[places],
            labels=self.labels[places],
            groups=tuple(self.groups[place] for place in chosen) if self.groups else (),
            subgroups=tuple(self.subgroups[place] for place in chosen) if self.subgroups else (),
            patients=tuple(self.patients[place] for place in chosen) if self.patients else (),
        )


class Failure(NamedTuple):
    """Why a file gave no image."""

    reason: str
    kind: Literal["file", "machine", "window"]
    """Who is to blame: the file; the machine, so that another try may succeed; or the window, in
    which nothing can be seen of the picture.
    """


class Decoded(NamedTuple):
    """The images of many files."""

    pixels: Pixels
    """uint8 (M, size, size, channels), in the order of the files; a read-only memmap if cached."""
    failed: dict[int, Failure]
    """Index of a file without an image -> why it has none."""
    parts: list[list[str]]
    """For each file the suffix of each of its images: empty, or ``#12`` for frame or slice 12."""


class Row(NamedTuple):
    """One file that a site lists, or one image of an array."""

    sample_id: str
    label: Label
    split: str
    """One of :data:`SPLITS`."""
    group: str = ""
    """What it belongs to, such as a patient; empty: nothing."""
    parts: Sequence[str] = ("",)
    """Suffixes of its images' ids; the images are adjacent. Empty where the file cannot be read."""
    subgroups: tuple[str, ...] = ()
    """Its group in each of the site file's columns of ``subgroups``."""


class Rejected(NamedTuple):
    """A row that is not used, and why."""

    row: int
    """The line in the CSV (header = 1), or the index in an npz split."""
    sample_id: str
    reason: str
    counted: bool = True
    """Whether it counts against ``max_rejected``.

    It does not where the row may be another site's, only lacks a label, or names a DICOM object
    without a picture.
    """


class Listed(NamedTuple):
    """What a site's files hold."""

    rows: Sequence[Row]
    pixels: Pixels
    """(M, H, W, C) of the rows' M images."""
    rejected: Sequence[Rejected]
    total: int
    """Rows that certainly belong to the site, including the rejected ones that are counted."""


@dataclass(frozen=True, eq=False)
class SiteData:
    """One site's images in four disjoint sets.

    No group (patient, lesion) is in two of train (labelled or not), val and test. Any of the sets
    may be empty: at a site without labels, or for a server's validation set.
    """

    site: str
    classes: tuple[str, ...]
    labelled: Images
    """Training images with a label that may be seen."""
    unlabelled: Images
    """Training images whose labels are absent or hidden: all labels here are -1."""
    val: Images
    test: Images
    rejected: tuple[Rejected, ...] = ()
    device: str = "auto"
    """Where the site works, as its file says."""
    threads: int = 1
    """CPU threads of its work; 0: all cores that its process may use."""
    processes: int = 1
    """Processes that train together, as the site's file says."""
    annotation: Annotation = "none"
    """Who answers questions for labels."""
    wait_for_labels: float = 0.0
    """Seconds a round waits for an answer."""
    minutes_per_label: float | None = None
    """What an answer costs."""
    card: Mapping[str, str] = field(default_factory=dict)
    """What the site states about its images: field -> text."""
    subgroups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Column by which answers are counted -> its groups, as the site's file names them."""
    refused: frozenset[str] = frozenset()
    """Unlabelled images that people found unusable, or of none of the classes.

    Nothing trains on them.
    """
    cannot_tell: frozenset[str] = frozenset()
    """Images that people had looked at without giving a class before the run, refused ones too.

    Nobody is asked about them again.
    """

    @property
    def bytes_in_memory(self) -> int:
        """Bytes of the pixels that are in memory; those of a memmap are on disk."""
        parts = (self.labelled, self.unlabelled, self.val, self.test)
        arrays = [part.pixels for part in parts]
        return sum(pixels.nbytes for pixels in arrays if not isinstance(pixels, np.memmap))

    def with_labels(self, labels: Mapping[str, Label]) -> "SiteData":
        """Return the same images with these labels: no other training image has a label.

        Training images keep their order: first those that have a label here, then the others.

        Args:
            labels: id of a training image -> its label.
        """
        ids = [*self.labelled.ids, *self.unlabelled.ids]
        shape = self.labelled.labels.shape[1:]
        no_label = np.full(shape, -1).tolist()
        given = [labels.get(name, no_label) for name in ids]
        train_labels = np.array(given, np.int64).reshape(len(ids), *shape)

        def images(chosen: npt.NDArray[np.bool_]) -> Images:
            first = len(self.labelled)
            from_labelled = self.labelled.taken(np.flatnonzero(chosen[:first]))
            from_unlabelled = self.unlabelled.taken(np.flatnonzero(chosen[first:]))
            return Images(
                ids=from_labelled.ids + from_unlabelled.ids,
                pixels=np.concatenate([from_labelled.pixels, from_unlabelled.pixels]),
                labels=train_labels[chosen],
                groups=from_labelled.groups + from_unlabelled.groups,
                subgroups=from_labelled.subgroups + from_unlabelled.subgroups,
                patients=from_labelled.patients + from_unlabelled.patients,
            )

        has_label = known(train_labels)
        return replace(self, labelled=images(has_label), unlabelled=images(~has_label))

"""A data set in one place, before it is cut into sites."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fedward.config import LONGEST_CLASS, MOST_CLASSES
from fedward.errors import ConfigError, DataError, did_you_mean, listed, option
from fedward.label_kinds import LabelKind, kind_of_labels
from fedward.labels import NO_FINDING, SEPARATOR, Labels, strata
from fedward.sites.rendering import PLAIN, Rendering, Window
from fedward.text import natural

Rows: TypeAlias = npt.NDArray[np.int64]
"""Indices of a pool's rows, ascending."""
Cut: TypeAlias = Mapping[str, Mapping[str, Rows]]
"""Site -> split -> its rows."""

SMALLEST_SIDE = 16
LARGEST_SIDE = 224
"""Bounds of the image size that is proposed, in pixels."""


OTHER_CLASS = "of a class that is not used"
"""Why an image whose label is not among the classes to use is left out."""


class Origin(NamedTuple):
    """Where a data set lists an image."""

    image: str
    """The image as the data set calls it, such as its path; empty if it does not say."""
    line: int | None = None
    """Line of the CSV; None: the data set is no CSV."""


class LeftOutImage(NamedTuple):
    """What a data set lists and no site gets."""

    origin: Origin
    reason: str


class OpenedImage(NamedTuple):
    """What was seen of one row of a pool once its image was opened."""

    name: str
    """Of the row, such as the path of its file."""
    digest: bytes = b""
    """Hash of its pixels; empty if it has a problem."""
    problem: str = ""
    """Why it cannot be used; empty if it can."""
    several: bool = False
    """Whether the problem is that the file holds several frames, of which none are chosen."""
    dark: bool = False
    """Whether it shows next to nothing (:mod:`fedward.sites.dark_images`)."""
    shown_in: Window | None = None
    """A window in which it would show something, if it is dark or blank for its window."""
    path: Path | None = None
    """Its file; None: it is of an array."""


def open_none() -> Iterator[OpenedImage]:
    """Open no image: the pool's are known to be whole."""
    return iter(())


class Listing(NamedTuple):
    """How a site's file names its images."""

    content: dict[str, Any]
    """Fields of the site file."""
    chosen: dict[str, Any]
    """Further, perhaps long fields, which say which images are the site's."""
    table: str = ""
    """Content of the CSV beside the site file; empty if it needs none."""


@dataclass(frozen=True, eq=False)
class Pool:
    """N images, row by row, and how a site's file names some of them."""

    name: str
    classes: tuple[str, ...]
    labels: Labels
    groups: list[str]
    """Name of what each image stays together with: a patient, a lesion, or the image alone."""
    alone: list[bool]
    """Whether an image is alone: the data set names neither its patient nor its lesion."""
    splits: list[str]
    """``train``, ``val`` or ``test`` of each image; all ``train`` if the data set has no splits."""
    side: int
    """Pixels of the shorter side of the images that were opened: their lower median."""
    channels: int
    listing: Callable[[str, Mapping[str, Rows], Path], Listing]
    """Site, its rows of each split, folder of the site files -> content of its file."""
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Further columns of N values each, by name."""
    used_columns: frozenset[str] = frozenset()
    """Those of the columns that say what an image is, or whose label it has."""
    subgroups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Column by which the sites count right answers -> its groups."""
    rendering: Rendering = PLAIN
    """How its files become images."""
    notes: tuple[str, ...] = ()
    """What the person who cuts the data set should know."""
    doubts: tuple[str, ...] = ()
    """Why the cut may not be what the person wants; it is said last, each on lines of its own."""
    open_images: Callable[[], Iterator[OpenedImage]] = open_none
    """Opens the images, and yields what was seen of each row, in their order."""
    copies: tuple[tuple[int, ...], ...] = ()
    """Rows of each picture that is there several times, as far as the images were opened."""
    listed_as: str = "image"
    """What the data set lists its images as: ``row``, ``file`` or ``image``."""
    origins: Sequence[Origin] = ()
    """Where the data set lists each of the N images."""
    left_out: tuple[LeftOutImage, ...] = ()
    """All else that it lists."""

    def taken(self, rows: Sequence[int]) -> "Pool":
        """Return the pool of some of the rows, in their order; they are not opened again."""
        places = np.array(rows, np.int64)
        place_of = {row: place for place, row in enumerate(rows)}
        copies = [[place_of[row] for row in same if row in place_of] for same in self.copies]
        listing = self.listing

        def listing_of_all(site: str, site_rows: Mapping[str, Rows], out: Path) -> Listing:
            return listing(site, {split: places[own] for split, own in site_rows.items()}, out)

        return replace(
            self,
            labels=self.labels[places],
            groups=[self.groups[row] for row in rows],
            alone=[self.alone[row] for row in rows],
            splits=[self.splits[row] for row in rows],
            columns={name: [cells[row] for row in rows] for name, cells in self.columns.items()},
            listing=listing_of_all,
            open_images=open_none,
            copies=tuple(tuple(same) for same in copies if len(same) > 1),
            origins=[self.origins[row] for row in rows if self.origins],
        )

    def leaving_out(self, reasons: Mapping[int, str]) -> "Pool":
        """Return the pool with further rows noted as left out, which are still among its rows.

        Args:
            reasons: row -> why no site gets it.
        """
        further = [LeftOutImage(self.origins[row], reasons[row]) for row in sorted(reasons)]
        return replace(self, left_out=(*self.left_out, *further))

    def noting(self, notes: Sequence[str]) -> "Pool":
        """Return the pool with further notes."""
        return replace(self, notes=(*self.notes, *notes))

    @property
    def grouped(self) -> bool:
        """Whether the data set names the patient or lesion of any image."""
        return not all(self.alone)

    @property
    def label_kind(self) -> LabelKind:
        """What an image may show."""
        return kind_of_labels(self.labels)

    @property
    def kinds(self) -> npt.NDArray[np.int64]:
        """(N,) strata in which images are divided evenly; -1 for images without a label."""
        return strata(self.labels)

    def data_spec(self) -> dict[str, Any]:
        """Return fields of :class:`fedward.config.DataSpec` that are proposed for these images.

        The views are those that spoil the fewest images: grey images and slices are not mirrored,
        and none is rotated by much.
        """
        spec = {
            "name": self.name,
            "classes": list(self.classes),
            "multi_label": self.label_kind.multi_label,
            "image_size": proposed_size(self.side),
            "channels": self.channels,
            "views": "upright" if self.channels == 1 or self.rendering.slices else "mirrored",
        }
        if self.rendering.several:
            spec["evaluate_by"] = "patient"
        return spec


def proposed_size(side: int) -> int:
    """Return the image size that is proposed for images of this shorter side, in pixels."""
    return min(max(side, SMALLEST_SIDE), LARGEST_SIDE)


class ClassesError(ConfigError):
    """The classes to use are not those of a data set, or are too few."""


class Classes(NamedTuple):
    """The classes that are used, and the images that have one of them or no label."""

    classes: tuple[str, ...]
    labels: Labels
    """Labels of the kept images."""
    rows: list[int]
    """Indices of the kept images, ascending."""
    notes: tuple[str, ...]
    """What was left out."""


def is_label(text: str) -> bool:
    """Return whether a text names a label; an empty text and ``unlabelled`` do not."""
    return text.lower() not in ("", "unlabelled", "unlabeled")


def take_classes(texts: Sequence[str], classes: Sequence[str] = ()) -> Classes:
    """Return the classes of a data set, and its images that have one of them or no label.

    Args:
        texts: labels as the data set has them.
        classes: classes to use, in their order; empty: all, in natural order.

    Raises:
        ClassesError: a class has no image although images have labels; there are fewer than two
            classes, more than a job may have, or one is named twice; or a name is too long.
    """
    known = sorted({text for text in texts if is_label(text)}, key=natural)
    order = tuple(classes or known)
    unknown = [name for name in classes if known and name not in known]
    if unknown:
        raise ClassesError(
            option("classes"),
            "Name some of them.",
            expected=f"classes of the data ({listed(known):.300})",
            found=listed(unknown) + did_you_mean(unknown[0], known),
        )
    repeated = [name for name, number in Counter(order).items() if number > 1]
    if repeated:
        raise ClassesError(
            option("classes"),
            "Name each class once.",
            expected="different classes",
            found=f"{listed(repeated)} several times",
        )
    if len(order) < 2:
        raise ClassesError(
            option("classes"),
            "Name the classes to use.",
            expected="two or more classes",
            found=listed(order) or "no label",
        )
    longest = max(map(len, order))
    if len(order) > MOST_CLASSES or longest > LONGEST_CLASS:
        raise ClassesError(
            option("classes"),
            "Name the classes to use, or another column of labels.",
            expected=f"at most {MOST_CLASSES} classes, whose names have at most {LONGEST_CLASS} "
            "characters, as jobs can have",
            found=f"{len(order)} classes, the longest name with {longest}",
        )
    index_of = {name: index for index, name in enumerate(order)}
    rows = [row for row, text in enumerate(texts) if text in index_of or not is_label(text)]
    labels = np.array([index_of.get(texts[row], -1) for row in rows], np.int64)
    left_out = Counter(text for text in texts if is_label(text) and text not in index_of)
    notes: tuple[str, ...] = ()
    if left_out:
        names = ", ".join(f"{name} {images}" for name, images in left_out.most_common())
        number = left_out.total()
        notes = (f"Images of other classes, which are left out: {number} ({names:.300}).",)
    return Classes(order, labels, rows, notes)


def take_findings(texts: Sequence[str], classes: Sequence[str] = ()) -> Classes:
    """Return the classes of a multi-label data set, whose labels are findings separated by ``|``.

    All images are kept. An image with other findings only has none of the classes.
    """
    findings_of = [findings_in(text) for text in texts]
    known = dict.fromkeys(
        name for findings in findings_of for name in findings if name != NO_FINDING
    )
    order = take_classes(list(known), classes).classes
    labels = [
        [int(name in findings) if findings else -1 for name in order] for findings in findings_of
    ]
    left_out = sorted(set(known) - set(order), key=natural)
    rows = list(range(len(texts)))
    return Classes(order, np.array(labels, np.int64), rows, findings_note(left_out))


def findings_note(left_out: Sequence[str]) -> tuple[str, ...]:
    """Return a note of the findings that are left out; nothing if there are none."""
    if not left_out:
        return ()
    names = ", ".join(left_out)
    return (f"Findings that are left out: {names}. An image with these alone shows none.",)


def findings_in(text: str) -> list[str]:
    """Return the findings of a label, :data:`NO_FINDING` included; empty without a label."""
    if not is_label(text):
        return []
    return [part.strip() for part in text.split(SEPARATOR) if part.strip()]


def check_groups(where: str, groups: Sequence[str], splits: Sequence[str]) -> None:
    """Raise DataError if a group is in two splits; the error names the first of them."""
    split_of: dict[str, str] = {}
    rows_of_another_split: list[str] = []
    for group, split in zip(groups, splits, strict=True):
        if split_of.setdefault(group, split) != split:
            rows_of_another_split.append(group)
    leaking = list(dict.fromkeys(rows_of_another_split))
    if leaking:
        raise DataError(
            where,
            "Move each of these groups to one split, or let new splits be made "
            f"({option('resplit', True)}). Case, blanks, signs and zeros before a number do not "
            "tell groups apart.",
            expected="each group (patient, lesion) in one split",
            found=f"{len(leaking)} in several, such as {', '.join(leaking[:3])}",
        )

"""A data set that lies in one place, before it is cut into sites."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fedward.errors import ConfigError, DataError, did_you_mean, listed
from fedward.label_kinds import LabelKind, kind_of_labels
from fedward.sites.data import Labels
from fedward.sites.labels import NO_FINDING, SEPARATOR, strata
from fedward.sites.rendering import PLAIN, Rendering
from fedward.text import natural

Rows: TypeAlias = npt.NDArray[np.int64]
"""Rows of a pool, ascending."""
Cut: TypeAlias = Mapping[str, Mapping[str, Rows]]
"""Site -> split -> its rows."""

SMALLEST_SIDE = 16
LARGEST_SIDE = 224
"""Of the image size that is proposed."""


class Listing(NamedTuple):
    """How a site's file names its images."""

    content: dict[str, Any]
    """Fields of the site file."""
    chosen: dict[str, Any]
    """Further fields, which say which of the images are the site's; perhaps long."""
    table: str = ""
    """Text of the CSV beside it; empty where it has none."""


@dataclass(frozen=True, eq=False)
class Pool:
    """N images, row by row, and how a site's file names some of them."""

    name: str
    classes: tuple[str, ...]
    labels: Labels
    groups: list[str]
    """N names of what stays together: a patient, a lesion, or the image alone."""
    splits: list[str]
    """N of ``train``, ``val``, ``test``; all ``train`` where the data set has no splits of its own.
    """
    side: int
    """Pixels of the shorter side of its images, as far as one has looked."""
    channels: int
    listing: Callable[[str, Mapping[str, Rows], Path], Listing]
    """Site, its rows of each split and the folder of the site files -> what its file says."""
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Further columns of N values each, by name."""
    grouped: bool = False
    """Whether the data set says what stays together."""
    rendering: Rendering = PLAIN
    """How its files become images."""
    notes: tuple[str, ...] = ()
    """What whoever cuts it should know."""

    @property
    def label_kind(self) -> LabelKind:
        """What an image may show."""
        return kind_of_labels(self.labels)

    @property
    def kinds(self) -> npt.NDArray[np.int64]:
        """(N,) by what images are divided evenly, -1 of those without a label."""
        return strata(self.labels)

    def data_spec(self) -> dict[str, Any]:
        """Return what a job on these images says of them: fields of
        :class:`fedward.config.DataSpec`, as a proposal.

        The views are those that spoil the fewest images: grey ones and slices are not mirrored,
        none is turned by much.
        """
        return {
            "name": self.name,
            "classes": list(self.classes),
            "multi_label": self.label_kind.multi_label,
            "image_size": min(max(self.side, SMALLEST_SIDE), LARGEST_SIDE),
            "channels": self.channels,
            "views": "upright" if self.channels == 1 or self.rendering.slices else "mirrored",
            **({"evaluate_by": "patient"} if self.rendering.several else {}),
        }


class Classes(NamedTuple):
    """The classes that are used of a data set, and its images of them or of none."""

    classes: tuple[str, ...]
    labels: Labels
    """Of the M images that are kept."""
    rows: list[int]
    """Which images are kept, ascending."""
    notes: tuple[str, ...]
    """How many are not."""


def is_label(text: str) -> bool:
    """Return whether a label is one: an empty one is not, nor is ``unlabelled``."""
    return text.lower() not in ("", "unlabelled", "unlabeled")


def take_classes(texts: Sequence[str], classes: Sequence[str] = ()) -> Classes:
    """Return the classes of a data set, and its images that have one of them or no label.

    Args:
        texts: N labels as the data set has them.
        classes: those to use, in their order; none: all, in natural order.

    Raises:
        ConfigError: a class of which there is no image, though others have labels; fewer than two,
            or one twice.
    """
    known = sorted({text for text in texts if is_label(text)}, key=natural)
    order = tuple(classes or known)
    unknown = [name for name in classes if known and name not in known]
    if unknown:
        expected = f"classes of the data ({listed(known):.300})"
        remedy = "Name some of them."
        raise ConfigError(
            "--classes",
            expected=expected,
            found=listed(unknown) + did_you_mean(unknown[0], known),
            remedy=remedy,
        )
    if len(set(order)) < max(2, len(order)):
        expected = "two or more classes, each named once"
        found = listed(order) or "no label"
        raise ConfigError(
            "--classes", expected=expected, found=found, remedy="Name the classes to use."
        )
    place = {name: index for index, name in enumerate(order)}
    rows = [row for row, text in enumerate(texts) if text in place or not is_label(text)]
    left = len(texts) - len(rows)
    notes = (f"{left} images of other classes are left out.",) if left else ()
    return Classes(
        order, np.array([place.get(texts[row], -1) for row in rows], np.int64), rows, notes
    )


def take_findings(texts: Sequence[str], classes: Sequence[str] = ()) -> Classes:
    """Return the same of a multi-label data set, whose labels are findings separated by ``|``.

    All its images are kept. One that shows other findings alone shows none of the classes.
    """
    found = [findings_in(text) for text in texts]
    known = list(dict.fromkeys(name for names in found for name in names if name != NO_FINDING))
    order = take_classes(known, classes).classes
    labels = [[int(name in names) if names else -1 for name in order] for names in found]
    left = sorted({*known} - {*order}, key=natural)
    notes = (
        (f"Findings that are left out: {', '.join(left)}. An image with these alone shows none.",)
        if left
        else ()
    )
    return Classes(order, np.array(labels, np.int64), list(range(len(texts))), notes)


def findings_in(text: str) -> list[str]:
    """Return the findings of a label, :data:`NO_FINDING` among them; nothing where it is none."""
    return (
        [part.strip() for part in text.split(SEPARATOR) if part.strip()] if is_label(text) else []
    )


def check_groups(where: str, groups: Sequence[str], splits: Sequence[str]) -> None:
    """Refuse a data set of which a group is in two splits.

    Raises:
        DataError: one is; names the first of them.
    """
    known: dict[str, str] = {}
    leaking = [
        name
        for name, split in zip(groups, splits, strict=True)
        if known.setdefault(name, split) != split
    ]
    leaking = list(dict.fromkeys(leaking))
    if leaking:
        found = f"{len(leaking)} in several, such as {', '.join(leaking[:3])}"
        remedy = "Move each of these groups to one split, or let new splits be made: leave those of the data out."
        raise DataError(
            where, expected="each group (patient, lesion) in one split", found=found, remedy=remedy
        )

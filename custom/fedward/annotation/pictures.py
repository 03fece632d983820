"""A site's images as a person is to see them: whole, in their own size and shape, by sample id."""

import io
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Container, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias, TypeVar

from PIL import Image

from fedward.annotation.levels import Levels, in_window, levels_of, levels_of_picture
from fedward.annotation.stacks import Slice, Slices
from fedward.errors import BadRow, DataError, listed
from fedward.label_kinds import ONE_LABEL, LabelKind
from fedward.sites.data import SPLITS
from fedward.sites.decoding import as_image
from fedward.sites.files import is_volume
from fedward.sites.images import open_file
from fedward.sites.job_checks import check_label_fields, check_rejected
from fedward.sites.manifest import Entry, read_entries
from fedward.sites.npz import read_split
from fedward.sites.rendering import PLAIN, Rendering, Window
from fedward.sites.site_file import (
    ANY_SITE,
    ClassWords,
    ManifestSite,
    NpzSite,
    kit_site,
    read_site_file,
)
from fedward.sites.table import read_header

LARGEST = 4096
"""Pixels of the longer side; a larger picture is reduced to it, as no browser of a tablet holds
more.
"""
_T = TypeVar("_T")


_Facts: TypeAlias = tuple[tuple[str, str], ...]
_INDEX = re.compile("0|[1-9][0-9]{0,5}")
"""Of a slice: one spelling each."""


class _Row(NamedTuple):
    path: Path
    facts: _Facts


@dataclass(frozen=True)
class _Picture:
    open: Callable[[], Image.Image]
    levels: Callable[[Image.Image], Levels | None]
    """Given the picture that ``open`` returns."""
    in_window: Callable[[Window], Image.Image] | None
    """None: it has no more than the 8 bits of the picture."""
    group: str
    facts: _Facts = ()


class Pictures:
    """A PNG for every usable row of a site's CSV, or every image of its npz file, and what else is
    shown of it.

    Args:
        site_file: as for :func:`fedward.sites.load_site`.
        classes: the job's classes.
        label_kind: what an image of the job may show.

    Raises:
        DataError: the site file, its CSV or its npz cannot be used, names classes that the job has
            not, or columns that the CSV has not.
    """

    def __init__(
        self, site_file: Path, classes: Sequence[str], label_kind: LabelKind = ONE_LABEL
    ) -> None:
        file = read_site_file(site_file)
        check_label_fields(file, classes, label_kind)
        _check_reading(file, classes)
        nameless = site_file.name == ANY_SITE and file.site == site_file.stem
        self.site = (kit_site(site_file) if nameless else None) or file.site
        """Its name: that of the startup kit where the file names none, and is called the same at
        each site.
        """
        self.classes = classes
        self.words = {name: file.reading.classes.get(name, ClassWords()) for name in classes}
        """Class -> its title and definition, as readers see them."""
        self.names: dict[str, str] = dict(file.labels) if isinstance(file, ManifestSite) else {}
        """The site's own words for classes -> the classes."""
        self._slices = Slices(file.rendering if isinstance(file, ManifestSite) else PLAIN)
        self._rows: dict[str, _Row] = {}
        """Of files that hold several images."""
        if isinstance(file, ManifestSite):
            entries = _entries(file, classes, label_kind)
            self._pictures = {
                entry.sample_id: _of_entry(entry, file)
                for entry in entries
                if not is_volume(entry.path)
            }
            stacks = [entry for entry in entries if self._slices.are_in(entry.path)]
            self._rows = {
                entry.sample_id: _Row(entry.path, _facts(entry, file)) for entry in stacks
            }
        else:
            self._pictures = _of_npz(file, label_kind)
        self._groups: dict[str, list[str]] = defaultdict(list)
        for name, picture in self._pictures.items():
            self._groups[picture.group].append(name)

    @property
    def ids(self) -> Container[str]:
        """The ids of the site's images; of slices all that may be, as their number is known once a
        volume is read.
        """
        return self if self._rows else frozenset(self._pictures)

    def __contains__(self, sample_id: object) -> bool:
        return isinstance(sample_id, str) and self._find(sample_id) is not None

    def _find(self, sample_id: str) -> _Picture | None:
        row, _, number = sample_id.rpartition("#")
        if sample_id in self._pictures or row not in self._rows or not _INDEX.fullmatch(number):
            return self._pictures.get(sample_id)
        path, facts = self._rows[row]
        draw = partial(self._slices.open, path, int(number))
        levels = partial(self._slices.levels, path)
        return _Picture(draw, levels, draw, sample_id, facts)

    def slice(self, sample_id: str) -> Slice | None:
        """Return the place of an image in its volume; None for one that is no slice, or cannot be
        read.
        """
        row, _, number = sample_id.rpartition("#")
        if sample_id in self._pictures or sample_id not in self:
            return None
        try:
            place = Slice(row, int(number), self._slices.count(self._rows[row].path))
        except BadRow:
            return None
        return place if place.index < place.count else None

    def group(self, sample_id: str) -> list[str]:
        """Return the ids of all images of the same group, in the order of the site's file; of a
        slice, its own.
        """
        picture = self._pictures.get(sample_id)
        return self._groups[picture.group] if picture else [sample_id]

    def belongs(self, sample_id: str, asked: Collection[str]) -> bool:
        """Return whether an image is one of those asked for, of the group of one, or a slice of the
        same volume.
        """
        if sample_id in self._pictures:
            return any(name in asked for name in self.group(sample_id))
        row = sample_id.rpartition("#")[0]
        return any(name.rpartition("#")[0] == row for name in asked)

    def facts(self, sample_id: str) -> tuple[tuple[str, str], ...]:
        """Return the columns that the site shows, and what stands there; empty cells are left out."""
        picture = self._find(sample_id)
        return picture.facts if picture else ()

    def png(self, sample_id: str, longest: int = LARGEST, window: Window | None = None) -> bytes:
        """Return an image as PNG, its longer side at most ``longest`` pixels.

        Raises:
            DataError: the site has no such image, or its file is broken.
        """
        shown = self._read(sample_id, lambda picture: _drawn(picture, window))
        if shown.mode not in ("L", "RGB"):
            shown = shown.convert("RGB")
        shown.thumbnail((longest, longest))
        buffer = io.BytesIO()
        shown.save(buffer, "PNG", compress_level=1)
        return buffer.getvalue()

    def levels(self, sample_id: str) -> Levels | None:
        """Return the values of a grey image; None for colour.

        Raises:
            DataError: as :meth:`png`.
        """
        return self._read(sample_id, lambda picture: picture.levels(picture.open()))

    def _read(self, sample_id: str, what: Callable[[_Picture], _T]) -> _T:
        where = f"site {self.site}, image {sample_id}"
        picture = self._find(sample_id)
        if picture is None:
            remedy = "Check the site file; ids must stay the same from run to run."
            raise DataError(
                where, expected="an image that the site file names", found="none", remedy=remedy
            )
        try:
            return what(picture)
        except BadRow as bad:
            remedy = "Fix the file; `fedward doctor` lists all that cannot be read."
            raise DataError(
                where, expected="a whole image", found=f"{bad}", remedy=remedy
            ) from None


def _check_reading(file: ManifestSite | NpzSite, classes: Sequence[str]) -> None:
    """Refuse a part ``reading`` that names what there is not, or that would show the answer."""
    unknown = sorted(set(file.reading.classes) - set(classes))
    if unknown:
        where = f"site {file.site}, field reading.classes"
        expected = f"classes of the job ({listed(classes)})"
        remedy = "Name the job's classes with --classes, or correct the site file."
        raise DataError(where, expected=expected, found=", ".join(unknown), remedy=remedy)
    if not isinstance(file, ManifestSite):
        return
    header = read_header(file.manifest, file.site)
    where = f"site {file.site}, field reading.columns"
    missing = [name for name in file.reading.columns if name not in header]
    if missing:
        expected = f"columns of the CSV ({', '.join(header):.500})"
        remedy = "Correct the site file."
        raise DataError(where, expected=expected, found=", ".join(missing), remedy=remedy)
    labels = file.columns.label if isinstance(file.columns.label, tuple) else (file.columns.label,)
    answers = [name for name in file.reading.columns if name in labels]
    if answers:
        found = ", ".join(answers)
        remedy = "Leave it out: readers would see the answer."
        raise DataError(
            where, expected="columns that do not hold the label", found=found, remedy=remedy
        )


def _entries(file: ManifestSite, classes: Sequence[str], label_kind: LabelKind) -> list[Entry]:
    entries, rejected, total = read_entries(file, classes, label_kind)
    check_rejected(file, rejected, total)
    return entries


def _of_entry(entry: Entry, file: ManifestSite) -> _Picture:
    return _Picture(
        open=partial(open_file, entry.path, Rendering(file.window)),
        levels=partial(levels_of, entry.path, own=file.window),
        in_window=partial(in_window, entry.path),
        group=entry.group,
        facts=_facts(entry, file),
    )


def _facts(entry: Entry, file: ManifestSite) -> _Facts:
    return tuple((name, entry.cells[name]) for name in file.reading.columns if entry.cells[name])


def _of_npz(file: NpzSite, label_kind: LabelKind) -> dict[str, _Picture]:
    """Return the images of an npz file, each of which is a group."""
    splits = {split: read_split(file, split, label_kind)[0] for split in SPLITS}
    images = {
        f"{split}-{index}": image
        for split, pixels in splits.items()
        for index, image in enumerate(pixels)
    }
    return {
        name: _Picture(partial(as_image, image), levels_of_picture, None, name)
        for name, image in images.items()
    }


def _drawn(picture: _Picture, window: Window | None) -> Image.Image:
    return (
        picture.open() if window is None or picture.in_window is None else picture.in_window(window)
    )

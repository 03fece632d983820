"""A site's images as readers see them, by sample id: whole, in their own size and shape."""

import io
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias, TypeVar

from PIL import Image

from fedward.annotation.levels import Levels, in_window, levels_of, levels_of_picture
from fedward.annotation.reading import read_rules
from fedward.annotation.rules import Rules
from fedward.annotation.stacks import Slice, Slices
from fedward.errors import DataError, listed, offering
from fedward.label_kinds import ONE_LABEL, LabelKind
from fedward.labels import NO_FINDING
from fedward.sites.decoding import BadRow, as_image
from fedward.sites.files import is_volume
from fedward.sites.images import open_file
from fedward.sites.job_checks import check_label_fields, check_rejected
from fedward.sites.npz import site_images
from fedward.sites.rendering import PLAIN, Rendering, Window
from fedward.sites.site_csv import Entry, read_rows
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
"""The most pixels of the longer side, because browsers of tablets cannot show more.

A larger picture is reduced.
"""
_Result = TypeVar("_Result")
_Facts: TypeAlias = tuple[tuple[str, str], ...]
"""Columns of the CSV and their cells."""
_INDEX = re.compile("0|[1-9][0-9]{0,5}")
"""The index of a slice, which has one spelling."""
_WHOLE_NUMBER = re.compile(r"^(-?[0-9]+)\.0+$")
"""A whole number as tables of numbers write it, such as an age of 60.0."""


class _StackRow(NamedTuple):
    """A row of the CSV whose file holds several images."""

    path: Path
    facts: _Facts


@dataclass(frozen=True)
class _Picture:
    """One image, which is read when it is needed."""

    open: Callable[[], Image.Image]
    """Returns the picture."""
    levels: Callable[[Image.Image], Levels | None]
    """Returns the levels, given the picture that ``open`` returns."""
    in_window: Callable[[Window], Image.Image] | None
    """Returns the picture in a window; None for an image that has no more than 8 bits."""
    group: str
    """The name of the image's group, such as its patient."""
    facts: _Facts = ()
    """The cells that are shown beside the image."""


class Pictures:
    """The pictures of a site, and the facts that are shown beside them.

    There is a picture for every usable row of its CSV, or for every image of its npz file.

    Args:
        site_file: as for :func:`fedward.sites.load_site`.
        classes: the job's classes.
        label_kind: what an image of the job may show.
        titles: class -> its title in the job, where the site file has none.

    Raises:
        DataError: the site file, its CSV or its npz cannot be used; or it names classes that the
            job does not have, or columns that the CSV does not have.
    """

    def __init__(
        self,
        site_file: Path,
        classes: Sequence[str],
        label_kind: LabelKind = ONE_LABEL,
        titles: Mapping[str, str] | None = None,
    ) -> None:
        file = read_site_file(site_file)
        with offering("classes"):
            check_label_fields(file, classes, label_kind)
        _check_reading(file, classes)
        self.site = _name_of_site(site_file, file)
        """The name of the site."""
        self.classes = classes
        self.words = {name: _words(file, name, titles or {}) for name in classes}
        """Class -> its title and definition, as readers see them."""
        self.class_of_word: dict[str, str] = {}
        """The site's own words for classes -> the classes."""
        self._stack_rows: dict[str, _StackRow] = {}
        """Sample id -> the row of a file that holds several images."""
        if isinstance(file, ManifestSite):
            self.class_of_word = dict(file.labels)
            self._slices = Slices(file.rendering)
            entries = _entries(file, classes, label_kind)
            self._pictures = _pictures_of_entries(entries, file)
            for entry in entries:
                if self._slices.are_in(entry.path):
                    row = _StackRow(entry.path, _facts(entry, file))
                    self._stack_rows[entry.sample_id] = row
        else:
            self._slices = Slices(PLAIN)
            self._pictures = _pictures_of_npz(file, label_kind)
        self.examples = {
            name: words.examples for name, words in self.words.items() if words.examples
        }
        """Class -> the ids of its examples, for the classes that have some."""
        self._groups: dict[str, list[str]] = defaultdict(list)
        for name, picture in self._pictures.items():
            self._groups[picture.group].append(name)
        self._require_own_ids(file)
        if file.reading.known:
            self._require_fit_known(file, read_rules(site_file, label_kind))

    def _require_own_ids(self, file: ManifestSite | NpzSite) -> None:
        """Raise DataError if examples or images of known class are not the site's."""
        for field, ids in (
            ("reading.classes", self._all_examples),
            ("reading.known", [*file.reading.known]),
        ):
            missing_ids = [name for name in ids if name not in self]
            if missing_ids:
                raise DataError(
                    f"site {file.site}, field {field}",
                    "Correct the site file.",
                    expected="ids of images of the site",
                    found=listed(missing_ids),
                )

    def _require_fit_known(self, file: ManifestSite | NpzSite, rules: Rules) -> None:
        """Raise DataError if a known class is not the job's, or an example gives it away."""
        label_kind = rules.label_kind
        for sample_id, label in file.reading.known.items():
            unknown_classes = set(label_kind.split(label)) - {*self.classes, NO_FINDING}
            if unknown_classes or (label_kind.exclusive and label == NO_FINDING):
                raise DataError(
                    f"site {file.site}, field reading.known.{sample_id}",
                    "Correct the site file.",
                    expected=f"a class of the job ({listed(self.classes)})",
                    found=label,
                )
            beside = {*self.group(sample_id), *rules.together(sample_id)}
            given_away = [name for name in self._all_examples if name in beside]
            if given_away:
                raise DataError(
                    f"site {file.site}, field reading.known.{sample_id}",
                    "Choose another one: readers would see its answer among the examples.",
                    expected="an image whose group and lesion have no example",
                    found=listed(given_away),
                )

    @property
    def _all_examples(self) -> list[str]:
        """The ids of the examples of all classes."""
        return [name for names in self.examples.values() for name in names]

    def examples_beside(self, asked: Collection[str]) -> dict[str, list[str]]:
        """Return class -> the examples that may be shown while readers are asked about images.

        An example is left out if an image of its group is asked for, because readers would see the
        answer.

        Args:
            asked: the ids of the images, with all images of their lesions.
        """
        return {
            name: [example for example in ids if not self.shares_group(example, asked)]
            for name, ids in self.examples.items()
        }

    @property
    def ids(self) -> Container[str]:
        """The ids of the site's images.

        All ids that slices may have are among them, because the number of slices is not known
        before a volume is read.
        """
        return self if self._stack_rows else frozenset(self._pictures)

    def __contains__(self, sample_id: object) -> bool:
        return isinstance(sample_id, str) and self._find(sample_id) is not None

    def _find(self, sample_id: str) -> _Picture | None:
        """Return the picture of an id; None if the site has none."""
        if sample_id in self._pictures:
            return self._pictures[sample_id]
        row_id, _, number = sample_id.rpartition("#")
        if row_id not in self._stack_rows or not _INDEX.fullmatch(number):
            return None
        row = self._stack_rows[row_id]
        draw = partial(self._slices.open, row.path, int(number))
        levels = partial(self._slices.levels, row.path)
        return _Picture(draw, levels, in_window=draw, group=sample_id, facts=row.facts)

    def slice(self, sample_id: str) -> Slice | None:
        """Return the place of an image in its volume.

        It is None for an image that is not a slice, or cannot be read.
        """
        if sample_id in self._pictures or sample_id not in self:
            return None
        row_id, _, number = sample_id.rpartition("#")
        try:
            image_count = self._slices.count(self._stack_rows[row_id].path)
        except BadRow:
            return None
        index = int(number)
        return Slice(row_id, index, image_count) if index < image_count else None

    def group(self, sample_id: str) -> list[str]:
        """Return the ids of all images of the same group, in the order of the site's file.

        A slice is alone in its group.
        """
        picture = self._pictures.get(sample_id)
        return self._groups[picture.group] if picture else [sample_id]

    def shares_group(self, sample_id: str, asked: Collection[str]) -> bool:
        """Return whether an image is one of those asked for, or of the group or volume of one."""
        if sample_id in self._pictures:
            return any(name in asked for name in self.group(sample_id))
        row_id = sample_id.rpartition("#")[0]
        return any(name.rpartition("#")[0] == row_id for name in asked)

    def facts(self, sample_id: str) -> tuple[tuple[str, str], ...]:
        """Return the columns that the site shows, with their cells; empty cells are left out."""
        picture = self._find(sample_id)
        return picture.facts if picture else ()

    def png(
        self,
        sample_id: str,
        most: tuple[int, int] = (LARGEST, LARGEST),
        window: Window | None = None,
    ) -> bytes:
        """Return an image as PNG.

        Args:
            sample_id: the image.
            most: the largest width and height, in pixels; a larger picture is reduced.
            window: the window in which a grey image is drawn; None for its own.

        Raises:
            DataError: the site has no such image, or its file is broken.
        """
        drawn = self._read(sample_id, partial(_drawn, window=window))
        if drawn.mode not in ("L", "RGB"):
            drawn = drawn.convert("RGB")
        drawn.thumbnail(most)
        buffer = io.BytesIO()
        drawn.save(buffer, "PNG", compress_level=1)
        return buffer.getvalue()

    def levels(self, sample_id: str) -> Levels | None:
        """Return the values of a grey image; None for colour.

        Raises:
            DataError: as :meth:`png`.
        """
        return self._read(sample_id, lambda picture: picture.levels(picture.open()))

    def _read(self, sample_id: str, read: Callable[[_Picture], _Result]) -> _Result:
        """Return what a function reads from the picture of an id."""
        picture = self._find(sample_id)
        if picture is None:
            raise DataError(
                f"site {self.site}, image {sample_id}",
                "Check the site file; ids must stay the same from run to run.",
                expected="an image that the site file names",
                found="none",
            )
        try:
            return read(picture)
        except BadRow as bad:
            raise DataError(
                f"site {self.site}, image {sample_id}",
                "Fix the file; `fedward doctor` lists all that cannot be read.",
                expected="a whole image",
                found=f"{bad}",
            ) from None


def _name_of_site(site_file: Path, file: ManifestSite | NpzSite) -> str:
    """Return the name of a site.

    It is that of the startup kit if the file has the name that it may have at every site, and names
    no site itself.
    """
    is_nameless = site_file.name == ANY_SITE and file.site == site_file.stem
    if not is_nameless:
        return file.site
    return kit_site(site_file) or file.site


def _words(file: ManifestSite | NpzSite, name: str, titles: Mapping[str, str]) -> ClassWords:
    """Return how a class is explained: in the site's words, else by its title in the job."""
    words = file.reading.classes.get(name, ClassWords())
    if words.title or name not in titles:
        return words
    return words.model_copy(update={"title": titles[name]})


def _check_reading(file: ManifestSite | NpzSite, classes: Sequence[str]) -> None:
    """Raise DataError if the part ``reading`` names unknown classes or unfit columns."""
    unknown_classes = sorted(set(file.reading.classes) - set(classes))
    if unknown_classes:
        raise DataError(
            f"site {file.site}, field reading.classes",
            "Name the job's classes with --classes, or correct the site file.",
            expected=f"classes of the job ({listed(classes)})",
            found=", ".join(unknown_classes),
        )
    if isinstance(file, ManifestSite):
        _check_columns(file)


def _check_columns(file: ManifestSite) -> None:
    """Raise DataError if a column to be shown does not exist, or holds the answer."""
    header = read_header(file.manifest, file.site)
    missing_columns = [name for name in file.reading.columns if name not in header]
    if missing_columns:
        raise DataError(
            f"site {file.site}, field reading.columns",
            "Correct the site file.",
            expected=f"columns of the CSV ({', '.join(header):.500})",
            found=", ".join(missing_columns),
        )
    label = file.columns.label
    label_columns = label if isinstance(label, tuple) else (label,)
    shown_labels = [name for name in file.reading.columns if name in label_columns]
    if shown_labels:
        raise DataError(
            f"site {file.site}, field reading.columns",
            "Leave it out: readers would see the answer.",
            expected="columns that do not hold the label",
            found=", ".join(shown_labels),
        )


def _entries(file: ManifestSite, classes: Sequence[str], label_kind: LabelKind) -> list[Entry]:
    rows = read_rows(file, classes, label_kind)
    check_rejected(file, rows.rejected_or_missing, rows.total)
    return rows.entries


def _pictures_of_entries(entries: Sequence[Entry], file: ManifestSite) -> dict[str, _Picture]:
    """Return the pictures of the rows of a CSV, without those of volumes."""
    pictures = {}
    for entry in entries:
        if not is_volume(entry.path):
            pictures[entry.sample_id] = _Picture(
                open=partial(open_file, entry.path, Rendering(file.window)),
                levels=partial(levels_of, entry.path, site_window=file.window),
                in_window=partial(in_window, entry.path),
                group=entry.group,
                facts=_facts(entry, file),
            )
    return pictures


def _facts(entry: Entry, file: ManifestSite) -> _Facts:
    """Return the columns to show of a row that have a cell, in words for readers."""
    facts = []
    for column, title in file.reading.columns.items():
        cell = entry.cells[column]
        if cell:
            name = title or f"{column[:1].upper()}{column[1:].replace('_', ' ')}"
            facts.append((name, _WHOLE_NUMBER.sub(r"\1", cell)))
    return tuple(facts)


def _pictures_of_npz(file: NpzSite, label_kind: LabelKind) -> dict[str, _Picture]:
    """Return the site's pictures in an npz file, each of which is a group of its own."""
    pictures = {}
    for images, id_of in site_images(file, label_kind):
        for sample_id, image in zip(id_of.values(), images.read(id_of), strict=True):
            pictures[sample_id] = _Picture(
                open=partial(as_image, image),
                levels=levels_of_picture,
                in_window=None,
                group=sample_id,
            )
    return pictures


def _drawn(picture: _Picture, window: Window | None) -> Image.Image:
    """Return a picture in a window; in its own without one."""
    if window is None or picture.in_window is None:
        return picture.open()
    return picture.in_window(window)

"""Reads a site's CSV and folder of images: rows are checked, split by group, and decoded."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedward.errors import DataError
from fedward.labels import Label, strata
from fedward.sites.data import NO_LABEL_TO_EVALUATE, SPLITS, Decoded, Listed, Rejected, Row
from fedward.sites.decoding import BadRow
from fedward.sites.dicom_header import object_without_picture
from fedward.sites.hiding_windows import with_better_window
from fedward.sites.patient_names import PatientNames, patient_names
from fedward.sites.patient_words import is_called_patients
from fedward.sites.row_images import RowImages
from fedward.sites.site_file import ManifestSite, check_places
from fedward.sites.split import owners, parts_of_labelled_groups, split_named
from fedward.sites.subgroups import subgroup_of
from fedward.sites.table import Record, read_table
from fedward.sites.table_notes import cell_notes, encoding_note, group_notes, padded_note
from fedward.sites.written import read_label, words
from fedward.text import count

if TYPE_CHECKING:
    from fedward.label_kinds import LabelKind


@dataclass(frozen=True)
class _UsableRow:
    """A row that is usable, except that its image may be missing."""

    line: int
    """Its line in the CSV."""
    sample_id: str
    label: Label
    group: str
    """What it stays together with. A row without a group is one of its own, named by its id."""
    split: str
    """Empty where the CSV has no splits."""
    cells: Mapping[str, str]
    """The whole row, by column."""

    @property
    def labelled(self) -> bool:
        """Whether it has a label."""
        # A label is a number, or one for each class of a multi-label job; -1 is unknown.
        return bool(np.min(self.label) >= 0)

    def rejected(self, reason: str, *, counted: bool = True) -> Rejected:
        """Return the row as one that is not used."""
        return Rejected(self.line, self.sample_id, reason, counted)


@dataclass(frozen=True)
class Entry(_UsableRow):
    """A usable row whose image is there."""

    path: Path
    """Its image file, or the folder of a DICOM series."""


@dataclass(frozen=True)
class WithoutImage(_UsableRow):
    """A row that would be usable if its image were there."""

    missing: str
    """Why there is no image."""


class SiteRows(NamedTuple):
    """The rows of a site's CSV, which are checked without opening an image."""

    file: ManifestSite
    records: Sequence[Record]
    """Those that can be read, also of labels that the site file ignores."""
    images: RowImages
    usable: Sequence[Entry | WithoutImage]
    """In the order of the CSV."""
    rejected: Sequence[Rejected]
    """All others, but those that the site file ignores."""
    total: int
    """Rows that the site selects: usable and rejected ones, without those that do not count."""

    @property
    def entries(self) -> list[Entry]:
        """The usable rows whose images are there."""
        return [row for row in self.usable if isinstance(row, Entry)]

    @property
    def files(self) -> dict[str, Path]:
        """Sample id -> image file, or folder of a DICOM series, of the :attr:`entries`."""
        return {entry.sample_id: entry.path for entry in self.entries}

    @property
    def patients(self) -> dict[str, str]:
        """Sample id -> whose it is, of the :attr:`entries`; empty where nobody knows.

        It is so, too, where the column of groups is not called as one of patients.
        """
        if not is_called_patients(self.file.columns.group or ""):
            return dict.fromkeys(self.files, "")
        named = named_groups(self.records, self.file)
        return {entry.sample_id: named[entry.line] for entry in self.entries}

    @property
    def rejected_or_missing(self) -> list[Rejected]:
        """The rejected rows, and those whose images are missing, in the order of the CSV."""
        missing = [
            row.rejected(row.missing) for row in self.usable if isinstance(row, WithoutImage)
        ]
        return sorted([*self.rejected, *missing])


def load_images(rows: SiteRows, decode: Callable[[Sequence[Path]], Decoded]) -> Listed:
    """Divide a site's rows into splits, and read their images by ``decode``.

    Rows without a readable image still take part in the split, and are listed without images: if
    the file is repaired, no other image moves to another split.

    Raises:
        DataError: a group is in several splits.
    """
    file = rows.file
    usable = sorted(
        _with_splits(rows.usable, file), key=lambda row: (SPLITS.index(row.split), row.sample_id)
    )
    used = [row for row in usable if row.split == "train" or row.labelled]
    not_evaluable = [row for row in usable if row.split != "train" and not row.labelled]
    entries = [row for row in used if isinstance(row, Entry)]
    paths = [entry.path for entry in entries]
    decoded = decode(paths)
    reasons = with_better_window(decoded.failed, paths, file.rendering)
    rejected = [*rows.rejected, *_rejected_images(used, entries, reasons)]
    rejected.sort()
    rejected += [row.rejected(NO_LABEL_TO_EVALUATE, counted=False) for row in not_evaluable]
    parts_by_line = {entry.line: names for entry, names in zip(entries, decoded.parts, strict=True)}
    listed = [_listed_row(row, parts_by_line.get(row.line, []), file) for row in used]
    return Listed(listed, decoded.pixels, rejected, rows.total)


def _rejected_images(
    used: Sequence[Entry | WithoutImage], entries: Sequence[Entry], reasons: Mapping[int, str]
) -> list[Rejected]:
    """Return the rows whose image is missing or cannot be read.

    Args:
        used: rows that are used.
        entries: those whose images are there.
        reasons: index of an entry -> why its image cannot be read.
    """
    rejected = [row.rejected(row.missing) for row in used if isinstance(row, WithoutImage)]
    for index, reason in reasons.items():
        entry = entries[index]
        # Lists of an archive's export name its reports, too, which are no damaged images.
        has_picture = not object_without_picture(entry.path)
        rejected.append(entry.rejected(reason, counted=has_picture))
    return rejected


def _listed_row(row: Entry | WithoutImage, image_parts: Sequence[str], file: ManifestSite) -> Row:
    """Return a row with the suffixes of its images' ids."""
    subgroups = tuple(
        subgroup_of(row.cells[column], groups) for column, groups in file.subgroups.items()
    )
    return Row(row.sample_id, row.label, row.split, row.group, image_parts, subgroups)


def read_rows(file: ManifestSite, classes: Sequence[str], label_kind: "LabelKind") -> SiteRows:
    """Read the CSV and check every row, without opening an image.

    Raises:
        DataError: the CSV cannot be used at all; the selection is empty; or an image has several
            labels.
    """
    check_places(file)
    records, malformed = read_table(file.manifest, _named_columns(file), file.site)
    selected = _selected(records, file, label_kind)
    # Booleans are summed: how many of the rejected rows count.
    total = len(selected) + sum(row.counted for row in malformed)
    if not total:
        raise DataError(
            f"site {file.site}, {file.manifest} has no row that the site file selects",
            "Check 'ignore_labels' and the CSV.",
        )
    images = RowImages(file)
    group_of = named_groups(selected, file)
    reader = _RowReader(
        file,
        classes,
        label_kind,
        images,
        _split_column(selected, file),
        _owners(selected, group_of, file),
    )
    usable: list[Entry | WithoutImage] = []
    rejected = list(malformed)
    first_of_id: dict[str, Entry | WithoutImage] = {}
    for record in selected:
        try:
            row = reader.read(record)
            earlier = first_of_id.setdefault(row.sample_id, row)
            if earlier is not row and not _have_one_image(earlier, row):
                raise BadRow(f"expected a sample_id of its own, found that of line {earlier.line}")
        except BadRow as problem:
            sample_id = record.cells[file.columns.sample_id]
            rejected.append(Rejected(record.line, sample_id, str(problem)))
        else:
            usable.append(row)
    once, repeated = _each_image_once(usable, group_of, file)
    return SiteRows(file, records, images, once, rejected + repeated, total)


def _have_one_image(row: Entry | WithoutImage, other: Entry | WithoutImage) -> bool:
    """Return whether two rows name the same image, which is there."""
    return isinstance(row, Entry) and isinstance(other, Entry) and row.path == other.path


def _each_image_once(
    rows: Sequence[Entry | WithoutImage], group_of: Mapping[int, str], file: ManifestSite
) -> tuple[list[Entry | WithoutImage], list[Rejected]]:
    """Return the first row of each image, and the other rows as rejected ones.

    Rows that repeat another, perhaps with another id, do not count against ``max_rejected``.

    Args:
        rows: the usable ones.
        group_of: line of a row -> its group; empty: it has none.
        file: the site's.

    Raises:
        DataError: an image has several labels.
    """
    first_of: dict[Path, Entry] = {}
    rejected: list[Rejected] = []
    contradictions: list[str] = []
    for entry in rows:
        if not isinstance(entry, Entry):
            continue
        first = first_of.setdefault(entry.path, entry)
        if first is entry:
            continue
        same_image = f"the image of line {first.line}"
        if entry.label != first.label:
            contradictions.append(f"lines {first.line} and {entry.line}")
        elif (group_of[entry.line], entry.split) != (group_of[first.line], first.split):
            reason = f"expected an image of its own, found {same_image} with another group or split"
            rejected.append(entry.rejected(reason))
        else:
            rejected.append(entry.rejected(f"not used: it repeats {same_image}", counted=False))
    if contradictions:
        raise DataError(
            f"site {file.site}, {file.manifest}",
            "Leave one row of each image.",
            expected="one label for each image",
            found=f"{count(len(contradictions), 'row')} with another label: "
            f"{', '.join(contradictions[:5])}",
        )
    lines = {row.row for row in rejected}
    return [row for row in rows if row.line not in lines], rejected


def table_notes(rows: SiteRows, label_kind: "LabelKind") -> list[str]:
    """Return what a person should know of how a site's CSV is read; nothing if all is plain."""
    file = rows.file
    records = rows.records
    for record in records:
        with suppress(BadRow):
            rows.images.find(record)
    finder = rows.images.finder
    column = file.columns.label
    label_columns = column if isinstance(column, tuple) else (column or "",)
    notes = finder.notes()
    names = [*label_columns]
    for record in records:
        names += [record.cells[column] for column in (file.columns.image, *label_columns) if column]
    notes += encoding_note(file.manifest, names)
    notes += padded_note(records, label_columns)
    groups = _groups(records, file)
    notes += group_notes((record.cell(file.columns.group) for record in records), groups)
    if isinstance(column, tuple):
        notes += cell_notes(records, column, file.cell_rules, label_kind)
    # A CSV elsewhere may be one of several that list the images of a folder.
    if file.manifest.is_relative_to(file.folder):
        notes += finder.unlisted_notes()
    return notes


def _named_columns(file: ManifestSite) -> list[str]:
    """Return the columns that a site file names, beginning with that of the images' ids."""
    columns = file.columns
    labels = columns.label if isinstance(columns.label, tuple) else (columns.label,)
    names = [
        columns.sample_id,
        columns.image,
        *labels,
        columns.group,
        columns.split,
        *file.survey_columns,
        *file.subgroups,
    ]
    return [name for name in names if name is not None]


def listed_images(file: ManifestSite) -> int:
    """Return how many of the site's rows name an image that exists, whatever their labels.

    No image is opened.

    Raises:
        DataError: folder or CSV are missing; the CSV cannot be read or lacks a column; or more than
            the share ``max_rejected`` of the rows have no image. The text has the reason of the
            first.
    """
    check_places(file)
    records, _ = read_table(file.manifest, _named_columns(file), file.site)
    missing = []
    images = RowImages(file)
    for record in records:
        try:
            images.find(record)
        except BadRow as problem:
            missing.append(f"line {record.line}: {problem}")
    if len(missing) > file.max_rejected * len(records) or not records:
        found = f"{len(missing)} of {len(records)} that do not"
        if missing:
            found += f"; {missing[0]}"
        raise DataError(
            f"site {file.site}, {file.manifest}",
            "Fix the rows, or the field folder of the site file.",
            expected=f"rows whose images lie in {file.folder}",
            found=found,
        )
    return len(records) - len(missing)


def _selected(records: list[Record], file: ManifestSite, label_kind: "LabelKind") -> list[Record]:
    """Return the rows without a label that the site file ignores."""
    ignored = set(file.ignore_labels)
    return [
        record
        for record in records
        if not ignored.intersection(words(record, file.columns.label, label_kind, file.cell_rules))
    ]


def _split_column(records: Sequence[Record], file: ManifestSite) -> str | None:
    """Return the column of splits; None without one.

    A column that is called ``split`` is one without being named, unless all of it is empty.
    """
    if file.columns.split:
        return file.columns.split
    return "split" if any(record.cells.get("split") for record in records) else None


def named_groups(records: Sequence[Record], file: ManifestSite) -> dict[int, str]:
    """Return line of a row -> the patient or lesion that it names; empty where it names none."""
    lines = [record.line for record in records]
    return dict(zip(lines, _groups(records, file).of_rows, strict=True))


def _groups(records: Sequence[Record], file: ManifestSite) -> PatientNames:
    """Return the patients or lesions that rows name, each in one spelling."""
    return patient_names(
        [record.cell(file.columns.group) for record in records],
        [record.cell(file.columns.sample_id) for record in records],
    )


def _owners(
    records: Sequence[Record], group_of: Mapping[int, str], file: ManifestSite
) -> dict[int, str]:
    """Return line of a row -> what it stays together with (:func:`~.split.owners`)."""
    groups = [group_of[record.line] for record in records]
    ids = [record.cell(file.columns.sample_id) for record in records]
    lines = [record.line for record in records]
    return dict(zip(lines, owners(groups, ids), strict=True))


@dataclass(frozen=True)
class _RowReader:
    """How the rows of a site's CSV are read."""

    file: ManifestSite
    classes: Sequence[str]
    label_kind: "LabelKind"
    images: RowImages
    split_column: str | None
    """None: the CSV has no splits."""
    owner_of: Mapping[int, str]
    """Line of a row -> what it stays together with."""

    def read(self, record: Record) -> Entry | WithoutImage:
        """Return a row that is usable, perhaps but for its image.

        Raises:
            BadRow: it cannot be used.
        """
        file = self.file
        sample_id = record.cells[file.columns.sample_id]
        if not sample_id:
            raise BadRow("expected a sample_id, found none")
        label = read_label(
            record, file.columns.label, file.labels, self.classes, self.label_kind, file.cell_rules
        )
        row = _UsableRow(
            line=record.line,
            sample_id=sample_id,
            label=label,
            group=self.owner_of[record.line],
            split=self._split(record),
            cells=record.cells,
        )
        try:
            return Entry(**vars(row), path=self.images.find(record))
        except BadRow as problem:
            return WithoutImage(**vars(row), missing=str(problem))

    def _split(self, record: Record) -> str:
        """Return the split of a row; empty where the CSV has none."""
        if self.split_column is None:
            return ""
        cell = record.cells[self.split_column]
        split = split_named(cell)
        if not split:
            raise BadRow(
                f"expected train, val or test, found {cell!r} (rename cells of splits to these, "
                f"rename or drop the column {self.split_column}, or write columns: {{split: NAME}})"
            )
        return split


def _with_splits(
    rows: Sequence[Entry | WithoutImage], file: ManifestSite
) -> list[Entry | WithoutImage]:
    """Return the rows with a split each: that of the CSV, or one drawn by group."""
    # The CSV has a column of splits for all rows or for none.
    if rows and rows[0].split:
        _check_no_leak(rows, file)
        return list(rows)
    groups = [row.group for row in rows]
    labels = strata(np.array([row.label for row in rows], np.int64))
    train_share = max(1 - file.split.val - file.split.test, 0.0)
    shares = [train_share, file.split.val, file.split.test]
    parts = parts_of_labelled_groups(groups, labels, shares, file.split.seed)
    return [replace(row, split=SPLITS[part]) for row, part in zip(rows, parts, strict=True)]


def _check_no_leak(rows: Sequence[_UsableRow], file: ManifestSite) -> None:
    """Refuse a CSV that puts images of one group into several splits."""
    splits: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        splits[row.group].add(row.split)
    leaking = sorted(group for group in splits if len(splits[group]) > 1)
    if leaking:
        groups = ", ".join(leaking[:5])
        if len(leaking) > 5:
            groups += f" and {len(leaking) - 5} more"
        raise DataError(
            f"site {file.site}, {file.manifest}, column {file.columns.split or 'split'}",
            "Move each of these groups to one split: results on known patients say nothing about "
            "new ones. Case, blanks, signs and zeros before a number do not tell groups apart.",
            expected="each group in one split",
            found=f"groups in several: {groups}",
        )

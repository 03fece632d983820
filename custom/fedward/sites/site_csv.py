"""Reads a site's CSV and folder of images: rows are checked, split by group, and decoded."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedward.errors import DataError
from fedward.labels import Label, strata
from fedward.sites.data import NO_LABEL_TO_EVALUATE, SPLITS, Decoded, Listed, Rejected, Row
from fedward.sites.decoding import BadRow
from fedward.sites.dicom_header import object_without_picture
from fedward.sites.files import locate
from fedward.sites.hiding_windows import with_better_window
from fedward.sites.image_paths import ImageFinder
from fedward.sites.label_texts import known_or_empty
from fedward.sites.site_file import ManifestSite, check_places
from fedward.sites.split import parts_of_labelled_groups
from fedward.sites.subgroups import group_of
from fedward.sites.table import Record, read_table
from fedward.sites.table_notes import cell_notes, encoding_note, group_note, padded_note
from fedward.sites.written import read_label, words

if TYPE_CHECKING:
    from fedward.config import DataSpec
    from fedward.label_kinds import LabelKind


@dataclass(frozen=True)
class Entry:
    """A row that is usable, except that its image file may be missing."""

    line: int
    """Its line in the CSV."""
    sample_id: str
    path: Path
    missing: str
    """Why there is no file at this path; empty where there is one."""
    label: Label
    group: str
    """A row without one is a group of its own, named by its sample id."""
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


def load_manifest(
    file: ManifestSite, spec: "DataSpec", decode: Callable[[Sequence[Path]], Decoded]
) -> Listed:
    """Read a site's rows, and its images by ``decode``; see :func:`fedward.sites.load_site`."""
    entries, rejected, total = _entries(file, spec.classes, spec.label_kind)
    entries = _with_splits(entries, file)
    entries.sort(key=lambda entry: (SPLITS.index(entry.split), entry.sample_id))
    used = [entry for entry in entries if entry.split == "train" or entry.labelled]
    not_evaluable = [entry for entry in entries if entry.split != "train" and not entry.labelled]
    with_file = [entry for entry in used if not entry.missing]
    pixels, failed, parts = decode([entry.path for entry in with_file])
    problems = {entry.line: entry.missing for entry in used if entry.missing}
    """Line of a row that cannot be used -> why its image cannot be read."""
    paths = [entry.path for entry in with_file]
    for index, reason in with_better_window(failed, paths, file.rendering).items():
        problems[with_file[index].line] = reason
    for entry in used:
        if entry.line in problems:
            # Lists of an archive's export name its reports, too, which are no damaged images.
            has_picture = bool(entry.missing) or not object_without_picture(entry.path)
            rejected.append(entry.rejected(problems[entry.line], counted=has_picture))
    rejected.sort()
    rejected += [entry.rejected(NO_LABEL_TO_EVALUATE, counted=False) for entry in not_evaluable]
    # Rows without a readable file still took part in the split, and are listed here without images:
    # if the file is repaired, no other image moves to another split.
    parts_by_line = {entry.line: names for entry, names in zip(with_file, parts, strict=True)}
    rows = []
    for entry in used:
        image_parts = parts_by_line.get(entry.line, [])
        subgroups = tuple(
            group_of(entry.cells[column], groups) for column, groups in file.subgroups.items()
        )
        rows.append(
            Row(entry.sample_id, entry.label, entry.split, entry.group, image_parts, subgroups)
        )
    return Listed(rows, pixels, rejected, total)


def read_entries(
    file: ManifestSite, classes: Sequence[str], label_kind: "LabelKind"
) -> tuple[list[Entry], list[Rejected], int]:
    """Read the CSV and check every row, without opening an image.

    Returns:
        The usable rows, whose files exist; the rejected rows; and the number of rows that the site
        selects: both together, without rejected rows that do not count.

    Raises:
        DataError: the CSV cannot be used at all, or the selection is empty.
    """
    entries, rejected, total = _entries(file, classes, label_kind)
    rejected += [entry.rejected(entry.missing) for entry in entries if entry.missing]
    return [entry for entry in entries if not entry.missing], sorted(rejected), total


def _entries(
    file: ManifestSite, classes: Sequence[str], label_kind: "LabelKind"
) -> tuple[list[Entry], list[Rejected], int]:
    """Do as :func:`read_entries` does, but return rows without a file as usable rows."""
    check_places(file)
    columns = file.columns
    records, rejected = read_table(file.manifest, _named_columns(file), file.site)
    records = _selected(records, file, label_kind)
    # Booleans are summed: how many of the rejected rows count.
    total = len(records) + sum(row.counted for row in rejected)
    if not total:
        raise DataError(
            f"site {file.site}, {file.manifest} has no row that the site file selects",
            "Check 'ignore_labels' and the CSV.",
        )
    finder = _finder(file)
    entries: dict[str, Entry] = {}
    for record in records:
        try:
            entry = _read_entry(record, file, classes, label_kind, finder)
            earlier = entries.get(entry.sample_id)
            if earlier:
                raise BadRow(f"expected a sample_id of its own, found that of line {earlier.line}")
        except BadRow as problem:
            rejected.append(Rejected(record.line, record.cells[columns.sample_id], str(problem)))
        else:
            entries[entry.sample_id] = entry
    once, repeated = _each_image_once(list(entries.values()), file)
    return once, rejected + repeated, total


def _each_image_once(
    entries: list[Entry], file: ManifestSite
) -> tuple[list[Entry], list[Rejected]]:
    """Return the first row of each image, and the other rows as rejected ones.

    Rows that repeat another in everything but their id do not count against ``max_rejected``.

    Raises:
        DataError: an image has several labels.
    """
    first_of: dict[Path, Entry] = {}
    rejected: list[Rejected] = []
    contradictions: list[str] = []
    for entry in entries:
        if entry.missing:
            continue
        first = first_of.setdefault(entry.path, entry)
        if first is entry:
            continue
        same_image = f"the image of line {first.line}"
        if entry.label != first.label:
            contradictions.append(f"lines {first.line} and {entry.line}")
        elif _belongs_to(entry, file) != _belongs_to(first, file):
            reason = f"expected an image of its own, found {same_image} with another group or split"
            rejected.append(entry.rejected(reason))
        else:
            rejected.append(entry.rejected(f"not used: it repeats {same_image}", counted=False))
    if contradictions:
        raise DataError(
            f"site {file.site}, {file.manifest}",
            "Leave one row of each image.",
            expected="one label for each image",
            found=f"{len(contradictions)} rows that give an image another label: "
            f"{', '.join(contradictions[:5])}",
        )
    lines = {row.row for row in rejected}
    return [entry for entry in entries if entry.line not in lines], rejected


def _belongs_to(entry: Entry, file: ManifestSite) -> tuple[str, str]:
    """Return group and split of a row as its cells have them."""
    group = entry.cells[file.columns.group] if file.columns.group else ""
    return known_or_empty(group), entry.split


def _finder(file: ManifestSite) -> ImageFinder:
    return ImageFinder(file.folder, [file.prefix] if file.prefix else [])


def table_notes(file: ManifestSite, label_kind: "LabelKind") -> list[str]:
    """Return what a person should know of how a site's CSV is read; nothing if all is plain.

    Raises:
        DataError: as :func:`read_entries`.
    """
    records, _ = read_table(file.manifest, _named_columns(file), file.site)
    finder = _finder(file)
    for record in records:
        with suppress(BadRow):
            finder.find(record.cells[file.columns.image])
    column = file.columns.label
    label_columns = column if isinstance(column, tuple) else (column or "",)
    notes = finder.notes()
    names = [*label_columns]
    for record in records:
        names += [record.cells[column] for column in (file.columns.image, *label_columns) if column]
    notes += encoding_note(file.manifest, names)
    notes += padded_note(records, label_columns)
    notes += group_note(record.cell(file.columns.group) for record in records)
    if isinstance(column, tuple):
        notes += cell_notes(records, column, file.cell_rules, label_kind)
    # A CSV elsewhere may be one of several that list the images of a folder.
    if file.manifest.is_relative_to(file.folder):
        unlisted = finder.unlisted()
        if unlisted:
            notes.append(f"Images in {file.folder} that no row names: {unlisted}.")
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
    finder = _finder(file)
    for record in records:
        try:
            finder.find(record.cells[file.columns.image])
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


def _group(record: Record, file: ManifestSite) -> str:
    """Return the group of a row; a row without one is a group of its own."""
    return known_or_empty(record.cell(file.columns.group)) or record.cell(file.columns.sample_id)


def _read_entry(
    record: Record,
    file: ManifestSite,
    classes: Sequence[str],
    label_kind: "LabelKind",
    finder: ImageFinder,
) -> Entry:
    """Return a row as an entry.

    Raises:
        BadRow: the row cannot be used; a missing file is noted in the entry instead.
    """
    cells = record.cells
    columns = file.columns
    if not cells[columns.sample_id]:
        raise BadRow("expected a sample_id, found none")
    label = read_label(record, columns.label, file.labels, classes, label_kind, file.cell_rules)
    split = cells.get(columns.split or "split")
    if split is not None and split.lower() not in SPLITS:
        raise BadRow(f"expected a split among {', '.join(SPLITS)}, found {split!r}")
    try:
        path = locate(file.folder, finder.find(cells[columns.image]))
        missing = ""
    except BadRow as problem:
        path = file.folder
        missing = str(problem)
    return Entry(
        line=record.line,
        sample_id=cells[columns.sample_id],
        path=path,
        missing=missing,
        label=label,
        group=_group(record, file),
        split=(split or "").lower(),
        cells=cells,
    )


def _with_splits(entries: list[Entry], file: ManifestSite) -> list[Entry]:
    """Return the entries with a split each: that of the CSV, or one drawn by group."""
    # The CSV has a column of splits for all rows or for none.
    if entries and entries[0].split:
        _check_no_leak(entries, file)
        return entries
    groups = [entry.group for entry in entries]
    labels = strata(np.array([entry.label for entry in entries], np.int64))
    train_share = max(1 - file.split.val - file.split.test, 0.0)
    shares = [train_share, file.split.val, file.split.test]
    parts = parts_of_labelled_groups(groups, labels, shares, file.split.seed)
    return [replace(entry, split=SPLITS[part]) for entry, part in zip(entries, parts, strict=True)]


def _check_no_leak(entries: list[Entry], file: ManifestSite) -> None:
    """Refuse a CSV that puts images of one group into several splits."""
    splits: dict[str, set[str]] = defaultdict(set)
    for entry in entries:
        splits[entry.group].add(entry.split)
    leaking = sorted(group for group in splits if len(splits[group]) > 1)
    if leaking:
        groups = ", ".join(leaking[:5])
        if len(leaking) > 5:
            groups += f" and {len(leaking) - 5} more"
        raise DataError(
            f"site {file.site}, {file.manifest}, column {file.columns.split or 'split'}",
            "Move each of these groups to one split: results on known patients say nothing about "
            "new ones.",
            expected="each group in one split",
            found=f"groups in several: {groups}",
        )

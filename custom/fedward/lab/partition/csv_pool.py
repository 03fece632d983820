"""A pool that is a CSV and the images it lists, whatever it calls its columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fedward.errors import DataError, listed, option
from fedward.lab.partition.csv_columns import table_columns
from fedward.lab.partition.csv_groups import names_in, row_groups
from fedward.lab.partition.csv_rows import CsvRows, read_rows
from fedward.lab.partition.faults import Faults
from fedward.lab.partition.image_pool import ListedImage, image_pool, refuse_many
from fedward.lab.partition.label_choices import NO_CHOICES, LabelChoices
from fedward.lab.partition.label_columns import (
    RowLabels,
    labels_in_column,
    labels_in_columns,
)
from fedward.lab.partition.pool import ClassesError, Pool
from fedward.lab.partition.subgroup_columns import counted_columns, groups_of
from fedward.lab.row_groups import RowGroups
from fedward.sites.any_csv import read_image_list
from fedward.sites.data import Rejected
from fedward.sites.image_paths import ImageFinder
from fedward.sites.rendering import PLAIN, Rendering
from fedward.sites.table import Record
from fedward.sites.table_notes import encoding_note, group_notes
from fedward.text import composed, count


@dataclass(frozen=True)
class CsvOptions:
    """What a person says of a CSV of images; by default nothing, and it speaks for itself."""

    classes: Sequence[str] = ()
    """Those to use; empty: all."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Purpose (a key of :data:`fedward.sites.any_csv.WELL_KNOWN_COLUMNS`) -> name of the column.

    An empty name means that there is no such column. Other columns are found by well-known names.
    """
    findings: Sequence[str] = ()
    """Columns of 0 and 1, each for a finding or an exclusive class; empty: one has all labels."""
    subgroups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Column by which the sites count right answers -> its groups; none: its values."""
    choices: LabelChoices = NO_CHOICES
    """What labels mean that could mean several things."""
    prefix: str = ""
    """Start of the CSV's paths that stands for the folder of images; empty: none does."""
    rendering: Rendering = PLAIN
    """How files become images."""


NO_OPTIONS = CsvOptions()


@dataclass(frozen=True)
class _Table:
    """A CSV of images: its rows, and what its columns are for."""

    path: Path
    folder: Path
    """Of the images."""
    header: Sequence[str]
    """Names of all columns."""
    records: Sequence[Record]
    malformed: Sequence[Rejected]
    """Rows that cannot be read."""
    column_of: Mapping[str, str]
    """Purpose -> column; an empty name where there is none."""
    findings: Sequence[str]
    """Columns of 0 and 1, each for a class or a finding; empty: labels are in one column."""
    groups: RowGroups
    """What stays together."""
    counted: Mapping[str, Sequence[str]]
    """Column by which the sites count right answers -> its groups; none: its values."""

    @property
    def total(self) -> int:
        """Number of rows, malformed ones included."""
        return len(self.records) + len(self.malformed)

    @property
    def used_columns(self) -> frozenset[str]:
        """The columns with a purpose."""
        purposes = (*self.column_of.values(), *self.findings, *self.groups.further_columns)
        return frozenset((*purposes, *self.counted))

    def column_words(self) -> list[str]:
        """Return the words of the option ``columns`` that name the columns."""
        words = []
        for purpose, column in self.column_of.items():
            names = self.findings if purpose == "label" and self.findings else [column]
            words += [f"{purpose}={name}" for name in names if name]
        return words


def read_csv(path: Path, folder: Path, options: CsvOptions = NO_OPTIONS, *, faults: Faults) -> Pool:
    """Read a CSV as a pool.

    A cell of the image column names an image as :class:`fedward.sites.image_paths.ImageFinder` has
    it, and its id is by default its path. Rows without a usable image are left out if they are few,
    and rows that name a DICOM object without a picture however many they are.

    The data set is multi-label if a label contains ``|``, which separates findings, or if columns
    of 0 and 1 have several or no 1 in many rows.

    Args:
        path: of the CSV; see :func:`fedward.sites.table.read_table`.
        folder: of the images.
        options: what a person says of it.
        faults: gets what a person must decide, and the pool is by the likeliest decisions.

    Raises:
        ConfigError: an unknown purpose of a column, or a named column that the CSV does not have;
            or see :mod:`fedward.lab.partition.subgroup_columns`.
        DataError: the CSV cannot be read; it has no column of images or of labels; an image has
            several labels; more than 5 % of the rows cannot be used; or see
            :func:`fedward.lab.partition.image_pool.image_pool`.
    """
    table = _read_table(path, folder, options, faults)
    labels = _labels(table, options, faults)
    rows = _rows_with_images(table, labels, options.prefix, faults)
    with faults.noted():
        _refuse_contradictions(path, rows)
    encoding_notes = _encoding_notes(table, labels)
    has_images = False
    with faults.noted():
        remedy = " ".join([_remedy(table, rows.finder), *encoding_notes])
        # Where all are left out, it does not matter that nothing is wrong with some of them.
        unusable = rows.unusable_rows() if rows.images else rows.left_out_rows()
        refuse_many(f"{path}", unusable, table.total, remedy)
        has_images = True
    # What must be decided leaves a pool. Without images there is none that says anything.
    if not has_images:
        faults.refuse()
    notes = [
        f"Columns: {' '.join(table.column_words())}.",
        *encoding_notes,
        # Which images no row names is found by a search, whose gaps the finder notes.
        *rows.finder.unlisted_notes(),
        *rows.finder.notes(),
        *labels.notes,
        *_group_notes(table, rows),
    ]
    pool: Pool | None = None
    with faults.noted_unless(ClassesError):
        pool = image_pool(
            name=_name(path),
            folder=folder,
            images=_images(table, rows),
            classes=options.classes,
            columns=_further_columns(table, rows),
            rendering=options.rendering,
            notes=notes,
            label_kind=labels.label_kind,
        )
    if pool is None:
        raise faults.together()
    groups = groups_of(table.counted, pool.columns, faults)
    left_out = (*rows.left_out_rows(), *pool.left_out)
    return replace(pool, used_columns=table.used_columns, subgroups=groups, left_out=left_out)


def _read_table(path: Path, folder: Path, options: CsvOptions, faults: Faults) -> _Table:
    """Return a CSV with what its columns are for; faults are columns that must be named.

    Raises:
        ConfigError: an unknown purpose of a column.
        DataError: the CSV cannot be read, or has no row.
        FedwardError: all faults, if it is not even likely which columns hold images and labels.
    """
    records, malformed, header = read_image_list(path)
    if not records and not malformed:
        raise DataError(
            f"{path}", "Name another CSV, or add rows.", expected="rows of images", found="no row"
        )
    columns = table_columns(
        path,
        folder,
        header,
        records,
        named=options.columns,
        findings=options.findings,
        needs_labels=not options.classes,
        faults=faults,
    )
    counted = counted_columns(options.subgroups, header, columns.of, faults)
    if not columns.readable:
        # Without images or labels there is no pool that says anything.
        raise faults.together()
    return _Table(
        path,
        folder,
        header,
        records,
        malformed,
        column_of=columns.of,
        findings=columns.findings,
        groups=row_groups(
            records, columns.of["group"], columns.further_groups, columns.of["sample_id"]
        ),
        counted=counted,
    )


def _labels(table: _Table, options: CsvOptions, faults: Faults) -> RowLabels:
    """Return the labels of the rows; faults are what a person must decide of them."""
    if table.findings:
        return labels_in_columns(table.path, table.records, table.findings, options.choices, faults)
    return labels_in_column(
        table.path,
        table.records,
        table.column_of["label"],
        options.choices,
        options.classes,
        faults,
    )


def _rows_with_images(table: _Table, labels: RowLabels, prefix: str, faults: Faults) -> CsvRows:
    """Return the rows of a CSV with their images.

    If no row can be used, but a prefix of their paths may stand for the folder, that is a fault.
    The rows are read with this prefix then: what else must be decided shows once images are found.
    """
    rows = _rows(table, labels, prefix)
    likely_prefix = rows.finder.likely_prefix()
    none_is_usable = len(rows.problems) == table.total
    if not none_is_usable or not likely_prefix:
        return rows
    with faults.noted(prefix=likely_prefix):
        remedy = _remedy(table, rows.finder)
        refuse_many(f"{table.path}", rows.unusable_rows(), table.total, remedy)
    return _rows(table, labels, likely_prefix)


def _rows(table: _Table, labels: RowLabels, prefix: str) -> CsvRows:
    """Return the rows of a CSV, whose images are sought with a prefix; empty: without."""
    return read_rows(
        table.folder,
        prefix,
        table.records,
        table.malformed,
        table.column_of,
        labels,
        table.groups.of_rows,
    )


def _refuse_contradictions(path: Path, rows: CsvRows) -> None:
    """Raise DataError if an image has several labels."""
    if rows.contradictions:
        raise DataError(
            f"{path}",
            "Leave one row of each image. If an image may show several findings, write them into "
            "one cell with | between them.",
            expected="one label for each image",
            found=f"{count(len(rows.contradictions), 'row')} with another label, as "
            f"{'; '.join(rows.contradictions[:3])}",
        )


def _remedy(table: _Table, finder: ImageFinder) -> str:
    """Return what to do where too many rows cannot be used."""
    prefix = finder.likely_prefix()
    what_to_fix = (
        f"the rows, name the images' folder with {option('images')}, or other columns than these: "
        f"{option('columns', *table.column_words())}."
    )
    if not prefix:
        return f"Fix {what_to_fix}"
    return (
        f"If {prefix} stands for {table.folder}, say so: {option('prefix', prefix)}. Otherwise fix "
        f"{what_to_fix}"
    )


def _encoding_notes(table: _Table, labels: RowLabels) -> list[str]:
    """Return a note of letters that may be wrong, as the CSV's encoding is guessed."""
    image_cells = [record.cells[table.column_of["image"]] for record in table.records]
    return encoding_note(table.path, [*table.header, *labels.texts.values(), *image_cells])


def _group_notes(table: _Table, rows: CsvRows) -> list[str]:
    """Return notes of the names of groups, and of rows with one by other columns."""
    column = table.column_of["group"]
    if not column:
        return []
    cells = []
    by_others = 0
    named = names_in(rows.records, column, table.column_of["sample_id"])
    for record, name in zip(rows.records, named.of_rows, strict=True):
        cell = record.cells[column]
        is_grouped = bool(table.groups.of_rows[record.line])
        if is_grouped and not name:
            by_others += 1
            continue
        cells.append(cell)
    notes = group_notes(cells, named)
    if by_others:
        others = listed(table.groups.further_columns)
        notes.append(f"Rows without {column} that stay together by {others}: {by_others}.")
    return notes


def _name(path: Path) -> str:
    """Return the name of a data set: a file ``manifest.csv`` is called after its folder."""
    return path.resolve().parent.name if path.stem == "manifest" else path.stem


def _images(table: _Table, rows: CsvRows) -> list[ListedImage]:
    """Return the images of the rows that are used, with their cells of subgroups."""
    images = []
    for image, record in zip(rows.images.values(), rows.records, strict=True):
        images.append(replace(image, further={name: record.cells[name] for name in table.counted}))
    return images


def _further_columns(table: _Table, rows: CsvRows) -> dict[str, list[str]]:
    """Return name -> cells of the rows that are used, of all columns that have a name."""
    return {
        name: [composed(record.cells[name]) for record in rows.records]
        for name in table.header
        if name
    }

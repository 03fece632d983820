"""A pool that is a CSV and the images it lists, whatever it calls its columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from fedward.errors import DataError, option
from fedward.lab.partition.csv_columns import table_columns
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
from fedward.sites.any_csv import read_image_list
from fedward.sites.data import Rejected
from fedward.sites.decoding import BadRow
from fedward.sites.files import LeftOut
from fedward.sites.image_paths import ImageFinder, NoImage
from fedward.sites.label_texts import known_or_empty
from fedward.sites.rendering import PLAIN, Rendering
from fedward.sites.split import SPLIT_NAMES
from fedward.sites.table import Record
from fedward.sites.table_notes import encoding_note, group_note

_LINES_NAMED = 20
"""Lines that are left out and that a note names at most."""


@dataclass
class _Rows:
    """The rows of a CSV, by what becomes of them."""

    images: dict[str, ListedImage] = field(default_factory=dict)
    """Sample id -> image of a row that is used."""
    records: list[Record] = field(default_factory=list)
    """The rows that are used, in the same order."""
    by_path: dict[str, ListedImage] = field(default_factory=dict)
    """Path -> image of a row that is used."""
    lines: dict[str, int] = field(default_factory=dict)
    """Path of an image -> line of the row that is used."""
    left_out: LeftOut = field(default_factory=LeftOut)
    """The DICOM objects without a picture that rows name, such as reports."""
    repeats: int = 0
    """Rows that say of an image what an earlier row says."""
    without_image: int = 0
    decided: list[int] = field(default_factory=list)
    """Lines of rows that are left out because a person has decided so."""
    problems: dict[int, str] = field(default_factory=dict)
    """Line of any other row -> why it cannot be used, as it may have no image."""
    contradictions: list[str] = field(default_factory=list)
    """Rows that give an image another label than an earlier row."""

    def read(
        self,
        record: Record,
        column_of: Mapping[str, str],
        labels: RowLabels,
        finder: ImageFinder,
    ) -> None:
        """Use a row, or note why it cannot be used."""
        if record.line in labels.left_out:
            self.decided.append(record.line)
            return
        try:
            image = _listed_image(record, column_of, labels, finder)
            # The list of an archive's export names its reports, too, which are no damaged images.
            if not self.left_out.add_object(finder.folder / image.image):
                self.add(record, image)
        except BadRow as problem:
            self.without_image += isinstance(problem, NoImage)
            self.problems[record.line] = str(problem)

    def add(self, record: Record, image: ListedImage) -> None:
        """Use a row, unless its image or id is that of an earlier one.

        Raises:
            BadRow: another image has its id, or the row contradicts an earlier one of its image.
        """
        earlier = self.by_path.get(image.image)
        if earlier is None:
            if image.sample_id in self.images:
                raise BadRow(f"another row has the id {image.sample_id!r}")
            self.images[image.sample_id] = image
            self.records.append(record)
            self.by_path[image.image] = image
            self.lines[image.image] = record.line
            return
        line = self.lines[image.image]
        if image.label != earlier.label:
            self.contradictions.append(
                f"{image.image} is {earlier.label or 'unlabelled'} in line {line} and "
                f"{image.label or 'unlabelled'} in line {record.line}"
            )
        elif (image.group, image.split) != (earlier.group, earlier.split):
            raise BadRow(f"line {line} has the same image with another group or split")
        else:
            self.repeats += 1

    def texts(self) -> list[str]:
        """Return why lines cannot be used."""
        return [f"line {line}: {reason}" for line, reason in self.problems.items()]

    def lines_note(self) -> list[str]:
        """Return a note of the lines that are left out; empty for fewer than two."""
        left_out = sorted((*self.problems, *self.decided))
        if len(left_out) < 2:
            return []
        lines = ", ".join(map(str, left_out[:_LINES_NAMED]))
        more = ", ..." if len(left_out) > _LINES_NAMED else ""
        return [f"Lines that are left out: {lines}{more}."]

    def note(self, total: int) -> str:
        """Return how many rows there are, and what became of them."""
        parts = {
            "used": len(self.images),
            "without a picture": self.left_out.total,
            "without an image": self.without_image,
            "otherwise unusable": len(self.problems) - self.without_image,
            "with none or several of the classes, left out": len(self.decided),
            "repeating another row": self.repeats,
        }
        counts = [f"{number} {name}" for name, number in parts.items() if number or name == "used"]
        return f"Rows: {total}; {', '.join(counts)}."


def read_csv(  # noqa: PLR0913 - each is an option of the command
    path: Path,
    folder: Path,
    classes: Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
    rendering: Rendering = PLAIN,
    findings: Sequence[str] = (),
    choices: LabelChoices = NO_CHOICES,
    prefix: str = "",
    *,
    subgroups: Mapping[str, Sequence[str]] = MappingProxyType({}),
    faults: Faults | None = None,
) -> Pool:
    """Read a CSV as a pool.

    A cell of the image column names an image as :class:`fedward.sites.image_paths.ImageFinder` has
    it. Rows without a usable image are left out if they are few, and rows that name a DICOM object
    without a picture however many they are. An image's id is by default its
    path. The data set is multi-label if a label contains ``|``, which separates findings, or if
    columns of 0 and 1 have several or no 1 in many rows.

    Args:
        path: of the CSV; see :func:`fedward.sites.table.read_table`.
        folder: of the images.
        classes: those to use; empty: all.
        columns: purpose (a key of :data:`fedward.sites.any_csv.WELL_KNOWN_COLUMNS`) -> name of
            the column; an empty name means that there is no such column. Other columns are found by
            well-known names.
        rendering: how files become images.
        findings: columns of 0 and 1, each for a finding or an exclusive class; empty: labels are in
            one column.
        choices: what labels mean that could mean several things.
        prefix: start of the CSV's paths that stands for the folder; empty: none does.
        subgroups: column by which the sites count right answers -> its groups; none: its values.
        faults: gets what a person must decide, and the pool is by the likeliest decisions; None:
            it is raised.

    Raises:
        ConfigError: an unknown purpose of a column, or a named column that the CSV does not have;
            or see :mod:`fedward.lab.partition.subgroup_columns`.
        DataError: the CSV cannot be read; it has no column of images or of labels; a label must be
            decided; an image has several labels; more than 5 % of the rows cannot be used; or see
            :func:`fedward.lab.partition.image_pool.image_pool`. The text has all that is wrong.
    """
    noted = faults or Faults()
    records, malformed, header = read_image_list(path)
    if not records and not malformed:
        raise DataError(
            f"{path}", "Name another CSV, or add rows.", expected="rows of images", found="no row"
        )
    needs_labels = not classes
    column_of, findings, readable = table_columns(
        path, folder, header, records, columns or {}, findings, needs_labels, noted
    )
    counted = counted_columns(subgroups, header, column_of, noted)
    if not readable:
        # Without images or labels there is no pool that says anything.
        raise noted.together()
    if findings:
        labels = labels_in_columns(path, records, findings, choices, noted)
    else:
        labels = labels_in_column(path, records, column_of["label"], choices, classes, noted)
    rows, finder = _read_rows(folder, prefix, records, malformed, column_of, labels)
    total = len(records) + len(malformed)
    used_columns = _arguments(column_of, findings)
    if len(rows.problems) == total and finder.likely_prefix():
        # What else must be decided shows once the images are found.
        prefix = finder.likely_prefix()
        remedy = _remedy(finder, folder, used_columns)
        with noted.noted(prefix=prefix):
            refuse_many(f"{path}", rows.texts(), total, remedy)
        rows, finder = _read_rows(folder, prefix, records, malformed, column_of, labels)
    with noted.noted():
        _refuse_contradictions(path, rows)
    image_cells = [record.cells[column_of["image"]] for record in records]
    encoding_notes = encoding_note(path, [*header, *labels.texts.values(), *image_cells])
    notes = [f"Columns: {' '.join(used_columns)}.", rows.note(total), *encoding_notes]
    has_images = False
    with noted.noted():
        remedy = " ".join([_remedy(finder, folder, used_columns), *encoding_notes])
        notes += refuse_many(f"{path}", rows.texts(), total, remedy)
        has_images = True
    # What must be decided leaves a pool. Without images there is none that says anything.
    if faults is None or not has_images:
        noted.refuse()
    notes += [*rows.lines_note(), *rows.left_out.notes(), *finder.notes(), *labels.notes]
    if column_of["group"]:
        notes += group_note(record.cells[column_of["group"]] for record in rows.records)
    unlisted = finder.unlisted()
    if unlisted:
        notes.append(f"Images in {folder} that no row names: {unlisted}.")
    images = []
    for image, record in zip(rows.images.values(), rows.records, strict=True):
        images.append(replace(image, further={name: record.cells[name] for name in counted}))
    pool: Pool | None = None
    with noted.noted_unless(ClassesError):
        pool = image_pool(
            name=path.resolve().parent.name if path.stem == "manifest" else path.stem,
            folder=folder,
            images=images,
            classes=classes,
            columns={
                name: [record.cells[name] for record in rows.records] for name in header if name
            },
            rendering=rendering,
            notes=notes,
            label_kind=labels.label_kind,
        )
    used = frozenset((*column_of.values(), *findings, *counted))
    return replace(_with_groups(pool, counted, noted, faults is None), used_columns=used)


def _with_groups(
    pool: Pool | None, counted: Mapping[str, Sequence[str]], noted: Faults, refuses: bool
) -> Pool:
    """Return a pool with the groups of its columns of subgroups.

    Args:
        pool: of the rows; None: what was noted lets none be made.
        counted: column -> its groups as they are wanted.
        noted: gets groups that cannot be.
        refuses: whether what was noted is raised.
    """
    if pool is None:
        raise noted.together()
    groups = groups_of(counted, pool.columns, noted)
    if refuses:
        noted.refuse()
    return replace(pool, subgroups=groups)


def _read_rows(
    folder: Path,
    prefix: str,
    records: Sequence[Record],
    malformed: Sequence[Rejected],
    column_of: Mapping[str, str],
    labels: RowLabels,
) -> tuple[_Rows, ImageFinder]:
    """Return the rows of a CSV, and what has found their images."""
    finder = ImageFinder(folder, [prefix] if prefix else [])
    rows = _Rows(problems={row.row: row.reason for row in malformed})
    for record in records:
        rows.read(record, column_of, labels, finder)
    return rows, finder


def _refuse_contradictions(path: Path, rows: _Rows) -> None:
    """Raise DataError if an image has several labels."""
    if rows.contradictions:
        raise DataError(
            f"{path}",
            "Leave one row of each image. If an image may show several findings, write them into "
            "one cell with | between them.",
            expected="one label for each image",
            found=f"{len(rows.contradictions)} rows with another label, as "
            f"{'; '.join(rows.contradictions[:3])}",
        )


def _remedy(finder: ImageFinder, folder: Path, used_columns: Sequence[str]) -> str:
    """Return what to do where too many rows cannot be used."""
    prefix = finder.likely_prefix()
    start = ""
    if prefix:
        start = f"If {prefix} stands for {folder}, say so: {option('prefix', prefix)}. Otherwise "
    remedy = (
        f"fix the rows, name the images' folder with {option('images')}, or other columns than "
        f"these: {option('columns', *used_columns)}."
    )
    return f"{start}{remedy}" if start else f"{remedy[0].upper()}{remedy[1:]}"


def _arguments(column_of: Mapping[str, str], findings: Sequence[str]) -> list[str]:
    """Return the words of the option ``columns`` that name the columns."""
    arguments = []
    for purpose, column in column_of.items():
        names = findings if purpose == "label" and findings else [column]
        arguments += [f"{purpose}={name}" for name in names if name]
    return arguments


def _listed_image(
    record: Record, column_of: Mapping[str, str], labels: RowLabels, finder: ImageFinder
) -> ListedImage:
    """Return the image of a row; BadRow if its image, label or split cannot be used."""
    cell = {purpose: record.cells[name] if name else "" for purpose, name in column_of.items()}
    path = finder.find(cell["image"])
    split = SPLIT_NAMES.get(cell["split"].lower(), "")
    if column_of["split"] and not split:
        raise BadRow(
            f"expected train, val or test, found {cell['split']!r} "
            f"({option('columns', {'split': ''})} makes new splits)"
        )
    if record.line in labels.problems:
        raise BadRow(labels.problems[record.line])
    return ListedImage(
        sample_id=cell["sample_id"] or path,
        image=path,
        label=labels.texts[record.line],
        group=known_or_empty(cell["group"]),
        split=split,
    )

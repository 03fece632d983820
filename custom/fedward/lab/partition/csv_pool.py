"""A pool that is a CSV and the images it lists, whatever it calls its columns."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from fedward.errors import DataError
from fedward.lab.partition.image_pool import SPLIT_NAMES, ListedImage, image_pool, refuse_many
from fedward.lab.partition.pool import Pool
from fedward.label_kinds import SEVERAL_LABELS, kind_of_field
from fedward.labels import SEPARATOR
from fedward.sites.any_csv import (
    ImageFinder,
    column_names,
    columns_by_purpose,
    read_image_list,
)
from fedward.sites.decoding import BadRow
from fedward.sites.rendering import PLAIN, Rendering
from fedward.sites.table import Record
from fedward.sites.written import check_columns, words


def read_csv(
    path: Path,
    folder: Path,
    classes: Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
    rendering: Rendering = PLAIN,
    findings: Sequence[str] = (),
) -> Pool:
    """Read a CSV as a pool.

    A cell of the image column is a relative path in the folder, or the name of a file anywhere
    below it, with or without its ending. Rows without a usable image are left out if they are few.
    An image's id is by default its path. The data set is multi-label if a label contains ``|``,
    which separates findings, or if each finding has a column of its own.

    Args:
        path: of the CSV; see :func:`fedward.sites.table.read_table`.
        folder: of the images.
        classes: those to use; empty: all.
        columns: purpose (a key of :data:`fedward.sites.any_csv.WELL_KNOWN_COLUMNS`) -> name of
            the column; an empty name means that there is no such column. Other columns are found by
            well-known names.
        rendering: how files become images.
        findings: columns of 0 and 1, each for a finding; empty: labels are in one column.

    Raises:
        ConfigError: an unknown purpose of a column, or a named column that the CSV does not have.
        DataError: the CSV cannot be read; it has no column of images or of labels; more than 5 % of
            the rows cannot be used; or see :func:`fedward.lab.partition.image_pool.image_pool`.
    """
    named = columns or {}
    records, malformed, header = read_image_list(path)
    column_of = columns_by_purpose(path, header, named, findings)
    if not (column_of["label"] or findings or classes or "label" in named):
        raise DataError(
            f"{path}",
            "Name it, as in --columns label=NAME. "
            "If each finding has a column of 0 and 1, name all: label=A label=B.",
            expected="a column of labels",
            found=column_names(header),
        )
    problems = [f"line {row.row}: {row.reason}" for row in malformed]
    finder = ImageFinder(folder)
    images: dict[str, ListedImage] = {}
    usable: list[Record] = []
    for record in records:
        try:
            image = _listed_image(record, column_of, finder, findings)
            if image.sample_id in images:
                raise BadRow(f"another row has the id {image.sample_id!r}")
        except BadRow as problem:
            problems.append(f"line {record.line}: {problem}")
        else:
            images[image.sample_id] = image
            usable.append(record)
    used_columns = _arguments(column_of, findings)
    notes = [f"Columns: {used_columns}."]
    notes += refuse_many(
        f"{path}",
        problems,
        len(records) + len(malformed),
        "Fix the rows, name the images' folder with --images, "
        f"or other columns than these: --columns {used_columns}.",
    )
    return image_pool(
        name=path.resolve().parent.name if path.stem == "manifest" else path.stem,
        folder=folder,
        images=list(images.values()),
        classes=classes,
        columns={name: [record.cells[name] for record in usable] for name in header if name},
        rendering=rendering,
        notes=notes,
        label_kind=kind_of_field(
            bool(findings) or any(SEPARATOR in image.label for image in images.values())
        ),
    )


def _arguments(column_of: Mapping[str, str], findings: Sequence[str]) -> str:
    """Return the columns as the arguments of ``--columns`` that name them."""
    arguments = []
    for purpose, column in column_of.items():
        names = findings if purpose == "label" and findings else [column]
        arguments += [f"{purpose}={name}" for name in names if name]
    return " ".join(arguments)


def _listed_image(
    record: Record, column_of: Mapping[str, str], finder: ImageFinder, findings: Sequence[str]
) -> ListedImage:
    """Return the image of a row; BadRow if its image, label or split cannot be used."""
    cell = {purpose: record.cells[name] if name else "" for purpose, name in column_of.items()}
    split = SPLIT_NAMES.get(cell["split"].lower(), "")
    if column_of["split"] and not split:
        raise BadRow(
            f"expected train, val or test, found {cell['split']!r} "
            "(--columns split= makes new splits)"
        )
    label = cell["label"]
    if findings:
        check_columns(record, findings)
        label = SEPARATOR.join(words(record, tuple(findings), SEVERAL_LABELS))
    path = finder.find(cell["image"])
    return ListedImage(cell["sample_id"] or path, path, label, cell["group"], split)

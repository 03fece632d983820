"""What the columns of a CSV of images are for, and the likeliest ones where nobody has said so."""

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from fedward.errors import DataError, listed, most_like, option
from fedward.lab.partition.csv_groups import row_groups
from fedward.lab.partition.faults import PLACEHOLDER, Decision, Faults
from fedward.lab.partition.label_columns import label_columns
from fedward.sites.any_csv import (
    columns_of_groups,
    further_columns,
    missing_columns,
    no_image_column,
    well_known_columns,
)
from fedward.sites.image_columns import likely_column, likely_image
from fedward.sites.image_paths import spelt_parts
from fedward.sites.label_texts import known_or_empty, without_accents
from fedward.sites.patient_words import ATTRIBUTE_WORDS
from fedward.sites.split import owners
from fedward.sites.table import Record
from fedward.sites.unused_columns import like_patients, torn_patients
from fedward.text import composed

_MOST_CLASSES = 30
"""Different values that a column of labels has at most, to be recognised as one."""
_WORDS_OF_LABELS = frozenset(
    {
        "label",
        "labels",
        "etikett",
        "etiquette",
        "etiqueta",
        "etichetta",
        "diagnose",
        "diagnosis",
        "diagnostic",
        "diagnostico",
        "diagnosi",
        "befund",
        "finding",
        "resultat",
        "result",
        "class",
        "klasse",
        "classe",
        "clase",
        "category",
        "kategorie",
        "categorie",
        "categoria",
        "pathology",
        "pathologie",
        "histology",
        "histologie",
        "outcome",
    }
)
"""Words, without accents, by which a column of labels is named in some languages."""


class TableColumns(NamedTuple):
    """The columns of a CSV of images."""

    of: dict[str, str]
    """Purpose (a key of :data:`fedward.sites.any_csv.WELL_KNOWN_COLUMNS`) -> column; an empty name
    where there is none.
    """
    findings: Sequence[str]
    """Columns of 0 and 1, each for a class or a finding; empty: labels are in one column."""
    further_groups: Sequence[str]
    """Columns that say what stays together where that of the groups has an empty cell."""
    readable: bool
    """Whether it is known or likely which columns hold images and labels."""


def table_columns(
    path: Path,
    folder: Path,
    header: Sequence[str],
    records: Sequence[Record],
    named: Mapping[str, str],
    findings: Sequence[str],
    needs_labels: bool,
    faults: Faults,
) -> TableColumns:
    """Return what the columns of a CSV are for.

    Args:
        path: of the CSV, for errors.
        folder: of the images.
        header: names of all columns.
        records: all rows.
        named: purpose -> column as the user named it; an empty name: there is no such column.
        findings: columns of 0 and 1 that the user named.
        needs_labels: whether there must be a column of labels, unless the user named none.
        faults: gets columns that must be named, each with the likeliest one, which is then used.

    Raises:
        ConfigError: see :func:`fedward.sites.any_csv.well_known_columns`.
    """
    column_of = well_known_columns(header, named, findings)
    findings = _present_columns(folder, header, records, column_of, findings, faults)
    if not column_of["image"] and not named.get("image"):
        column_of["image"] = likely_image(folder, header, records, set(column_of.values()))
        image = column_of["image"] or PLACEHOLDER
        faults.note(no_image_column(path, header), columns={"image": image})
    for purpose in ("label", "image"):
        with faults.noted(columns={purpose: column_of[purpose]}):
            _require_one_meaning(path, records, column_of, named, header, purpose)
    has_labels = bool(column_of["label"] or findings or not needs_labels)
    if not has_labels and "label" not in named:
        findings = _found_findings(path, header, records, column_of, faults)
        has_labels = bool(column_of["label"] or findings)
    elif named.get("label") == "":
        has_labels = True
    readable = bool(column_of["image"]) and has_labels and PLACEHOLDER not in findings
    further_groups: list[str] = []
    if "group" not in named:
        used = {*column_of.values(), *findings}
        further_groups = [name for name in columns_of_groups(header) if name not in used]
        patients = _torn_patients(header, records, column_of, used, further_groups)
        if patients:
            faults.note(
                _undecided_patients(path, patients, column_of["group"]),
                columns={"group": patients[0]},
            )
            column_of["group"] = patients[0]
            further_groups = [name for name in further_groups if name != patients[0]]
    return TableColumns(column_of, findings, further_groups, readable)


def _torn_patients(
    header: Sequence[str],
    records: Sequence[Record],
    column_of: Mapping[str, str],
    used: Collection[str],
    further_groups: Sequence[str],
) -> list[str]:
    """Return the columns of patients whose images would not stay together."""
    group_of = row_groups(records, column_of["group"], further_groups).of_rows
    images = [record.cells.get(column_of["image"], "") for record in records]
    return torn_patients(
        {name: [record.cells[name] for record in records] for name in header if name},
        used,
        owners([group_of[record.line] for record in records], images),
    )


def _undecided_patients(path: Path, patients: Sequence[str], group: str) -> DataError:
    """Return the error that a person must say whether a column names patients.

    Otherwise images of one patient would be in training and in test, and no number would show it.

    Args:
        path: of the CSV.
        patients: columns that are called as those of patients.
        group: the column by which images would stay together; empty: there is none.
    """
    return DataError(
        f"{path}",
        "Images of one patient must not be in training and in test. If it names patients, say so: "
        f"{option('columns', {'group': patients[0]})}. If not, say what stays together, or "
        f"nothing: {option('columns', {'group': group})}.",
        expected="the column of patients to be named, or declined",
        found=f"{listed(patients)}, whose images would not stay together",
    )


def _present_columns(
    folder: Path,
    header: Sequence[str],
    records: Sequence[Record],
    column_of: dict[str, str],
    findings: Sequence[str],
    faults: Faults,
) -> Sequence[str]:
    """Return the columns of findings, and put the likeliest ones for all that the CSV lacks.

    A single fault names these.
    """
    error = missing_columns(header, [*column_of.values(), *findings])
    if not error:
        return findings
    present = {name for name in (*column_of.values(), *findings) if name in header}
    likely: dict[str, str] = {}
    for purpose, name in column_of.items():
        if name and name not in header:
            column = likely_column(purpose, name, folder, header, records, present)
            likely[purpose] = column or PLACEHOLDER
            column_of[purpose] = column
    if "label" in likely and not column_of["label"]:
        used = {*present, *column_of.values()}
        column_of["label"] = _likely_label(_columns_like_labels(header, records, used))
        likely["label"] = column_of["label"] or PLACEHOLDER
    decisions: dict[str, Decision] = {"columns": likely} if likely else {}
    corrected = [
        name if name in header else most_like(name, header) or PLACEHOLDER for name in findings
    ]
    if corrected != list(findings):
        decisions["findings"] = corrected
    faults.note(error, **decisions)
    return corrected


def _likely_label(like_labels: Sequence[str]) -> str:
    """Return the first column that a word calls labels, or else the only one that may be classes.

    The name is empty if there is no such column, or if there are several without such a word.

    Args:
        like_labels: see :func:`_columns_like_labels`.
    """
    called_labels = [name for name in like_labels if _is_called_labels(name)]
    if called_labels:
        return called_labels[0]
    return like_labels[0] if len(like_labels) == 1 else ""


def _is_called_labels(name: str) -> bool:
    """Return whether a word in a column's name is one for labels."""
    return not _words(name).isdisjoint(_WORDS_OF_LABELS)


def _columns_like_labels(
    header: Sequence[str], records: Sequence[Record], used: Collection[str]
) -> list[str]:
    """Return the columns whose cells may be classes: few values, which images share."""
    cells = {
        name: [record.cells[name] for record in records]
        for name in header
        if name and name not in used
    }
    patients = like_patients(cells)
    candidates = []
    for name, column in cells.items():
        values = {cell for cell in column if known_or_empty(cell)}
        are_shared = 2 <= len(values) <= min(_MOST_CLASSES, len(column) / 2)
        is_other = name in patients or bool(_words(name) & ATTRIBUTE_WORDS)
        if are_shared and not is_other:
            candidates.append(name)
    return candidates


def _words(name: str) -> set[str]:
    """Return the words of a column's name, in lower case and without accents."""
    return set(re.findall("[a-z]+", without_accents(name)))


def _found_findings(
    path: Path,
    header: Sequence[str],
    records: Sequence[Record],
    column_of: dict[str, str],
    faults: Faults,
) -> Sequence[str]:
    """Return the columns of classes or findings where none is named; a single one is the label's.

    A fault says that a person must name them, unless they are exclusive classes for sure.
    """
    used = set(column_of.values())
    of_answers, doubt = label_columns(path, header, records, used)
    if doubt is None:
        return of_answers
    like_labels = _columns_like_labels(header, records, used)
    label = _likely_label(like_labels)
    # Only a column that is called labels is likelier than columns of 0 and 1.
    if of_answers and not _is_called_labels(label):
        if len(of_answers) > 1:
            faults.note(doubt, findings=of_answers)
            return of_answers
        label = of_answers[0]
    if not label:
        doubt = _naming_candidates(doubt, like_labels)
    column_of["label"] = label
    faults.note(doubt, columns={"label": label or PLACEHOLDER})
    return ()


def _naming_candidates(doubt: DataError, like_labels: Sequence[str]) -> DataError:
    """Return the error for a CSV without a column of labels, with those that may be classes.

    Args:
        doubt: the error without them.
        like_labels: see :func:`_columns_like_labels`.
    """
    which = "No column has few values that images share."
    if like_labels:
        which = f"Columns with few values that images share: {listed(like_labels)}."
    return DataError(
        doubt.problem, f"{doubt.remedy} {which}", expected=doubt.expected, found=doubt.found
    )


def _require_one_meaning(
    path: Path,
    records: Sequence[Record],
    column_of: Mapping[str, str],
    named: Mapping[str, str],
    header: Sequence[str],
    purpose: str,
) -> None:
    """Raise DataError if another well-known column contradicts the one that is used.

    Labels may be codes beside their names, as 0 beside benign; files may be called with a path.
    """
    column = column_of[purpose]
    if not column or purpose in named:
        return
    for other in further_columns(purpose, header):
        pairs = {
            (composed(record.cells[column]), composed(record.cells[other])) for record in records
        }
        differ = _label_otherwise if purpose == "label" else _name_otherwise
        if other in column_of.values() or not differ([pair for pair in pairs if all(pair)]):
            continue
        raise _disagreement(path, purpose, column, other)


def _disagreement(path: Path, purpose: str, column: str, other: str) -> DataError:
    """Return the error for two columns that may have a purpose and contradict each other."""
    return DataError(
        f"{path}",
        f"Name the right one: {option('columns', {purpose: column})}, or "
        f"{option('columns', {purpose: other})}.",
        expected=f"one column of {purpose}s",
        found=f"{column} and {other}, which do not agree",
    )


def _label_otherwise(pairs: Sequence[tuple[str, str]]) -> bool:
    """Return whether pairs of labels, each given once, are not one to one."""
    ones = {one for one, _ in pairs}
    others = {other for _, other in pairs}
    return len(ones) < len(pairs) or len(others) < len(pairs)


def _name_otherwise(pairs: Sequence[tuple[str, str]]) -> bool:
    """Return whether the cells of a pair name different files, whatever their folders."""
    return any(_names(one).isdisjoint(_names(other)) for one, other in pairs)


def _names(cell: str) -> set[str]:
    """Return the name of the file in a cell, with and without its ending.

    A dot may be part of a name without an ending.
    """
    parts = spelt_parts(cell)
    name = parts[-1] if parts else ""
    return {name, PurePosixPath(name).stem}

"""A site whose data is a CSV and a folder of images: read, checked row by row, split by group, decoded."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedward.errors import DataError
from fedward.sites.assemble import assemble, check_set_aside
from fedward.sites.data import SPLITS, BadRow, SetAside, SiteData
from fedward.sites.images import decode_files, locate
from fedward.sites.site_file import ManifestSite
from fedward.sites.split import group_split
from fedward.sites.table import Record, read_table

if TYPE_CHECKING:
    from fedward.config import DataSpec

NO_LABEL_TO_EVALUATE = "not used: it has no label, and its group is in a split that is only evaluated"


@dataclass(frozen=True)
class Row:
    """A row that is usable, apart perhaps from its image file."""

    line: int
    """In the CSV."""
    sample_id: str
    path: Path
    missing: str
    """Why there is no file at this path; empty where there is one."""
    label: int
    """Class index; -1 = none."""
    group: str
    split: str
    """Empty where the CSV does not say."""


def load_manifest(file: ManifestSite, spec: "DataSpec", cache: Path | None) -> SiteData:
    """Load the site; see :func:`fedward.sites.load_site`."""
    rows, aside, total = _rows(file, spec.classes)
    rows, unusable = _without_unlabelled_evaluation(_with_splits(rows, file))
    rows.sort(key=lambda row: (SPLITS.index(row.split), row.sample_id))
    found = [row for row in rows if not row.missing]
    pixels, failed = decode_files([row.path for row in found], spec.image_size, spec.channels, cache, f"{file.site}")
    problems = {row.sample_id: row.missing for row in rows if row.missing}
    problems |= {found[index].sample_id: reason for index, reason in failed.items()}
    aside += [SetAside(row.line, row.sample_id, problems[row.sample_id]) for row in rows if row.sample_id in problems]
    aside.sort(key=lambda problem: problem.row)
    check_set_aside(f"site {file.site}, {file.manifest}", aside, total, file.max_set_aside)
    # Unreadable files are dropped last, so that fixing one moves no other image.
    return assemble(
        file,
        spec.classes,
        ids=[row.sample_id for row in rows],
        pixels=pixels,
        labels=np.array([row.label for row in rows], np.int64),
        splits=[row.split for row in rows],
        readable=np.array([row.sample_id not in problems for row in rows], np.bool_),
        aside=aside + unusable,
    )


def read_rows(file: ManifestSite, classes: Sequence[str]) -> tuple[list[Row], list[SetAside], int]:
    """Read the CSV and check every row, without opening an image.

    Returns:
        The usable rows, whose files exist; the rejected rows; and the number of rows the site selects (both together,
        without rows that may be another site's).

    Raises:
        DataError: the CSV or the label map cannot be used at all, or the selection is empty.
    """
    rows, aside, total = _rows(file, classes)
    missing = [SetAside(row.line, row.sample_id, row.missing) for row in rows if row.missing]
    return [row for row in rows if not row.missing], sorted(aside + missing, key=lambda problem: problem.row), total


def _rows(file: ManifestSite, classes: Sequence[str]) -> tuple[list[Row], list[SetAside], int]:
    """Return what :func:`read_rows` does, but rows without a file among the usable ones.

    Raises:
        DataError: the CSV or the label map cannot be used at all, or the selection is empty.
    """
    assert file.manifest is not None  # read_site_file has set it
    unknown = sorted(set(file.labels.values()) - set(classes))
    if unknown:
        expected = f"classes of the job ({', '.join(classes)})"
        remedy = "Map the site's labels to these classes, or name them in ignore_labels."
        raise DataError(f"site {file.site}, field labels", expected=expected, found=", ".join(unknown), remedy=remedy)
    columns = file.columns
    named = (columns.sample_id, columns.image, columns.label, columns.group, columns.split, *file.where)
    records, aside = read_table(file.manifest, [name for name in named if name is not None], f"{file.site}")
    if file.where or file.share:  # nobody knows whose a malformed row is
        aside = [replace(problem, counted=False) for problem in aside]
    records = _selected(records, file)
    total = len(records) + sum(problem.counted for problem in aside)
    rows: list[Row] = []
    lines: dict[str, int] = {}
    for record in records:
        try:
            row = _check(record, file, classes)
            if row.sample_id in lines:
                raise BadRow(f"expected a sample_id of its own, found that of line {lines[row.sample_id]}")
        except BadRow as problem:
            aside.append(SetAside(record.line, record.cells[columns.sample_id], str(problem)))
            continue
        lines[row.sample_id] = record.line
        rows.append(row)
    if not total:
        found = "none that the site file selects"
        remedy = "Check 'where', 'ignore_labels' and the CSV."
        raise DataError(f"site {file.site}, {file.manifest}", expected="at least one row", found=found, remedy=remedy)
    return rows, aside, total


def _selected(records: list[Record], file: ManifestSite) -> list[Record]:
    def raw_label(record: Record) -> str:
        return record.cells[file.columns.label] if file.columns.label is not None else ""

    chosen = [
        record
        for record in records
        if all(record.cells[column] in values for column, values in file.where.items())
        and raw_label(record) not in file.ignore_labels
    ]
    if file.share is None or not chosen:
        return chosen
    part, parts = file.share
    codes = np.unique([raw_label(record) for record in chosen], return_inverse=True)[1].astype(np.int64)
    groups = [_group(record, file) for record in chosen]
    mine = group_split(groups, codes, [1 / parts] * parts, file.split.seed) == part - 1
    return [record for record, own in zip(chosen, mine, strict=True) if own]


def _group(record: Record, file: ManifestSite) -> str:
    group = record.cells[file.columns.group] if file.columns.group is not None else ""
    return group or record.cells[file.columns.sample_id]


def _check(record: Record, file: ManifestSite, classes: Sequence[str]) -> Row:
    cells, columns = record.cells, file.columns
    if not cells[columns.sample_id]:
        raise BadRow("expected a sample_id, found none")
    label = cells[columns.label] if columns.label is not None else ""
    name = file.labels.get(label, label)
    if name and name not in classes:
        raise BadRow(f"expected a label among {', '.join([*file.labels, *classes])}, found {label!r}")
    split = cells.get(columns.split or "split")
    if split is not None and split.lower() not in SPLITS:
        raise BadRow(f"expected a split among {', '.join(SPLITS)}, found {split!r}")
    try:
        path, missing = locate(file.folder, cells[columns.image]), ""
    except BadRow as problem:
        path, missing = file.folder, str(problem)
    return Row(
        line=record.line,
        sample_id=cells[columns.sample_id],
        path=path,
        missing=missing,
        label=classes.index(name) if name else -1,
        group=_group(record, file),
        split=(split or "").lower(),
    )


def _with_splits(rows: list[Row], file: ManifestSite) -> list[Row]:
    if rows and rows[0].split:
        _check_no_leak(rows, file)
        return rows
    # A group that nobody labelled is of no use to an evaluation: it trains.
    known = {row.group for row in rows if row.label >= 0}
    divided = [row for row in rows if row.group in known]
    shares = [1 - file.split.val - file.split.test, file.split.val, file.split.test]
    labels = np.array([row.label for row in divided], np.int64)
    parts = group_split([row.group for row in divided], labels, [max(share, 0.0) for share in shares], file.split.seed)
    given = [replace(row, split=SPLITS[part]) for row, part in zip(divided, parts, strict=True)]
    return given + [replace(row, split="train") for row in rows if row.group not in known]


def _check_no_leak(rows: list[Row], file: ManifestSite) -> None:
    splits = Counter(group for group, _ in {(row.group, row.split) for row in rows})
    leaking = sorted(group for group, count in splits.items() if count > 1)
    if leaking:
        more = f" and {len(leaking) - 5} more" if len(leaking) > 5 else ""
        raise DataError(
            f"site {file.site}, {file.manifest}, column {file.columns.split or 'split'}",
            expected="each group in one split",
            found=f"groups in several: {', '.join(leaking[:5])}{more}",
            remedy="Move each of these groups to one split: results on known patients say nothing about new ones.",
        )


def _without_unlabelled_evaluation(rows: list[Row]) -> tuple[list[Row], list[SetAside]]:
    def usable(row: Row) -> bool:
        return row.split == "train" or row.label >= 0

    unusable = [SetAside(row.line, row.sample_id, NO_LABEL_TO_EVALUATE) for row in rows if not usable(row)]
    return [row for row in rows if usable(row)], unusable

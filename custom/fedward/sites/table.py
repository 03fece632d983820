"""Reads a hospital's CSV as it is: four encodings, four delimiters, rows too short or too long."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedward.errors import DataError
from fedward.sites.data import Rejected

_DELIMITERS = ",;\t|"


@dataclass(frozen=True)
class Record:
    """One row of the CSV."""

    line: int
    """Its first line; the header is line 1."""
    cells: dict[str, str]
    """Name of a column -> the cell, without white space at its ends."""

    def cell(self, column: str | None) -> str:
        """Return the cell in a column; empty where the site has no such column (None)."""
        return "" if column is None else self.cells[column]


def read_table(path: Path, needed: Sequence[str], site: str) -> tuple[list[Record], list[Rejected]]:
    """Return the rows of a CSV, and those that are rejected.

    Encodings are UTF-8 (with or without BOM), UTF-16 (with BOM) and cp1252. The delimiter is the
    one of ``, ; |`` and tab that makes every needed column appear in the first line. Empty lines
    are skipped. A row with more or fewer cells than the header is rejected, named by its cell in
    the first needed column if it has one. Columns without a name may repeat: spreadsheets write
    such columns after the last one.

    Args:
        path: of the CSV.
        needed: names of columns, the one with the images' ids first.
        site: for messages.

    Raises:
        DataError: the file is missing; its encoding is unknown; columns are missing or repeated; or
            its quoting is broken.
    """
    where = f"site {site}, {path}"
    text = _decode(path, where)
    delimiter = _delimiter(text, needed, where)
    records: list[Record] = []
    rejected: list[Rejected] = []
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        header = [name.strip() for name in next(reader)]
        id_place = header.index(needed[0])
        line = reader.line_num + 1
        for row in reader:
            cells = [cell.strip() for cell in row]
            if any(cells) and len(cells) == len(header):
                records.append(Record(line, dict(zip(header, cells, strict=True))))
            elif any(cells):
                sample_id = cells[id_place] if id_place < len(cells) else ""
                reason = f"expected {len(header)} cells, found {len(cells)}"
                rejected.append(Rejected(line, sample_id, reason))
            line = reader.line_num + 1
    except csv.Error as error:
        raise DataError(
            f"{where}, line {reader.line_num}, is not a row of a CSV: {error}",
            "Fix the quoting there.",
        ) from None
    return records, rejected


def read_header(path: Path, site: str) -> list[str]:
    """Return the names of a CSV's columns, whatever they are."""
    where = f"site {site}, {path}"
    text = _decode(path, where)
    return _header(text, _delimiter(text, (), where))


def _decode(path: Path, where: str) -> str:
    """Return a file as text."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(
            where,
            "Fix the path in the site file.",
            expected="a CSV file",
            found=error.strerror or str(error),
        ) from None
    encodings = ["utf-16"] if content[:2] in (b"\xff\xfe", b"\xfe\xff") else ["utf-8-sig", "cp1252"]
    for encoding in encodings:
        try:
            text = content.decode(encoding)
        except UnicodeDecodeError:
            continue
        if "\0" not in text:
            return text
    raise DataError(
        where,
        "Save the CSV again as UTF-8.",
        expected="text in UTF-8, UTF-16 or cp1252",
        found="other bytes",
    )


def _delimiter(text: str, needed: Sequence[str], where: str) -> str:
    """Return the delimiter that makes the most needed columns appear, and then the most columns."""
    headers = {mark: _header(text, mark) for mark in _DELIMITERS}

    def fit(mark: str) -> tuple[int, int]:
        return len(set(needed) & set(headers[mark])), len(headers[mark])

    best = max(_DELIMITERS, key=fit)
    header = headers[best]
    missing = [name for name in needed if name not in header]
    if missing:
        columns = ", ".join(header) or "nothing"
        raise DataError(
            f"{where}, line 1",
            "Name the site's columns under 'columns' in the site file.",
            expected=f"columns {', '.join(needed)}",
            found=f"{columns:.500} (missing: {', '.join(missing)})",
        )
    repeated = sorted({name for name in header if name and header.count(name) > 1})
    if repeated:
        raise DataError(
            f"{where}, line 1, has columns of the same name: {', '.join(repeated)}",
            "Rename or remove a column.",
        )
    return best


def _header(text: str, delimiter: str) -> list[str]:
    """Return the names in the first line; empty if one would be longer than a cell may be."""
    try:
        names = next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), [])
    except csv.Error:
        return []
    return [name.strip() for name in names]

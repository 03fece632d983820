"""A hospital's CSV as it comes: four encodings, four delimiters, rows that are too short or too
long.
"""

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
    """One row of the CSV: its line and its cells by column name, white space stripped."""

    line: int
    cells: dict[str, str]

    def cell(self, column: str | None) -> str:
        """Return what stands in a column; nothing where the site has no such column (None)."""
        return "" if column is None else self.cells[column]


def read_table(path: Path, needed: Sequence[str], site: str) -> tuple[list[Record], list[Rejected]]:
    """Read a CSV in UTF-8 (with or without BOM), UTF-16 (with BOM) or cp1252, separated by ``, ; |
    tab``.

    The delimiter is the one that makes every needed column appear in the first line. Empty lines
    are skipped; a row with more or fewer cells than the header is rejected, named by its cell in
    the first needed column if it has one. A line number counts from the header (1); of a row with
    line breaks in its cells it is the first. Columns without a name may repeat, as spreadsheets
    write them behind the last one.

    Raises:
        DataError: no such file, an unknown encoding, no or repeated or missing columns, or broken
            quoting.
    """
    where = f"site {site}, {path}"
    text = _decode(path, where)
    delimiter = _delimiter(text, needed, where)
    records: list[Record] = []
    rejected: list[Rejected] = []
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        header = [name.strip() for name in next(reader)]
        name_at = header.index(needed[0])
        line = reader.line_num + 1
        for cells in reader:
            cells = [cell.strip() for cell in cells]  # noqa: PLW2901
            if any(cells) and len(cells) == len(header):
                records.append(Record(line, dict(zip(header, cells, strict=True))))
            elif any(cells):
                name = "".join(cells[name_at : name_at + 1])
                rejected.append(
                    Rejected(line, name, f"expected {len(header)} cells, found {len(cells)}")
                )
            line = reader.line_num + 1
    except csv.Error as error:
        where = f"{where}, line {reader.line_num}"
        remedy = "Fix the quoting there."
        raise DataError(where, expected="a CSV row", found=str(error), remedy=remedy) from None
    return records, rejected


def read_header(path: Path, site: str) -> list[str]:
    """Return the columns of a CSV, as :func:`read_table` finds them where none is needed."""
    where = f"site {site}, {path}"
    text = _decode(path, where)
    return _header(text, _delimiter(text, (), where))


def _decode(path: Path, where: str) -> str:
    try:
        content = path.read_bytes()
    except OSError as error:
        found = error.strerror or str(error)
        remedy = "Fix the path in the site file."
        raise DataError(where, expected="a CSV file", found=found, remedy=remedy) from None
    encodings = ["utf-16"] if content[:2] in (b"\xff\xfe", b"\xfe\xff") else ["utf-8-sig", "cp1252"]
    for encoding in encodings:
        try:
            text = content.decode(encoding)
        except UnicodeDecodeError:
            continue
        if "\0" not in text:
            return text
    expected = "text in UTF-8, UTF-16 or cp1252"
    remedy = "Save the CSV again as UTF-8."
    raise DataError(where, expected=expected, found="other bytes", remedy=remedy)


def _delimiter(text: str, needed: Sequence[str], where: str) -> str:
    headers = {mark: _header(text, mark) for mark in _DELIMITERS}
    best = max(
        _DELIMITERS, key=lambda mark: (len(set(needed) & set(headers[mark])), len(headers[mark]))
    )
    header = headers[best]
    missing = [name for name in needed if name not in header]
    if missing:
        found = f"{', '.join(header) or 'nothing':.500} (missing: {', '.join(missing)})"
        remedy = "Name the site's columns under 'columns' in the site file."
        raise DataError(
            f"{where}, line 1", expected=f"columns {', '.join(needed)}", found=found, remedy=remedy
        )
    repeated = sorted({name for name in header if name and header.count(name) > 1})
    if repeated:
        found = f"{', '.join(repeated)} more than once"
        raise DataError(
            f"{where}, line 1",
            expected="each column once",
            found=found,
            remedy="Rename or drop a column.",
        )
    return best


def _header(text: str, mark: str) -> list[str]:
    """Return the column names where ``mark`` is the delimiter; none where a name would be longer
    than a cell may be.
    """
    try:
        return [
            name.strip()
            for name in next(csv.reader(io.StringIO(text, newline=""), delimiter=mark), [])
        ]
    except csv.Error:
        return []

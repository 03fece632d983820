"""Reads a hospital's CSV as it is: its encoding, its delimiter, rows too short or too long."""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from fedward.errors import DataError, reason_of_system
from fedward.sites.data import Rejected
from fedward.sites.files import read_content
from fedward.text import composed, count

_DELIMITERS = ",;\t|"
_SEPARATOR_LINE = re.compile(r'[ "]*sep=(.)["\s,;|]*?(?:\r\n|\r|\n|$)', re.IGNORECASE)
"""The line in which Excel notes the delimiter, above the header."""
_EMPTY_LINES = re.compile(r'(?:(?:[ \t\xa0,;|]|"")*(?:\r\n|\r|\n))+')
"""Lines without a letter, as spreadsheets write empty rows, above the header."""
_LINE_END = re.compile(r"\r\n|\r|\n")
_EXCEL_TEXT = re.compile(r'="([^"]*)"$')
"""A text that Excel must not take for a number, such as ``="007"``."""
_LOOKED_AT = 50
"""Rows that are compared with the header to find the delimiter."""
_GUESSED = "cp1252"
"""Encoding of a CSV that is neither UTF-8 nor UTF-16."""
_OTHER_KINDS = {
    b"\x93NUMPY": "one array of NumPy (npy)",
    b"\x89HDF": "an HDF5 file",
    b"MATLAB 5.0 MAT": "a file of MATLAB",
    b"PAR1": "a Parquet file",
    b"\x80\x04\x95": "a pickle of Python",
    b"\x89PNG": "an image",
    b"\xff\xd8\xff": "an image",
    b"GIF8": "an image",
    b"\x1f\x8b": "a compressed file, as volumes are",
}
"""First bytes of other files that may be named in place of a CSV, and what they are."""
_WORKBOOKS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
"""First bytes of Excel's and LibreOffice's own files, and of Excel's old ones."""


@dataclass(frozen=True)
class Record:
    """One row of the CSV."""

    line: int
    """Its first line; the header is line 1."""
    cells: dict[str, str]
    """Name of a column, in composed letters -> the cell, without white space at its ends."""
    padded: frozenset[str] = frozenset()
    """Columns whose cells have white space at their ends in the file."""

    def cell(self, column: str | None) -> str:
        """Return the cell in a column; empty where the site has no such column (None)."""
        return "" if column is None else self.cells[column]


class _Text(NamedTuple):
    """The text of a CSV."""

    lines: str
    """Header and rows."""
    line: int
    """Line of the header in the file: 1, unless Excel's note or empty lines are above it."""
    delimiters: str
    """Those that may be the CSV's."""


def read_table(path: Path, needed: Sequence[str], site: str) -> tuple[list[Record], list[Rejected]]:
    """Return the rows of a CSV, and those that are rejected.

    Encodings are UTF-8 (with or without BOM), UTF-16 and cp1252. The delimiter is that of Excel's
    first line ``sep=;``, or the one of ``, ; |`` and tab that makes every needed column appear in
    the header, and then the one by which most rows have as many cells as the header. Empty lines
    are skipped. A row with more or fewer cells than the header is rejected, named by its cell in
    the first needed column if it has one; empty cells beyond the header's last name do not count.
    Columns without a name may repeat: spreadsheets write such columns after the last one.

    Args:
        path: of the CSV.
        needed: names of columns, the one with the images' ids first.
        site: for messages.

    Raises:
        DataError: the file is missing; its encoding is unknown; columns are missing or repeated; or
            its quoting is broken.
    """
    where = f"site {site}, {path}"
    text = _read_text(path, where)
    delimiter = _delimiter(text, needed, where)
    records: list[Record] = []
    rejected: list[Rejected] = []
    reader = csv.reader(io.StringIO(text.lines, newline=""), delimiter=delimiter, strict=True)
    try:
        header = _names(next(reader))
        id_place = header.index(needed[0])
        named_cells = max((place + 1 for place, name in enumerate(header) if name), default=1)
        line = reader.line_num + text.line
        for row in reader:
            cells = [_EXCEL_TEXT.sub(r"\1", cell.strip()) for cell in row]
            if any(cells) and named_cells <= len(cells) and not any(cells[len(header) :]):
                records.append(_record(line, header, row, cells))
            elif any(cells):
                sample_id = cells[id_place] if id_place < len(cells) else ""
                reason = f"expected {count(len(header), 'cell')}, found {len(cells)}"
                rejected.append(Rejected(line, sample_id, reason))
            line = reader.line_num + text.line
    except csv.Error as error:
        line = reader.line_num + text.line - 1
        raise DataError(
            f"{where}, line {line}, is not a row of a CSV: {error}", "Fix the quoting there."
        ) from None
    return records, rejected


def read_header(path: Path, site: str) -> list[str]:
    """Return the names of a CSV's columns, whatever they are."""
    where = f"site {site}, {path}"
    text = _read_text(path, where)
    return _header(text, _delimiter(text, (), where))


def guessed_encoding(path: Path) -> str:
    """Return the encoding that is taken for granted of a CSV; empty where its bytes prove theirs.

    In UTF-8 and UTF-16 hardly any other text is valid. Any text is valid in cp1252, in which
    Western Excel saves a CSV: with other letters where it was written in cp1250 or MacRoman.

    Raises:
        DataError: see :func:`read_table`.
    """
    encoding, _ = _decode(path, f"{path}")
    return encoding if encoding == _GUESSED else ""


def _record(line: int, header: Sequence[str], row: Sequence[str], cells: list[str]) -> Record:
    """Return a row; cells that it lacks at its end are empty.

    Args:
        line: its first line in the file.
        header: names of the columns.
        row: the cells as they are in the file.
        cells: without white space at their ends.
    """
    padded = frozenset[str]()
    if row != cells:
        padded = frozenset(
            name for name, raw, cell in zip(header, row, cells, strict=False) if raw != cell
        )
    cells = [*cells, *[""] * (len(header) - len(cells))]
    return Record(line, dict(zip(header, cells, strict=False)), padded)


def _read_text(path: Path, where: str) -> _Text:
    """Return the text of a CSV without Excel's note of the delimiter, and from its header on."""
    _, text = _decode(path, where)
    note = _SEPARATOR_LINE.match(text)
    above = note.end() if note else 0
    empty = _EMPTY_LINES.match(text, above)
    above = empty.end() if empty else above
    line = 1 + len(_LINE_END.findall(text, 0, above))
    return _Text(text[above:], line, note[1] if note else _DELIMITERS)


def _decode(path: Path, where: str) -> tuple[str, str]:
    """Return the encoding of a file, and its text."""
    try:
        content = read_content(path)
    except OSError as error:
        raise DataError(
            where,
            "Fix the path in the site file.",
            expected="a CSV file",
            found=reason_of_system(error),
        ) from None
    if content.startswith(_WORKBOOKS):
        raise DataError(
            where,
            'Save its sheet as "CSV UTF-8", and name that file.',
            expected="a CSV file",
            found="a workbook of Excel or LibreOffice, or another archive",
        )
    for start, kind in _OTHER_KINDS.items():
        if content.startswith(start):
            raise DataError(
                where,
                "Save its table as a CSV, or its arrays as an npz file (docs/data.md).",
                expected="a CSV file",
                found=kind,
            )
    for encoding in _encodings(content[:1000]):
        try:
            text = content.decode(encoding)
        except UnicodeDecodeError:
            continue
        if "\0" not in text:
            return encoding, text
    raise DataError(
        where,
        "Save the CSV again as UTF-8.",
        expected="text in UTF-8, UTF-16 or cp1252",
        found="other bytes",
    )


def _encodings(start: bytes) -> list[str]:
    """Return the encodings that a file may have by its first bytes, the likelier ones first."""
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return ["utf-16"]
    # Without a mark, UTF-16 of mostly Latin letters has a zero in every second byte.
    even = start[::2].count(0)
    odd = start[1::2].count(0)
    if max(even, odd) * 4 > len(start) > 3:
        return ["utf-16-le" if odd > even else "utf-16-be"]
    return ["utf-8-sig", _GUESSED]


def _delimiter(text: _Text, needed: Sequence[str], where: str) -> str:
    """Return the delimiter that makes the most needed columns appear, and divides rows best."""
    headers = {mark: _header(text, mark) for mark in text.delimiters}

    def fit(mark: str) -> tuple[int, bool, int, int]:
        header = headers[mark]
        alike = _rows_like(text, mark, len(header))
        return len(set(needed) & set(header)), len(header) > 1, alike, len(header)

    best = max(text.delimiters, key=fit)
    header = headers[best]
    missing = [name for name in needed if name not in header]
    if missing:
        columns = ", ".join(header) or "nothing"
        remedy = (
            "Name the site's columns in its site file, under 'columns', or where it names these."
        )
        if "group" in missing:
            remedy += " If no column names patients or lesions, write columns: {group: null}."
        raise DataError(
            f"{where}, line {text.line}",
            remedy,
            expected=f"columns {', '.join(needed)}",
            found=f"{columns:.500} (missing: {', '.join(missing)})",
        )
    repeated = sorted({name for name in header if name and header.count(name) > 1})
    if repeated:
        raise DataError(
            f"{where}, line {text.line}, has columns of the same name: {', '.join(repeated)}",
            "Rename or remove a column.",
        )
    return best


def _header(text: _Text, delimiter: str) -> list[str]:
    """Return the names in the first line; empty if one would be longer than a cell may be."""
    try:
        names = next(csv.reader(io.StringIO(text.lines, newline=""), delimiter=delimiter), [])
    except csv.Error:
        return []
    return _names(names)


def _names(cells: Sequence[str]) -> list[str]:
    return [composed(cell.strip("\ufeff \t\r\n\xa0")) for cell in cells]


def _rows_like(text: _Text, delimiter: str, cells: int) -> int:
    """Return how many of the first rows have as many cells as the header."""
    rows = csv.reader(io.StringIO(text.lines, newline=""), delimiter=delimiter)
    try:
        return sum(len(row) == cells for row in islice(rows, 1, _LOOKED_AT + 1))
    except csv.Error:
        return 0

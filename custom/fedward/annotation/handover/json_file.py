"""Reading JSON files of other programs, which may hold anything."""

from codecs import BOM_UTF8
from pathlib import Path
from typing import Any

from fedward import json_text
from fedward.annotation.handover.returned import require_file
from fedward.errors import DataError, UnreadableJsonError, reason_of_system


def read_json(path: Path, kind: type, expected: str) -> Any:
    """Return the content of a JSON file whose outermost value is a ``kind``.

    Args:
        path: the file.
        kind: the type that its content must have.
        expected: what an error says of that type.

    Raises:
        DataError: there is no such file, it is not JSON, or its outermost value has another type.
    """
    try:
        require_file(path)
        content = json_text.read_json(path.read_bytes().removeprefix(BOM_UTF8))
    except OSError as error:
        raise _not_expected(path, expected, reason_of_system(error)) from None
    except UnreadableJsonError as error:
        raise _not_expected(path, expected, str(error)) from None
    if not isinstance(content, kind):
        raise _not_expected(path, expected, type(content).__name__)
    return content


def _not_expected(path: Path, expected: str, found: str) -> DataError:
    return DataError(
        f"returned file {path}",
        "Export it again from the other program.",
        expected=expected,
        found=found,
    )


def text(value: object) -> str:
    """Return a JSON text or number as text, and an empty text for any other value.

    Half a surrogate pair, which no encoding of text can write, becomes ``?``.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return ""
    return str(value).strip().encode("utf-8", "replace").decode()


def part(value: object, *keys: str) -> Any:
    """Return the value under the keys of nested mappings; None where one of them is missing."""
    for key in keys:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value

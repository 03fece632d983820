"""JSON from elsewhere, read with an error that says what is wrong."""

import json
from pathlib import Path
from typing import Any

from fedward.annotation.handover.returned import require_file
from fedward.errors import DataError


def read_json(path: Path, kind: type, expected: str) -> Any:
    """Return the content of a JSON file whose outermost value is a ``kind``.

    Raises:
        DataError: there is no such file, it is not JSON, or another value.
    """
    try:
        require_file(path)
        content = json.loads(path.read_text("utf-8-sig"))
        found = type(content).__name__
    except OSError as error:
        content = None
        found = error.strerror or str(error)
    except (ValueError, RecursionError) as error:
        content = None
        found = f"{type(error).__name__}: {error}"
    if not isinstance(content, kind):
        remedy = "Export it again from the other program."
        raise DataError(f"returned file {path}", expected=expected, found=found, remedy=remedy)
    return content


def text(value: object) -> str:
    """Return a JSON text or number as text, anything else as nothing; half a surrogate pair becomes
    ``?``.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return ""
    return str(value).strip().encode("utf-8", "replace").decode()


def part(value: object, *keys: str) -> Any:
    """Return what lies under the keys of nested mappings; None where one is missing or no mapping."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value

"""JSON from files that may be damaged or of somebody else: the one reader, and its one error."""

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedward.errors import UnreadableJsonError, reason_of

DEEPEST = 100
"""Most lists and objects within each other. What fedward writes needs fewer than ten.

Python's own limit depends on which functions are running. A value that it could just read here, it
could not compare, write or show a few calls deeper.
"""
_TOO_DEEP = "text that is nested too deeply"


def read_json_file(path: Path, *, unique_keys: bool = False) -> Any:
    """Return the value in a JSON file; ``unique_keys`` is as for :func:`read_json`.

    Raises:
        OSError: the file cannot be read.
        UnreadableJsonError: see :func:`read_json`.
    """
    return read_json(path.read_bytes(), unique_keys=unique_keys)


def read_json(text: str | bytes, *, unique_keys: bool = False) -> Any:
    """Return the value of a JSON text. NaN and infinities are read as Python writes them.

    Args:
        text: the JSON; bytes must be UTF-8.
        unique_keys: refuse an object with a key that comes twice, of which Python would take the
            last value and lose the first.

    Raises:
        UnreadableJsonError: the text is not UTF-8, not JSON, nested more than :data:`DEEPEST` deep,
            or has a whole number of more digits than Python reads or, with ``unique_keys``, a key
            twice.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        value = json.loads(text, object_pairs_hook=_with_unique_keys if unique_keys else None)
    except UnreadableJsonError:
        raise
    except UnicodeDecodeError as error:
        raise UnreadableJsonError(reason_of(error)) from error
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise UnreadableJsonError(f"text that is not valid JSON at {place}") from error
    except RecursionError as error:
        raise UnreadableJsonError(_TOO_DEEP) from error
    except ValueError as error:  # Python's limit, against numbers that take minutes to read.
        raise UnreadableJsonError("a whole number of too many digits") from error
    # To count brackets is quicker than to walk through a line of a log.
    if text.count("[") + text.count("{") > DEEPEST and _is_too_deep(value):
        raise UnreadableJsonError(_TOO_DEEP)
    return value


def _with_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the content of a JSON object, as the ``object_pairs_hook`` of :mod:`json`."""
    counts = Counter(key for key, _ in pairs)
    twice = [key for key, number in counts.items() if number > 1]
    if twice:
        raise UnreadableJsonError(f"a key that comes twice: {twice[0]!r:.100}")
    return dict(pairs)


def _is_too_deep(value: Any) -> bool:
    """Return whether more than :data:`DEEPEST` lists and objects are within each other."""
    values = [value]
    for _ in range(DEEPEST):
        values = [inner for outer in values for inner in _inside(outer)]
    return any(isinstance(inner, list | dict) for inner in values)


def _inside(value: Any) -> Iterable[Any]:
    """Return the values in a list or an object; none for any other value."""
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()

"""Files of a kit that people edit: whatever is wrong with one becomes an error that names it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedward.errors import ConfigError, reason_of
from fedward.json_text import read_json_file

_KINDS: dict[type, str] = {
    list: "a list",
    str: "a text",
    bool: "true or false",
    type(None): "null",
}
"""Type of a JSON value other than an object or a number -> its name."""


@contextmanager
def reading(where: str, expected: str, remedy: str) -> Iterator[None]:
    """Turn what goes wrong where a file's content is used into a ConfigError.

    Args:
        where: the file, for the error.
        expected: what the file must hold.
        remedy: what to do where it does not.
    """
    try:
        yield
    except (AttributeError, LookupError, OSError, OverflowError, TypeError, ValueError) as error:
        found = _in_words(error)
        raise ConfigError(where, expected=expected, found=found, remedy=remedy) from error


def read_json(path: Path, remedy: str = "Correct or restore it.") -> dict[str, Any]:
    """Return a JSON object.

    Raises:
        ConfigError: the file cannot be read, or holds something else; it names the file and ends
            with ``remedy``.
    """
    with reading(str(path), "a JSON object", remedy):
        content = read_json_file(path)
        if not isinstance(content, dict):
            raise ValueError(_KINDS.get(type(content), "a number"))
        return content


def _in_words(error: Exception) -> str:
    """Return what an error says of a file, for people who know the file and not the code."""
    if isinstance(error, AttributeError | TypeError):
        return "a value of another kind, such as a list or null"
    if isinstance(error, IndexError):
        return "an empty list"
    if isinstance(error, OverflowError):
        return "a number that is too large"
    return reason_of(error)

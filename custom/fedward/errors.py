"""Errors that say what is wrong and what to do."""

import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path


class FedwardError(Exception):
    """Base of every error that this package raises on purpose.

    The text has two parts, so that a line of a log can be acted on without the code: what is wrong,
    and what to do. A value that is not what it must be is shown beside what it must be.

    Args:
        problem: what is wrong and where, as a sentence whose full stop may be missing. With
            ``expected`` and ``found`` it is the place alone, such as ``site-1.yaml, threads``.
        remedy: what to do, as sentences; nothing where the problem says it.
        expected: what the value must be; only together with ``found``.
        found: the value that was found in its place.
    """

    def __init__(
        self, problem: str, remedy: str = "", *, expected: str = "", found: str = ""
    ) -> None:
        self.problem = problem
        self.remedy = remedy
        self.expected = expected
        self.found = found
        if expected or found:
            problem = f"{problem}: expected {expected}, found {found}."
        elif not problem.endswith((".", "?", "!")):
            problem = f"{problem}."
        super().__init__(f"{problem} {remedy}".rstrip())

    def __reduce__(self) -> tuple[Callable[[str], "FedwardError"], tuple[str]]:
        """Say how it is made again in another process: an exception's own way knows no keywords."""
        again = partial(type(self), remedy=self.remedy, expected=self.expected, found=self.found)
        return again, (self.problem,)


class ConfigError(FedwardError):
    """A job, method or command asks for something that cannot be."""


class DataError(FedwardError):
    """A site's data cannot be used as it is."""


class WireError(FedwardError):
    """A message between a site and the server is not what the wire list allows."""


class RunError(FedwardError):
    """A federated run cannot go on."""


class WorkError(RunError):
    """A site's work was stopped or failed. The text names no file and no image: the server may read
    it.
    """


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Return `` (did you mean ...?)`` with the known name that is most like a word; nothing where
    none is.
    """
    from difflib import get_close_matches  # here, as few commands need it

    names = list(known)
    said = str(word).lower()
    like = get_close_matches(said, names, 1, 0.75 if len(said) > 4 else 0.6)
    return f" (did you mean {like[0]}?)" if like and word not in names else ""


def did_you_mean_file(path: Path) -> str:
    """Return :func:`did_you_mean` of the first part of a path that does not exist, among what lies
    beside it.
    """
    missing = [part for part in (path, *path.parents) if not os.path.lexists(part)]
    try:
        return (
            did_you_mean(missing[-1].name, sorted(os.listdir(missing[-1].parent)))
            if missing
            else ""
        )
    except OSError:
        return ""


def listed(names: Iterable[str]) -> str:
    """Return names as one text, separated by commas; a name with a comma of its own stands in
    quotes.
    """
    return ", ".join(map(quoted, names))


def quoted(name: str) -> str:
    """Return a name that stands in a list: in quotes if it has a comma of its own."""
    return f'"{name}"' if "," in name else name


def reason_of(error: Exception) -> str:
    """Return why something could not be read, without numbers and names of errors where people need
    none.
    """
    if isinstance(error, IsADirectoryError):
        return "a folder"
    if isinstance(error, OSError) and error.strerror:
        like = (
            did_you_mean_file(Path(error.filename)) if isinstance(error, FileNotFoundError) else ""
        )
        return error.strerror[:1].lower() + error.strerror[1:] + like
    if isinstance(error, UnicodeDecodeError):
        return "bytes that are no text in UTF-8"
    if isinstance(error, KeyError):
        return f"no {error}"
    if hasattr(error, "lineno") and hasattr(error, "colno"):
        return f"no JSON, as line {error.lineno}, column {error.colno} shows"
    return str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"

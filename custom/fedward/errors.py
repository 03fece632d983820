"""Errors that say what is wrong and what to do."""

import json
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
        remedy: what to do, as sentences; empty if the problem says it.
        expected: what the value must be; only together with ``found``.
        found: the value that was found instead.
    """

    def __init__(
        self, problem: str, remedy: str = "", *, expected: str = "", found: str = ""
    ) -> None:
        self.problem = problem
        self.remedy = remedy
        self.expected = expected
        self.found = found
        if expected or found:
            sentence = f"{problem}: expected {expected}, found {found.removesuffix('.')}."
        elif problem.endswith((".", "?", "!")):
            sentence = problem
        else:
            sentence = f"{problem}."
        super().__init__(f"{sentence} {remedy}".rstrip())

    def __reduce__(self) -> tuple[Callable[[str], "FedwardError"], tuple[str]]:
        """Let pickle make the error again in another process.

        By default it would call the class with the whole text alone.
        """
        make = partial(type(self), remedy=self.remedy, expected=self.expected, found=self.found)
        return make, (self.problem,)


class ConfigError(FedwardError):
    """A job, method or command asks for something that cannot be."""


class DataError(FedwardError):
    """A site's data cannot be used as it is."""


class WireError(FedwardError):
    """A message between a site and the server is not what the wire list allows."""


class RunError(FedwardError):
    """A federated run cannot go on."""


class WorkError(RunError):
    """A site's work was stopped or failed.

    The text names no file and no image, because the server may read it.
    """


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Return `` (did you mean ...?)`` with the known name most like a word; empty without one."""
    # Few commands fail, and only those need this module.
    from difflib import get_close_matches

    names = list(known)
    written = str(word).lower()
    # One wrong letter weighs more in a short word.
    cutoff = 0.75 if len(written) > 4 else 0.6
    matches = get_close_matches(written, names, n=1, cutoff=cutoff)
    if not matches or word in names:
        return ""
    return f" (did you mean {matches[0]}?)"


def did_you_mean_file(path: Path) -> str:
    """Return :func:`did_you_mean` for the first part of a path that does not exist."""
    missing = [part for part in (path, *path.parents) if not os.path.lexists(part)]
    if not missing:
        return ""
    try:
        names = sorted(os.listdir(missing[-1].parent))
    except OSError:
        return ""
    return did_you_mean(missing[-1].name, names)


def listed(names: Iterable[str]) -> str:
    """Return names as one text, separated by commas; a name that has a comma is in quotes."""
    return ", ".join(quoted(name) for name in names)


def quoted(name: str) -> str:
    """Return a name for a list: in quotes if it has a comma of its own."""
    return f'"{name}"' if "," in name else name


def reason_of(error: Exception) -> str:
    """Return why something could not be read, in words for people who did not write the code."""
    if isinstance(error, OSError) and error.strerror:
        return _reason_of_system(error, error.strerror)
    if isinstance(error, UnicodeDecodeError):
        return "bytes that are not text in UTF-8"
    if isinstance(error, KeyError):
        return f"no {error}"
    if isinstance(error, json.JSONDecodeError):
        return f"text that is not valid JSON at line {error.lineno}, column {error.colno}"
    if type(error) is ValueError:
        return str(error)
    return f"{type(error).__name__}: {error}"


def _reason_of_system(error: OSError, message: str) -> str:
    """Return the operating system's message, without the number of the error."""
    if isinstance(error, IsADirectoryError):
        return "a folder"
    reason = message[:1].lower() + message[1:]
    if isinstance(error, FileNotFoundError):
        reason += did_you_mean_file(Path(error.filename))
    return reason

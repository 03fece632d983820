"""Errors that say what is wrong and what to do, in words that the caller can type."""

import json
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import NoReturn


class FedwardError(Exception):
    """Base of every error that this package raises on purpose.

    The text has two parts, so that a line of a log can be acted on without the code: what is wrong,
    and what to do. A value that is not what it must be is shown beside what it must be.

    Args:
        problem: what is wrong and where, as a sentence whose full stop may be missing. With
            ``expected`` and ``found`` it is the place alone, such as ``site-1.yaml, threads``.
        remedy: what to do, as sentences; empty if the problem says it. It may begin on a new line.
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
        gap = "" if remedy.startswith("\n") else " "
        super().__init__(f"{sentence}{gap}{remedy}".rstrip())

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


class DivergedError(FedwardError):
    """A training diverged: numbers of its model are not finite, or far too large.

    Every such error is of another kind too, which says who may read its text.
    """


class DivergedTrainingError(WorkError, DivergedError):
    """The losses of a training are no longer finite."""


def together(errors: Sequence["FedwardError"], what: str = "must be fixed") -> "FedwardError":
    """Return errors, at least one, as a single one that lists them.

    It is a ConfigError if all are, else a DataError. ``what``: what is to be done about them.
    """
    if len(errors) == 1:
        return errors[0]
    kind = ConfigError if all(isinstance(error, ConfigError) for error in errors) else DataError
    items = [f"\n  {number}. {error}" for number, error in enumerate(errors, 1)]
    return kind(f"{len(items)} things {what}:{''.join(items)}")


_ARGUMENTS: ContextVar[Mapping[str, str] | None] = ContextVar("arguments", default=None)
"""Option -> argument where their names differ, while a public function runs; None: a command."""


@contextmanager
def naming_arguments(**renamed: str) -> Iterator[None]:
    """Let texts that are made in the ``with`` block speak to a caller in Python, not in a shell.

    It also decorates functions. It holds for this thread.

    Args:
        renamed: option -> argument, where the function's argument has another name.
    """
    token = _ARGUMENTS.set(renamed)
    try:
        yield
    finally:
        _ARGUMENTS.reset(token)


_OFFERED: ContextVar[frozenset[str]] = ContextVar("offered", default=frozenset({"set"}))
"""Options of the command, or arguments of the function, that texts may propose."""


@contextmanager
def offering(*options: str) -> Iterator[None]:
    """Let texts that are made in the ``with`` block propose these options alone.

    Outside it they may propose ``set``, as for commands that train. It also decorates functions. It
    holds for this thread.
    """
    token = _OFFERED.set(frozenset(options))
    try:
        yield
    finally:
        _OFFERED.reset(token)


def offered(option: str) -> bool:
    """Return whether a text may propose an option, because the caller's command has it."""
    return option in _OFFERED.get()


def in_shell() -> bool:
    """Return whether the caller typed a command, in contrast to a function in Python."""
    return _ARGUMENTS.get() is None


def option(name: str, *values: object) -> str:
    """Return an option as the caller gives it: ``--val 0.3`` in a shell, ``val=0.3`` in Python.

    Args:
        name: of the option, without its hyphens in front.
        values: what follows it. One mapping is words ``KEY=VALUE``, True an option without a value;
            none mentions the option.

    Examples:
        >>> option("columns", {"label": "my label"}), option("classes", "a", "b")
        ("--columns 'label=my label'", '--classes a b')
        >>> with naming_arguments():
        ...     option("columns", {"label": "my label"}), option("classes", "a", "b")
        ('columns={"label": "my label"}', 'classes=["a", "b"]')
    """
    renamed = _ARGUMENTS.get()
    if renamed is not None:
        argument = renamed.get(name, name.replace("-", "_"))
        if not values:
            return f"{argument}="
        content = list(values) if len(values) > 1 else values[0]
        return f"{argument}={_literal(content)}"
    return shlex.join(option_words(name, *values))


def option_words(name: str, *values: object) -> list[str]:
    """Return the words of a command line that are an option; arguments as of :func:`option`."""
    words: list[str] = []
    dashed: list[str] = []
    for value in values:
        if isinstance(value, Mapping):
            pairs = [f"{key}={content}" for key, content in value.items()]
            # What begins with a dash would be taken for an option.
            dashed += [f"--{name}={pair}" for pair in pairs if pair.startswith("-")]
            words += [pair for pair in pairs if not pair.startswith("-")]
        elif value is not True:
            words.append(f"{value}")
    return [*dashed] if dashed and not words else [f"--{name}", *words, *dashed]


def setting(key: str, value: object, written: str = "") -> str:
    """Return a setting of an experiment as the caller gives it, as with ``--set rounds=5``.

    Args:
        key: as ``--set`` takes it, with a dot for a field of a part.
        value: what it is set to.
        written: the value as YAML, where that is not its plain text.
    """
    if _ARGUMENTS.get() is None:
        word = f"{key}={written or value}"
        # YAML quotes texts by ', which reads badly within the same.
        plain = not set(word) & set('"$`\\!')
        quoted_word = f'"{word}"' if plain and shlex.quote(word) != word else shlex.quote(word)
        return f"--set {quoted_word}"
    part, _, field = key.rpartition(".")
    if part:
        return f"{part}={_literal({field: value})}"
    return f"{key}={_literal(value)}"


def command(name: str, *options: str) -> str:
    """Return a command, or the function that does the same, with options of :func:`option`."""
    if _ARGUMENTS.get() is None:
        return " ".join(["fedward", name, "...", *options])
    return f"fedward.{name}({', '.join(['...', *options])})"


def _literal(value: object) -> str:
    """Return a value as Python code, with strings in double quotes."""
    if isinstance(value, Mapping):
        items = [f"{_literal(key)}: {_literal(content)}" for key, content in value.items()]
        return f"{{{', '.join(items)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, str | Path):
        return json.dumps(f"{value}", ensure_ascii=False)
    return f"{value}"


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Return `` (did you mean ...?)`` with the known name most like a word; empty without one."""
    match = most_like(word, known)
    return f" (did you mean {match}?)" if match else ""


def most_like(word: object, known: Iterable[str]) -> str:
    """Return the known name most like a word; empty if none is, or if the word is known itself."""
    # Few commands fail, and only those need this module.
    from difflib import get_close_matches

    names = list(known)
    written = str(word).lower()
    # One wrong letter weighs more in a short word.
    cutoff = 0.75 if len(written) > 4 else 0.6
    matches = get_close_matches(written, names, n=1, cutoff=cutoff)
    if not matches:
        # A name in capital letters is far from the same word in small ones.
        name_of = {name.lower(): name for name in names}
        matches = [name_of[match] for match in get_close_matches(written, name_of, 1, cutoff)]
    return "" if not matches or word in names else matches[0]


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


class UnreadableJsonError(ValueError):
    """Text that cannot be read as JSON; it says why, for people who did not write the code.

    :mod:`fedward.json_text` raises it. Whoever catches it names the file and says what to do.
    """


def reason_of(error: Exception) -> str:
    """Return why something could not be read, in words for people who did not write the code."""
    if isinstance(error, OSError) and error.strerror:
        suggestion = ""
        if isinstance(error, FileNotFoundError):
            suggestion = did_you_mean_file(Path(error.filename))
        return f"{reason_of_system(error)}{suggestion}"
    if isinstance(error, UnicodeDecodeError):
        return "bytes that are not text in UTF-8"
    if isinstance(error, UnreadableJsonError):
        return str(error)
    if isinstance(error, KeyError):
        return f"no {error}"
    if type(error) is ValueError:
        # NumPy proposes to load pickled objects, which may run any code.
        pickled = "allow_pickle" in str(error)
        return "pickled objects, or no npz file, which is not read" if pickled else str(error)
    return f"{type(error).__name__}: {error}"


def reason_of_system(error: OSError) -> str:
    """Return the operating system's message as a part of a sentence; it names no file."""
    if isinstance(error, IsADirectoryError):
        return "a folder"
    if error.strerror:
        return error.strerror[:1].lower() + error.strerror[1:]
    return str(error) or type(error).__name__


class Terminated(KeyboardInterrupt):
    """SIGTERM, by which ``kill`` and service managers end a process; it is handled as Ctrl-C is."""


def terminated(*_: object) -> NoReturn:
    """Handle SIGTERM: raise :class:`Terminated`."""
    raise Terminated


def interruption(error: BaseException | None) -> KeyboardInterrupt | None:
    """Return the Ctrl-C or SIGTERM that led to an error; None if neither did.

    Some libraries take Ctrl-C for a fault of what they work on, and raise an error of their own:
    torch in an export, pydantic in a serializer, Python while it makes a class.
    """
    while error and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error if isinstance(error, KeyboardInterrupt) else None

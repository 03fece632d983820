"""The ``fedward`` command."""

import argparse
import errno
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NoReturn

from fedward.code_version import code_version
from fedward.errors import (
    ConfigError,
    FedwardError,
    Terminated,
    did_you_mean,
    interruption,
    reason_of_system,
    terminated,
)
from fedward.terminal import complain, printing_safely, read_numbers

_COMMANDS = {
    "run": (
        "lab.fedward_run:add_run",
        "run a job in this process, or resume a run",
    ),
    "settings": (
        "operation.settings_command:add_settings",
        "list what --set changes, and a job's settings beside its paper's",
    ),
    "bench": (
        "lab.bench.command:add_bench",
        "compare methods over several seeds, and show what has converged",
    ),
    "partition": (
        "lab.partition.command:add_partition",
        "write site files that cut a data set into sites",
    ),
    "jobs": (
        "lab.job_command:add_jobs",
        "export the jobs, or check that exported ones are fresh",
    ),
    "submit": (
        "flare.job_commands:add_submit",
        "send a clinical job to a running federation, wait, fetch its run",
    ),
    "approve": (
        "flare.job_commands:add_approve",
        "let a job run at a site whose policy asks for approval",
    ),
    "doctor": (
        "operation.site_commands:add_doctor",
        "check a site's data, or a FLARE startup kit, before it joins",
    ),
    "survey": (
        "operation.site_commands:add_survey",
        "count what sites hold, before they train: classes, patients, brightness",
    ),
    "status": (
        "operation.finished_run_commands:add_status",
        "show how far a run is, or all jobs that run in a federation",
    ),
    "report": ("operation.finished_run_commands:add_report", "write report.html of a run again"),
    "evaluate": (
        "inference.command:add_evaluate",
        "measure a finished run's model at a site, also one that never joined",
    ),
    "predict": ("inference.command:add_predict", "ask a finished run's model about images"),
    "export": (
        "inference.command:add_export",
        "write a finished run's model as ONNX, TorchScript or a MONAI bundle",
    ),
    "audit": ("operation.finished_run_commands:add_audit", "check a run's audit log"),
    "runs": (
        "operation.finished_run_commands:add_runs",
        "list runs and their models, with what they came from",
    ),
    "prune": (
        "operation.finished_run_commands:add_prune",
        "list what old runs and kits no longer need, or remove it",
    ),
    "revoke": (
        "operation.finished_run_commands:add_revoke",
        "make the server or a site refuse users who left or whose key is lost",
    ),
    "annotate": (
        "annotation.command:add_annotate",
        "answer a federation's queries on a site's images, in a browser",
    ),
}
"""Name -> (the function in the package that adds its arguments, what the subcommand does).

Only the module of the one that is called is imported."""

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DISK_ERRORS = {*_NO_ROOM, errno.EIO, errno.EROFS}
"""Errors of a disk, which the operating system may report without naming a file."""

_NO_TEMPORARY_FOLDER = "temporary directory"
"""In the errors of Python and matplotlib if none can be written; they have no number."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: the words after ``fedward``; by default those of this process.

    Returns:
        0: done; 1: the run or its data failed; 2: wrong use; 130: interrupted by Ctrl-C; 143:
        ended by SIGTERM.
    """
    words = sys.argv[1:] if arguments is None else arguments
    with printing_safely():
        with _ending_at_once():
            options = _parser(words).parse_args(words)
        with _terminated_as_interrupted():
            return _run(options)


def _run(options: argparse.Namespace) -> int:
    """Run the subcommand that the options name, and return the command's exit status."""
    code = 1  # What remains if the reader of the output leaves before the subcommand returns.
    try:
        code = options.command(options)
        # Flushed here: an error at the interpreter's end would be reported in its own words.
        sys.stdout.flush()
    except KeyboardInterrupt as stop:
        code = _stopped(stop, options)
    except BrokenPipeError:  # The reader has seen enough, as in `fedward doctor KIT | head`.
        _drop_output()
    except Exception as error:
        stop_before = interruption(error)
        code = _stopped(stop_before, options) if stop_before else _failure(error, options)
    return code


def _failure(error: Exception, options: argparse.Namespace) -> int:
    """Say what ended the subcommand and what to do; return the exit status.

    An error that only the code can cause is raised again.
    """
    if isinstance(error, FedwardError):
        complain(str(error))
        return 2 if isinstance(error, ConfigError) else 1
    if isinstance(error, UnicodeEncodeError):
        complain(_unwritten(error))
    elif isinstance(error, OSError) and _is_of_files(error):
        complain(str(_explained(error, options)))
    else:
        raise error
    return 1


def _stopped(stop: KeyboardInterrupt, options: argparse.Namespace) -> int:
    """Say that Ctrl-C or SIGTERM ended the subcommand and how to go on; return the exit status."""
    complain(f"interrupted{options.hint()}")
    return 128 + (signal.SIGTERM if isinstance(stop, Terminated) else signal.SIGINT)


def _unwritten(error: UnicodeEncodeError) -> str:
    """Return what to do about a path or name with letters that this process cannot write."""
    near = error.object[max(0, error.start - 20) : error.end + 20]
    remedy = "Rename it in UTF-8."
    if sys.getfilesystemencoding() != "utf-8":
        remedy = "Set PYTHONUTF8=1 and LC_ALL=C.UTF-8, or use names of ASCII letters alone."
    return (
        f"{near!a}: expected a path or name that can be written in "
        f"{sys.getfilesystemencoding()}, found other letters. {remedy}"
    )


@contextmanager
def _ending_at_once() -> Iterator[None]:
    """Let Ctrl-C end the process with one line; libraries being imported would print tracebacks."""
    before = signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end(*_: object) -> NoReturn:
    os.write(2, b"fedward: interrupted\n")
    os._exit(130)


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Let SIGTERM end the subcommand as Ctrl-C does, unless the process ignores or handles it."""
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, terminated)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _is_of_files(error: OSError) -> bool:
    """Return whether the operating system refused a file, in contrast to a connection."""
    of_disk = error.filename is not None or error.errno in _DISK_ERRORS
    return of_disk or _NO_TEMPORARY_FOLDER in str(error)


def _explained(error: OSError, options: argparse.Namespace) -> FedwardError:
    """Return an error that names the file, or the folder or stream that the command writes."""
    if _NO_TEMPORARY_FOLDER in str(error):
        return FedwardError(
            "This machine has no folder for temporary files that can be written",
            "Set TMPDIR to one that can.",
        )
    place = error.filename or getattr(options, options.written, None)
    try:
        sys.stdout.flush()
    except OSError:
        place = "standard output"
        _drop_output()
    is_file = isinstance(error, FileExistsError | NotADirectoryError)
    file = _file_at(Path(place)) if place and is_file else None
    if file:
        return FedwardError(
            str(file),
            expected="a folder, or a place for one",
            found="a file of that name",
            remedy="Name a folder, or rename the file.",
        )
    remedy = "Name another folder, or let this account read and write this one."
    if error.errno in _DISK_ERRORS:
        cure = "Make room there" if error.errno in _NO_ROOM else "Mend the disk"
        hint = options.hint()
        remedy = f"{cure}{hint}" if hint else f"{cure}, or name another folder."
    return FedwardError(
        str(place or "standard output"),
        expected="a place that can be read and written",
        found=reason_of_system(error),
        remedy=remedy,
    )


def _file_at(place: Path) -> Path | None:
    """Return the path, or the first of its parents, that is a file; None if none of them is."""
    # Path.is_file raises where a folder may not be entered.
    return next((part for part in (place, *place.parents) if os.path.isfile(part)), None)


def _drop_output() -> None:
    """Discard what is still to be printed: the interpreter would fail over it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Parser(argparse.ArgumentParser):
    """Refuses what it does not know in a line or two, and suggests what is similar.

    The beginning of an option is no option: what it stands for could change with the next version.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.allow_abbrev = False
        read_numbers(self)

    def error(self, message: str) -> NoReturn:
        """End the process with a message; the usage of a subcommand may take up a terminal."""
        self.exit(2, f"{self.prog}: {message}. `{self.prog} --help` says what there is.\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self._subparsers is None:
            self._refuse_unknown_options(args)
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self._refuse(unknown[0])
        return options, unknown

    def _refuse_unknown_options(self, words: Sequence[str]) -> None:
        """Refuse the first option that there is not, before a required one is missed instead."""
        for word in words:
            name = word.partition("=")[0]
            if word == "--":
                return
            # A word with spaces is a value.
            is_option = word.startswith("--") and " " not in word
            if is_option and name not in self._option_string_actions:
                self._refuse(name)

    def _refuse(self, word: str) -> NoReturn:
        suggestion = did_you_mean(word, self._option_string_actions)
        longer = [name for name in self._option_string_actions if name.startswith(word)]
        if longer:
            # A short beginning is not like the whole name.
            suggestion = f" (did you mean {' or '.join(longer)}?)"
        self.error(f"no such argument: {word}{suggestion}")


class _ShowVersion(argparse.Action):
    """Prints the version, which no other command has to compute."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Print the version, and exit."""
        print(f"fedward {code_version()}")
        parser.exit()


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """Return a parser that lists all subcommands, with the arguments of the one that is called."""
    parser = _Parser(
        "fedward", description="Federated learning for hospitals that are short of labels."
    )
    # ``written``: the argument that says where a command writes, for errors that name no file.
    # ``hint``: a function that returns how to go on after an end before time; it continues a text.
    parser.set_defaults(hint=lambda: "", written="out")
    parser.add_argument("--version", action=_ShowVersion, nargs=0, help="show the version")
    called = next((word for word in words if not word.startswith("-")), "")
    _add_commands(parser, called)
    if not words:
        parser.print_help(sys.stderr)
        parser.exit(2)
    if called and called not in _COMMANDS:
        suggestion = did_you_mean(called, _COMMANDS)
        parser.error(f"there is no command {called}{suggestion}")
    return parser


def _add_commands(parser: argparse.ArgumentParser, called: str) -> None:
    """Add all subcommands to a parser, but the arguments of only the one that is called."""
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, (add_arguments, about) in _COMMANDS.items():
        description = f"{about[0].upper()}{about[1:]}."
        command = commands.add_parser(name, help=about, description=description)
        if name == called:
            resolve_name(f"fedward.{add_arguments}")(command)

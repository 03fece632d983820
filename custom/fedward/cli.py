"""The ``fedward`` command."""

import argparse
import errno
import os
import signal
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pkgutil import resolve_name
from typing import Any, NoReturn

from safetensors import SafetensorError

from fedward import __version__
from fedward.errors import ConfigError, FedwardError, did_you_mean
from fedward.terminal import complain, printing_safely

_COMMANDS = {
    "run": (
        "lab.run_command:add_run",
        "run a job in this process or in the FLARE simulator, or resume a run",
    ),
    "bench": (
        "lab.bench.command:add_bench",
        "compare methods over several seeds, and show what has converged",
    ),
    "partition": (
        "lab.partition.command:add_partition",
        "write site files that cut a data set into sites",
    ),
    "jobs": ("flare.command:add_jobs", "export the jobs, or check that exported ones are fresh"),
    "submit": (
        "flare.command:add_submit",
        "send a clinical job to a running federation, wait, fetch its run",
    ),
    "approve": (
        "flare.command:add_approve",
        "let a job run at a site whose policy asks for approval",
    ),
    "doctor": (
        "operation.command:add_doctor",
        "check a site's data, or a FLARE startup kit, before it joins",
    ),
    "survey": (
        "operation.command:add_survey",
        "count what sites hold, before they train: classes, patients, brightness",
    ),
    "status": (
        "operation.command:add_status",
        "show how far a run is, or all jobs that run in a federation",
    ),
    "report": ("operation.command:add_report", "write report.html of a run anew"),
    "evaluate": (
        "inference.command:add_evaluate",
        "measure a finished run's model at a site, also one that never joined",
    ),
    "predict": ("inference.command:add_predict", "ask a finished run's model about images"),
    "export": (
        "inference.command:add_export",
        "write a finished run's model as ONNX, TorchScript or a MONAI bundle",
    ),
    "audit": ("operation.command:add_audit", "check a run's audit log"),
    "runs": ("operation.command:add_runs", "list runs and their models, with what they came from"),
    "prune": (
        "operation.command:add_prune",
        "list what old runs and kits no longer need, or remove it",
    ),
    "revoke": (
        "operation.command:add_revoke",
        "make the server refuse users who left or whose key is lost",
    ),
    "annotate": (
        "annotation.command:add_annotate",
        "answer a federation's queries on a site's images, in a browser",
    ),
}
"""Name -> what adds its arguments, in the package, and what it does. Only the one that is called is
imported.
"""

_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}
"""What the operating system says of a disk without naming a file."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 done, 1 the run or its data failed, 2 wrong use, 130 interrupted."""
    with printing_safely():
        return _main(arguments)


def _main(arguments: Sequence[str] | None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    with _ending_at_once():
        options = _parser(words).parse_args(words)
        code = 1
    try:
        code = options.command(options)
        sys.stdout.flush()  # here, since what fails at the interpreter's end is told in its words
    except FedwardError as error:
        complain(str(error))
        return 2 if isinstance(error, ConfigError) else 1
    except KeyboardInterrupt:
        complain(f"interrupted{options.hint}")
        return 130
    except BrokenPipeError:  # the reader has seen enough, as in `fedward doctor KIT | head`
        _drop_output()
    except (OSError, SafetensorError) as error:
        if not _of_files(error):
            raise
        complain(str(_explained(error, options)))
        return 1
    return code


@contextmanager
def _ending_at_once() -> Iterator[None]:
    """Let Ctrl-C end the process in one line: libraries that are being imported would tell it in
    many of theirs.
    """
    before = signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end(*_: object) -> NoReturn:
    os.write(2, b"fedward: interrupted\n")
    os._exit(130)


def _of_files(error: OSError | SafetensorError) -> bool:
    """Return whether the operating system refused a file; a network's refusal is another matter."""
    if isinstance(error, OSError):
        return error.filename is not None or error.errno in _DISK
    return "os error" in str(error)  # safetensors hands on what the system said, in its own words


def _explained(error: OSError | SafetensorError, options: argparse.Namespace) -> FedwardError:
    """Return what was refused and where: a file, or the folder or stream that the command writes."""
    where = getattr(error, "filename", None) or getattr(options, "out", None) or "standard output"
    try:
        sys.stdout.flush()
    except OSError:
        where = "standard output"
        _drop_output()
    expected = "a place that can be read and written"
    found = getattr(error, "strerror", None) or str(error)
    return FedwardError(
        str(where),
        expected=expected,
        found=found,
        remedy="Make room there, or name another folder.",
    )


def _drop_output() -> None:
    """Send what is still to be printed nowhere: the interpreter would fail over it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Parser(argparse.ArgumentParser):
    """Refuses an unknown option with the usage of its subcommand and the option that is most like
    it.
    """

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(
                f"no such argument: {unknown[0]}{did_you_mean(unknown[0], self._option_string_actions)}"
            )
        return options, unknown


def _parser(words: Collection[str]) -> argparse.ArgumentParser:
    """Return a parser that knows all subcommands, and the arguments of those that are among the
    words.
    """
    about = "Federated learning for hospitals that are short of labels."
    parser = _Parser("fedward", description=about)
    parser.set_defaults(hint="")
    parser.add_argument("--version", action="version", version=f"fedward {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    first = next((word for word in words if not word.startswith("-")), "")
    if first and first not in _COMMANDS:
        parser.error(
            f"there is no command {first}{did_you_mean(first, _COMMANDS)}; fedward --help lists all"
        )
    for name, (target, about) in _COMMANDS.items():
        command = commands.add_parser(
            name, help=about, description=f"{about[0].upper()}{about[1:]}."
        )
        if name in words:
            resolve_name(f"fedward.{target}")(command)
    if not words:
        parser.print_help(sys.stderr)
        parser.exit(2)
    return parser

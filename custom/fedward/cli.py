"""The ``fedward`` command."""

import argparse
import errno
import os
import sys
from collections.abc import Sequence

from safetensors import SafetensorError

from fedward import __version__
from fedward.annotation.command import add_annotate
from fedward.errors import ConfigError, FedwardError
from fedward.flare.command import add_flare
from fedward.operation.command import add_operation
from fedward.run_command import add_run
from fedward.sites.command import add_partition
from fedward.terminal import printing_safely

_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}
"""What the operating system says of a disk without naming a file."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 done, 1 the run or its data failed, 2 wrong use, 130 interrupted."""
    with printing_safely():
        return _main(arguments)


def _main(arguments: Sequence[str] | None) -> int:
    options, code = _parser().parse_args(arguments), 1
    try:
        code = options.command(options)
        sys.stdout.flush()  # here, since what fails at the interpreter's end is told in its words
    except FedwardError as error:
        print(f"fedward: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    except KeyboardInterrupt:
        print(f"fedward: interrupted{options.hint}", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader has seen enough, as in `fedward doctor KIT | head`
        _drop_output()
    except (OSError, SafetensorError) as error:
        if not _of_files(error):
            raise
        print(f"fedward: {_explained(error, options)}", file=sys.stderr)
        return 1
    return code


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
    expected, found = "a place that can be read and written", getattr(error, "strerror", None) or str(error)
    return FedwardError(str(where), expected=expected, found=found, remedy="Make room there, or name another folder.")


def _drop_output() -> None:
    """Send what is still to be printed nowhere: the interpreter would fail over it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser() -> argparse.ArgumentParser:
    about = "Federated learning for hospitals that are short of labels."
    parser = argparse.ArgumentParser("fedward", description=about)
    parser.set_defaults(hint="")
    parser.add_argument("--version", action="version", version=f"fedward {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for add in (add_run, add_partition, add_flare, add_operation, add_annotate):
        add(commands)
    return parser

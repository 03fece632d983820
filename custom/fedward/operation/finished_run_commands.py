"""``fedward status``, ``report``, ``audit``, ``runs``, ``prune`` and ``revoke``.

The commands for runs that go on or have ended, and for the people who start them. Imports nothing
heavy before it runs.
"""

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedward.errors import ConfigError, FedwardError
from fedward.operation.folders import is_kit
from fedward.terminal import complain, one_line
from fedward.text import count

if TYPE_CHECKING:
    from fedward.storage.info import RunInfo


def add_status(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``status``."""
    parser.set_defaults(command=_status)
    parser.add_argument(
        "subject",
        type=Path,
        metavar="RUN_FOLDER|KIT",
        help="a run folder, or the startup kit of any user",
    )
    parser.add_argument(
        "job",
        nargs="?",
        metavar="JOB_ID",
        help="with a kit: only this job (default: all that run)",
    )


def add_report(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``report``."""
    parser.set_defaults(command=_report, written="run")
    parser.add_argument(
        "run",
        type=Path,
        metavar="RUN_FOLDER",
        help="the run, in whose folder report.html is written",
    )
    parser.add_argument(
        "--compare",
        type=Path,
        nargs="+",
        default=[],
        metavar="RUN_FOLDER",
        help="other runs to set beside it; runs of single sites show what joining brings "
        "(default: none)",
    )


def add_audit(parser: argparse.ArgumentParser) -> None:
    """Add the commands of ``audit``, each with its arguments."""
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    verify = commands.add_parser(
        "verify",
        help="check that a run is as it was written; if not, say why and exit with 1",
    )
    verify.set_defaults(command=_verify)
    verify.add_argument(
        "run",
        type=Path,
        nargs="?",
        metavar="RUN_FOLDER",
        help="the run to check (default: the sites' logs alone)",
    )
    verify.add_argument(
        "--site",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE",
        help="sites' logs of their answers (default: none)",
    )


def add_runs(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``runs``."""
    parser.set_defaults(command=_runs)
    parser.add_argument(
        "folders",
        type=Path,
        nargs="+",
        metavar="FOLDER",
        help="a run folder, or one with runs below it",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print all that is known of each run as JSON (default: a table)",
    )


def add_prune(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``prune``."""
    parser.set_defaults(command=_prune)
    parser.add_argument(
        "folder",
        type=Path,
        metavar="FOLDER",
        help="a kit, a run folder, or one with runs below it",
    )
    parser.add_argument(
        "--older-than",
        type=_days,
        default=180,
        metavar="DAYS",
        help="only what has not changed for this many days (default: 180d)",
    )
    parser.add_argument(
        "--models",
        action="store_true",
        help="also the models of old runs, whose audit logs then no longer verify "
        "(default: models stay)",
    )
    parser.add_argument(
        "--delete",
        action="store_true",
        help="remove what is listed (default: nothing is changed)",
    )


def add_revoke(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``revoke``."""
    parser.set_defaults(command=_revoke)
    parser.add_argument(
        "kit",
        type=Path,
        metavar="KIT",
        help="startup kit of the server or of a site, where the rule is written",
    )
    parser.add_argument(
        "names",
        nargs="+",
        metavar="USER",
        help="a user's name as in the certificate, such as lead@hospital-a.org",
    )


def _days(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,4}d", text):
        raise argparse.ArgumentTypeError(f"a number of days, such as 180d, not {text!r}")
    return int(text[:-1])


def _status(options: argparse.Namespace) -> int:
    if is_kit(options.subject):
        from fedward.flare.jobs import status
        from fedward.flare.jobs.remote import RemoteSession

        with RemoteSession(options.subject) as flare:
            lines = status.describe(flare, options.job)
    elif options.job:
        raise ConfigError(
            "fedward status",
            expected="a startup kit, a folder with startup/ in it",
            found=str(options.subject),
            remedy="Name the kit, or remove the job's id.",
        )
    else:
        from fedward.runs.standing import STOPPED, resuming
        from fedward.server import run_status
        from fedward.storage.info import read_info

        progress = run_status.progress(options.subject)
        lines = run_status.lines(progress)
        if progress["status"] in (STOPPED, "failed"):
            command = resuming(options.subject, read_info(options.subject))
            if command:
                lines.append(f"Next: {command}")
    print("\n".join(lines))
    return 0


def _report(options: argparse.Namespace) -> int:
    from fedward.report.rewriting import rewrite_report

    print(rewrite_report(options.run, _comparable(options.run, options.compare)))
    return 0


def _comparable(run: Path, others: Sequence[Path]) -> list[Path]:
    """Return the runs whose numbers say something beside a run's; say which are left out.

    Raises:
        ConfigError: one of them is the run itself.
    """
    from fedward.storage.info import read_info

    if not others:
        return []
    info = read_info(run)
    comparable = []
    for folder in others:
        other = read_info(folder)
        if other.id == info.id:
            raise ConfigError(
                f"--compare {folder}",
                "Name another run.",
                expected="another run",
                found="the run whose report is written",
            )
        if _answers(other) == _answers(info):
            comparable.append(folder)
        else:
            complain(
                f"{folder} is left out of the report: its model distinguishes other classes than "
                f"that of {run}, so their numbers cannot be compared"
            )
    return comparable


def _answers(info: "RunInfo") -> tuple[frozenset[str], bool]:
    """Return the classes of a run's model, and whether an image may show several."""
    data = info.experiment["data"]
    return frozenset(data["classes"]), bool(data.get("multi_label"))


def _verify(options: argparse.Namespace) -> int:
    from fedward.operation.audit_check import verify
    from fedward.operation.site_record import read_site_log

    if options.run:
        print(verify(options.run, options.site))
    elif options.site:
        records = [read_site_log(file) for file in options.site]
        which = "each log" if len(records) > 1 else "the log"
        print(f"Nothing was changed, as far as {which} alone can tell.", *records, sep="\n")
    else:
        raise ConfigError(
            "fedward audit verify needs a run folder, --site with sites' logs, or both",
            "Name the folder of a run, or answers/<run id>.jsonl of a site's own folder.",
        )
    return 0


def _runs(options: argparse.Namespace) -> int:
    from fedward.operation.runs import runs, table

    rows = runs(options.folders)
    print(json.dumps(rows, indent=1) if options.json else "\n".join(table(rows)))
    return 0


def _prune(options: argparse.Namespace) -> int:
    from fedward.operation.prune import find, remove

    found = find(options.folder, options.older_than, options.models)
    code = 0
    total = 0
    for item in found.items:
        _print_item(_megabytes(item.bytes), item.about, options.folder, item.path)
        try:
            if options.delete:
                remove(item)
            total += item.bytes
        except (FedwardError, OSError) as error:
            code = 1
            complain(one_line(f"{item.path} stays: {error}"))
    for kept in found.kept:
        _print_item("stays", kept.reason, options.folder, kept.path)
    if not found.items:
        print(f"nothing to remove is older than {count(options.older_than, 'day')}")
    elif options.delete:
        print(f"{_megabytes(total)}  removed")
    else:
        print(f"{_megabytes(total)}  could be removed; nothing was, add --delete")
    return code


def _print_item(size: str, about: str, folder: Path, path: Path) -> None:
    """Print two lines about a file or folder: size and content, and its path."""
    # The jobs of a server lie outside its kit.
    shown_path = path.relative_to(folder) if path.is_relative_to(folder) else path
    print(f"{size:>10}  {about}")
    print(f"{'':12}{one_line(str(shown_path))}")


def _megabytes(count: int) -> str:
    return f"{count / 1e6:>7.1f} MB"


def _revoke(options: argparse.Namespace) -> int:
    from fedward.operation.revoke import revoke

    print(f"{revoke(options.kit, options.names)} refuses them; restart this participant now")
    return 0

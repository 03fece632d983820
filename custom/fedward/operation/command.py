"""``fedward doctor``, ``status``, ``report``, ``audit``, ``runs``, ``prune``, ``revoke``.

Imports nothing heavy before it runs.
"""

import argparse
import json
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedward.config import DataSpec, explain
from fedward.errors import ConfigError, FedwardError


def add_operation(commands: Any) -> None:
    """Add the commands of whoever runs a site or a federation to the ``fedward`` command."""
    for add in (_add_doctor, _add_watching, _add_runs):
        add(commands)


def _add_doctor(commands: Any) -> None:
    doctor = commands.add_parser("doctor", help="check a site's data, or a FLARE startup kit, before it joins")
    doctor.add_argument("subject", type=Path, metavar="SITE_FILE|KIT", help="a site file, or the folder of a kit")
    doctor.add_argument("--job", type=Path, metavar="FOLDER", help="would this exported job run with the kit?")
    size, classes = DataSpec().image_size, DataSpec().classes
    doctor.add_argument("--image-size", type=int, default=size, help=f"the job's (default: {size} pixels)")
    doctor.add_argument(
        "--classes", nargs="+", default=list(classes), help=f"the job's (default: {', '.join(classes)})"
    )
    doctor.add_argument("--out", type=Path, default=Path(), help="folder for the contact sheet (default: this one)")
    doctor.set_defaults(command=_doctor)


def _add_watching(commands: Any) -> None:
    status = commands.add_parser("status", help="how far a run is, or the jobs that run in a federation")
    status.add_argument("subject", type=Path, metavar="RUN_FOLDER|KIT", help="a run folder, or a user's startup kit")
    status.add_argument("job", nargs="?", metavar="JOB_ID", help="with a kit: this job only")
    status.set_defaults(command=_status)

    report = commands.add_parser("report", help="write report.html of a run, compared with others if named")
    report.add_argument("run", type=Path, metavar="RUN_FOLDER", help="where report.html is written")
    report.add_argument("--compare", type=Path, nargs="+", default=[], metavar="RUN_FOLDER", help="drawn beside it")
    report.set_defaults(command=_report)

    audit = commands.add_parser("audit", help="check a run's audit log")
    verify = audit.add_subparsers(required=True, metavar="COMMAND").add_parser(
        "verify", help="check that a run is as it was written; exit code 1 and the first thing that is wrong, if not"
    )
    verify.add_argument("run", type=Path, nargs="?", metavar="RUN_FOLDER", help="default: the sites' logs alone")
    verify.add_argument("--site", type=Path, nargs="+", default=[], metavar="FILE", help="sites' logs of their answers")
    verify.set_defaults(command=_verify)


def _add_runs(commands: Any) -> None:
    runs = commands.add_parser("runs", help="list runs and their models, with what they came from")
    runs.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help="a run folder, or one with runs below it")
    runs.add_argument("--json", action="store_true", help="everything, for machines")
    runs.set_defaults(command=_runs)

    prune = commands.add_parser("prune", help="list what old runs and kits no longer need; --delete removes it")
    prune.add_argument("folder", type=Path, metavar="FOLDER", help="a kit, a run folder, or one with runs below it")
    prune.add_argument(
        "--older-than",
        type=_days,
        default=180,
        metavar="DAYS",
        help="only what has not changed for so long, such as 90d (default: 180d)",
    )
    prune.add_argument("--models", action="store_true", help="also the models; audit logs then verify no longer")
    prune.add_argument("--delete", action="store_true", help="remove it; without this option nothing is changed")
    prune.set_defaults(command=_prune)

    revoke = commands.add_parser("revoke", help="make the server refuse people, as when a key is lost")
    revoke.add_argument("kit", type=Path, metavar="KIT", help="the server's startup kit")
    revoke.add_argument("names", nargs="+", metavar="USER", help="such as lead@hospital-a.org")
    revoke.set_defaults(command=_revoke)


def _days(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}d", text):
        raise argparse.ArgumentTypeError(f"a number of days, such as 180d, not {text!r}")
    return int(text[:-1])


def _runs(options: argparse.Namespace) -> int:
    from fedward.operation.runs import runs, table

    found = runs(options.folders)
    print(json.dumps(found, indent=1) if options.json else "\n".join(table(found)))
    return 0


def _prune(options: argparse.Namespace) -> int:
    from fedward.operation.prune import find, remove

    found, failed, total = find(options.folder, options.older_than, options.models), 0, 0
    for item in found.items:
        print(f"{_size(item.bytes)}  {item.about}\n{'':12}{_below(options.folder, item.path)}")
        try:
            if options.delete:
                remove(item)
            total += item.bytes
        except (FedwardError, OSError) as error:
            failed += 1
            print(f"fedward: {item.path} stays: {error}", file=sys.stderr)
    for kept in found.kept:
        print(f"{'stays':>10}  {kept.reason}\n{'':12}{_below(options.folder, kept.path)}")
    done = "removed" if options.delete else "could be removed; nothing was, add --delete"
    print(f"{_size(total)}  {done}" if found.items else f"nothing to remove is older than {options.older_than} days")
    return int(failed > 0)


def _revoke(options: argparse.Namespace) -> int:
    from fedward.operation.revoke import revoke

    print(f"{revoke(options.kit, options.names)} refuses them; restart the server now")
    return 0


def _below(folder: Path, path: Path) -> Path:
    """Return a path from a folder on; the server's store of jobs lies elsewhere."""
    return path.relative_to(folder) if path.is_relative_to(folder) else path


def _size(count: int) -> str:
    return f"{count / 1e6:>7.1f} MB"


def _doctor(options: argparse.Namespace) -> int:
    from fedward.sites.doctor import run

    if (options.subject / "startup").is_dir():
        from fedward.flare.kits import doctor

        return doctor.run(options.subject, options.job)
    if options.job:
        expected = "a startup kit, a folder with startup/ in it"
        remedy = "Name the kit; a site file says nothing about jobs."
        raise ConfigError("fedward doctor --job", expected=expected, found=str(options.subject), remedy=remedy)
    try:
        spec = DataSpec(classes=tuple(options.classes), image_size=options.image_size)
    except ValidationError as error:
        raise explain(error, "fedward doctor") from error
    return run(options.subject, spec, options.out)


def _status(options: argparse.Namespace) -> int:
    if (options.subject / "startup").is_dir():
        from fedward.flare.jobs import status
        from fedward.flare.jobs.submit import session

        with redirect_stdout(sys.stderr), session(options.subject) as flare:  # FLARE prints that it connects
            found = status.describe(flare, options.job)
        print("\n".join(found))
        return 0
    if options.job:
        expected = "a user's startup kit before a job's id, a folder with startup/ in it"
        remedy = "Name the kit; a run folder is one run."
        raise ConfigError("fedward status", expected=expected, found=str(options.subject), remedy=remedy)
    from fedward.server.progress import lines, progress

    print("\n".join(lines(progress(options.subject))))
    return 0


def _report(options: argparse.Namespace) -> int:
    from fedward.operation.reports import rewrite_report

    options.out = options.run
    print(rewrite_report(options.run, options.compare))
    return 0


def _verify(options: argparse.Namespace) -> int:
    from fedward.operation.audit_check import verify
    from fedward.operation.site_check import read_site_log

    if options.run:
        print(verify(options.run, options.site))
    elif options.site:
        print("\n".join(str(read_site_log(file)) for file in options.site))
    else:
        expected = "a run folder, --site with sites' logs, or both"
        remedy = "Name the folder of a run, or answers/<run id>.jsonl of a site's own folder."
        raise ConfigError("fedward audit verify", expected=expected, found="neither", remedy=remedy)
    return 0

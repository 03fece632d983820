"""``fedward runs``, ``prune`` and ``revoke``. Imports nothing heavy before it runs."""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from fedward.errors import FedwardError


def add_operation(commands: Any) -> None:
    """Add ``runs``, ``prune`` and ``revoke`` to the ``fedward`` command."""
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

"""Audit logs as the one who runs the server can write them: another history with all its hashes."""

import json
from pathlib import Path
from typing import Any

from fedward.digests import digest
from fedward.storage.audit import LOG

Rows = list[dict[str, Any]]


def log_of(folder: Path) -> Rows:
    return lines_of(folder / LOG)


def lines_of(path: Path) -> Rows:
    return [json.loads(line) for line in path.read_text().splitlines()]


def write(folder: Path, rows: Rows) -> None:
    (folder / LOG).write_text("".join(canonical(row) + "\n" for row in rows))


def canonical(row: dict[str, Any]) -> str:
    return json.dumps(row, sort_keys=True, separators=(",", ":"))


def chained(rows: Rows, run: str) -> Rows:
    """What a server writes that makes up another history with all its hashes."""
    previous = run
    found = []
    for seq, row in enumerate(rows, 1):
        rest = {key: value for key, value in row.items() if key != "hash"} | {
            "seq": seq,
            "previous": previous,
        }
        found.append({**rest, "hash": digest(rest)})
        previous = found[-1]["hash"]
    return found


def rewrite(folder: Path, rows: Rows) -> None:
    """Make up a history as the one who runs the server can: all hashes, and run.json too."""
    info = json.loads((folder / "run.json").read_text())
    found = chained(rows, info["id"])
    write(folder, found)
    end = {"lines": len(found), "last_hash": found[-1]["hash"]}
    (folder / "run.json").write_text(json.dumps({**info, "audit": end}))

"""Audit logs as the server's operator can forge them: another history with all its hashes."""

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
    """Return rows with the numbers and hashes that make them a whole log of a run."""
    previous = run
    forged = []
    for seq, row in enumerate(rows, 1):
        content = {**row, "seq": seq, "previous": previous}
        content.pop("hash", None)
        previous = digest(content)
        forged.append({**content, "hash": previous})
    return forged


def rewrite(folder: Path, rows: Rows) -> None:
    """Forge a history as the server's operator can: with all hashes, and run.json too."""
    info = json.loads((folder / "run.json").read_text())
    forged = chained(rows, info["id"])
    write(folder, forged)
    end = {"lines": len(forged), "last_hash": forged[-1]["hash"]}
    (folder / "run.json").write_text(json.dumps({**info, "audit": end}))

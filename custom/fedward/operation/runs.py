"""A list of all runs below some folders, with the origin of each model."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedward.digests import file_digest
from fedward.errors import ConfigError, FedwardError
from fedward.operation.audit_check import verify
from fedward.operation.folders import run_folders
from fedward.server.run_status import progress
from fedward.storage.run_folder import RunFolder
from fedward.terminal import fold, one_line

_INDENT = " " * 11

_COLUMNS = {
    "started": 10,
    "status": 10,
    "method": 10,
    "net": 14,
    "sites": 5,
    "rounds": 9,
    "model": 8,
    "audit": 6,
}
"""Name of a column of the table -> its width."""


def runs(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Return a description of each run below the folders, the oldest first, as JSON values.

    ``started``, ``status``, ``reason``, ``method``, ``round``, ``rounds``, ``metric``, ``best``,
    ``last``
        as in :func:`fedward.server.run_status.progress`.
    ``folder``, ``job``
        the run folder, and its name.
    ``ended``, ``id``, ``engine``, ``net``, ``seed``, ``sites``, ``versions``
        as in run.json; ``sites`` are names.
    ``model``
        SHA-256 of the last model; None if there is none.
    ``init``
        SHA-256 of the weights that the run started from; None if they were new.
    ``audit``
        ``verified``, or what is wrong with the audit log or the files it names.
    ``error``
        why all else is missing, for a run that cannot be read.

    Raises:
        ConfigError: a folder that holds no run.
    """
    descriptions: dict[Path, dict[str, Any]] = {}
    for folder in folders:
        paths = list(run_folders(folder))
        if not paths:
            raise ConfigError(
                str(folder),
                expected="a run folder, or one with some",
                found="none",
                remedy=(
                    "Name a run folder, or one with runs below it, "
                    "such as fedward/runs of the server's kit."
                ),
            )
        for path in paths:
            descriptions[path.resolve()] = _description(path)
    return sorted(descriptions.values(), key=lambda run: (run["started"], run["folder"]))


def _description(folder: Path) -> dict[str, Any]:
    place: dict[str, Any] = {"folder": str(folder), "job": folder.name, "started": ""}
    try:
        return {**place, **_read(folder)}
    except Exception as error:  # One broken run must not hide all others.
        return {**place, "status": "unreadable", "error": str(error) or type(error).__name__}


def _read(folder: Path) -> dict[str, Any]:
    run = RunFolder.reopen(folder)
    state = progress(folder)
    info = run.info
    model = folder / "model.safetensors"
    try:
        verify(folder)
        audit = "verified"
    except FedwardError as error:
        audit = str(error)
    return {
        "started": state["started"],
        "status": state["status"],
        "reason": state["reason"],
        "method": state["method"],
        "round": state["round"],
        "rounds": state["rounds"],
        "metric": state["metric"],
        "best": state["best"],
        "last": state["last"],
        "ended": info.ended,
        "id": info.id,
        "engine": info.engine,
        "net": run.experiment.net,
        "seed": run.experiment.seed,
        "sites": run.sites,
        "model": file_digest(model) if model.is_file() else None,
        "init": (info.init or {}).get("sha256"),
        "versions": info.versions,
        "audit": audit,
    }


def table(descriptions: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the runs as a table of at most 80 columns, with further lines below each row."""
    lines = [_row({name: name for name in _COLUMNS})]
    for run in descriptions:
        lines += _lines(run)
    return lines


def _lines(run: Mapping[str, Any]) -> list[str]:
    if "error" in run:
        return [
            f"{'':<10} unreadable",
            *_indented(run["folder"]),
            *_indented(one_line(run["error"])),
        ]
    audited = run["audit"] == "verified"
    cells = {
        "started": run["started"][:10],
        "status": run["status"],
        "method": run["method"],
        "net": run["net"],
        "sites": str(len(run["sites"])),
        "rounds": f"{run['round']}/{run['rounds']}",
        "model": (run["model"] or "none")[:8],
        "audit": "ok" if audited else "WRONG",
    }
    best = run["best"]
    quality = "no validation result"
    if best:
        quality = f"best {run['metric']} {best['value']:.3f} after round {best['round']}"
    weights = f"weights from {run['init'][:8]}" if run["init"] else "fresh weights"
    version = f"fedward {run['versions'].get('fedward', 'unknown')}"
    lines = [_row(cells), *_indented(run["folder"])]
    lines += _indented(f"{quality}; {weights}; {version}")
    if not audited:
        lines += _indented(one_line(run["audit"]))
    return lines


def _row(cells: Mapping[str, str]) -> str:
    columns = [_fitted(one_line(cells[name]), width) for name, width in _COLUMNS.items()]
    return " ".join(columns).rstrip()


def _fitted(text: str, width: int) -> str:
    """Return a text of exactly ``width`` characters; one that is cut ends with ``~``."""
    return text.ljust(width) if len(text) <= width else f"{text[: width - 1]}~"


def _indented(text: str) -> list[str]:
    return fold(text, first=_INDENT, others=_INDENT)

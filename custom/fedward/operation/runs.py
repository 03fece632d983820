"""All runs below some folders, and where each model comes from."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedward.digests import file_digest
from fedward.errors import ConfigError, FedwardError
from fedward.operation.audit_check import verify
from fedward.operation.folders import run_folders
from fedward.server.progress import progress
from fedward.storage.run_folder import RunFolder
from fedward.terminal import one_line

_WIDTH = 80
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


def runs(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Return what is known of each run below the folders, the oldest first, JSON-able.

    ``started``, ``status``, ``reason``, ``method``, ``round``, ``rounds``, ``metric``, ``best``,
        ``last`` as in :func:`fedward.server.progress.progress`.
    ``folder``, ``job``, ``ended``, ``id``, ``engine``, ``net``, ``seed``, ``sites``, ``versions``
        where it lies, and the name of that folder; what run.json says. ``sites`` are names.
    ``model``, ``init`` SHA-256 of the last model, None if it is not there; of the weights that the
        run started from, None if fresh.
    ``audit``
        ``verified``, or what is wrong with the audit log or the files it names.
    ``error``
        why the rest is missing, for a run that cannot be read.

    Raises:
        ConfigError: a folder that holds no run.
    """
    found: dict[Path, dict[str, Any]] = {}
    for folder in folders:
        below = list(run_folders(folder))
        if not below:
            remedy = "Name a run folder, or one with runs below it, such as fedward/runs of the server's kit."
            raise ConfigError(
                str(folder), expected="a run folder, or one with some", found="none", remedy=remedy
            )
        found |= {path.resolve(): _described(path) for path in below}
    return sorted(found.values(), key=lambda run: (run["started"], run["folder"]))


def _described(folder: Path) -> dict[str, Any]:
    about: dict[str, Any] = {"folder": str(folder), "job": folder.name, "started": ""}
    try:
        return {**about, **_read(folder)}
    except (
        Exception
    ) as error:  # whatever is wrong with one of many runs, it must not hide the others
        return {**about, "status": "unreadable", "error": str(error) or type(error).__name__}


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
    same = ("started", "status", "reason", "method", "round", "rounds", "metric", "best", "last")
    return {
        **{name: state[name] for name in same},
        "ended": info.ended,
        "id": run.info.id,
        "engine": info.engine,
        "net": run.experiment.net,
        "seed": run.experiment.seed,
        "sites": run.sites,
        "model": file_digest(model) if model.is_file() else None,
        "init": (info.init or {}).get("sha256"),
        "versions": info.versions,
        "audit": audit,
    }


def table(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the runs as a table of at most 80 columns: a row for each, and below it what does not
    fit.
    """
    return [
        _row({name: name for name in _COLUMNS}),
        *(line for run in found for line in _lines(run)),
    ]


def _lines(run: Mapping[str, Any]) -> list[str]:
    if "error" in run:
        return [f"{'':<10} unreadable", *_below(run["folder"]), *_below(one_line(run["error"]))]
    audited = run["audit"] == "verified"
    cells = {
        **{name: run[name] for name in ("status", "method", "net")},
        "started": run["started"][:10],
        "sites": str(len(run["sites"])),
        "rounds": f"{run['round']}/{run['rounds']}",
        "model": (run["model"] or "none")[:8],
        "audit": "ok" if audited else "WRONG",
    }
    version = f"fedward {run['versions'].get('fedward', 'unknown')}"
    weights = f"weights from {run['init'][:8]}" if run["init"] else "fresh weights"
    best = run["best"]
    judged = (
        f"best {run['metric']} {best['value']:.3f} after round {best['round']}"
        if best
        else "not judged"
    )
    below = [*_below(run["folder"]), *_below(f"{judged}; {weights}; {version}")]
    return [_row(cells), *below, *([] if audited else _below(one_line(run["audit"])))]


def _row(cells: Mapping[str, str]) -> str:
    return " ".join(_cut(one_line(cells[name]), width) for name, width in _COLUMNS.items()).rstrip()


def _cut(text: str, width: int) -> str:
    return text.ljust(width) if len(text) <= width else f"{text[: width - 1]}~"


def _below(text: str) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, initial_indent=" " * 11, subsequent_indent=" " * 11, break_on_hyphens=False
    )

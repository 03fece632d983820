"""What all benchmarks ask of their runs: the settings, weights and images asked for, and every site at work."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from fedward.bench.runs import require_same
from fedward.config import Experiment
from fedward.errors import RunError
from fedward.report.run import Run
from fedward.report.tables import took_no_step

Cell = TypeVar("Cell")


def without_result(
    cells: Iterable[Cell],
    result_file: Callable[[Cell], Path],
    experiment_of: Callable[[Cell], Experiment],
    init_of: Callable[[Cell], Path | None] = lambda cell: None,
) -> list[Cell]:
    """Return the cells that have no result yet; raise as :func:`require_same` does for any run that has begun."""
    missing = []
    for cell in cells:
        file = result_file(cell)
        for run in file.parent.glob("run*/run.json"):
            require_same(run.parent, experiment_of(cell), init_of(cell))
        missing += [] if file.exists() else [cell]
    return missing


def read_results(cells: Iterable[Cell], result_file: Callable[[Cell], Path]) -> list[dict[str, Any]]:
    """Return the results of the cells that have one; raise RunError where one cannot be read."""
    return [_result(file) for file in map(result_file, cells) if file.exists()]


def _result(file: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(file.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise RunError(
            f"result {file}",
            expected="JSON as a benchmark writes it",
            found=f"{type(error).__name__}: {error}",
            remedy="Delete the file and run the benchmark again: the run beside it is kept.",
        ) from error


def require_all(run: Run, sites: Iterable[str], *, may_decline: bool = False) -> None:
    """Raise RunError unless a run has finished, each of ``sites`` has trained, and all sites evaluated the last model.

    A run that lacks a site would stand among whole ones. ``may_decline``: a site that has nothing to train on in an
    exchange is none that failed.
    """
    if run.info.status != "finished":
        remedy = "Fix what stopped it, and run the benchmark again: the run goes on."
        raise RunError(f"run {run.folder}", expected="one that has finished", found=run.info.status, remedy=remedy)
    remedy = "Fix what failed, delete the folder, and run the benchmark again."
    for row in run.rounds:
        failed = {site: row.failed[site] for site in sites if site in row.failed}
        if may_decline:
            failed = {site: reason for site, reason in failed.items() if not took_no_step(reason)}
        if failed:
            where = f"run {run.folder}, round {row.round}"
            raise RunError(where, expected="all sites to train", found=_listed(failed), remedy=remedy)
    if not_evaluated := run.info.summary.not_evaluated:
        where = f"run {run.folder}, last evaluation"
        raise RunError(where, expected="all sites to evaluate the model", found=_listed(not_evaluated), remedy=remedy)


def _listed(failed: Mapping[str, str]) -> str:
    return "; ".join(f"{site}: {reason}" for site, reason in failed.items())

"""Results of the papers' benchmarks: which cells have none yet, and what the others say."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from fedward.bench.runs import require_same
from fedward.config import Experiment
from fedward.errors import RunError

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

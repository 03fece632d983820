"""What a study will cost here: its missing runs, and the time of a few rounds of each row."""

import io
import tempfile
import time
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedward.console.listener import Listener
from fedward.lab.bench.markdown import Table
from fedward.lab.bench.reference_runs import missing_references, run_references
from fedward.lab.bench.study_parts import Cell
from fedward.lab.simulation import Simulation
from fedward.methods import method_of
from fedward.storage.rows import RoundRow, read_rows
from fedward.text import count

if TYPE_CHECKING:
    from fedward.lab.bench.runs import Bench

TIMED_ROUNDS = 3
"""Rounds that are timed; models are evaluated before the first one, and after the second."""


class _Enough(Exception):  # noqa: N818 - not an error
    """Enough rounds have been timed."""


class _Stopwatch(Listener):
    """Ends a run after a few rounds."""

    def round(self, row: RoundRow, kept: float | None = None) -> None:
        """Raise in the round after the last timed one.

        The rows of a round are on disk once the next round has begun.
        """
        if row.round > TIMED_ROUNDS:
            raise _Enough


@dataclass(frozen=True)
class Timed:
    """How long a run takes, by its first rounds."""

    start: float
    """Seconds before the second round, for reading images and building networks."""
    round: float
    """Seconds of a round."""
    evaluation: float
    """Seconds of an evaluation at all sites."""

    def seconds(self, rounds: int, every: int) -> float:
        """Return how long a run of ``rounds`` takes, evaluated every ``every`` rounds."""
        return self.start + rounds * self.round + (rounds // every + 1) * self.evaluation


def cost(work: "Bench", cells: Sequence[Cell], workers: int) -> str:
    """Return a table of the missing runs and their hours, after timing each row once.

    References of one repetition are fitted and kept, and those of the others taken to last as long.
    Rows that begin with another row's weights or labels are timed without.
    """
    by_row: dict[str, list[Cell]] = {}
    for cell in work.missing(cells):
        name = cell.row if len(work.study.variants) == 1 else f"{cell.variant}, {cell.row}"
        by_row.setdefault(name, []).append(cell)
    table = Table(["row", "runs", "minutes of a run", "hours"])
    run_count = 0
    hours = 0.0
    for name, of_row in by_row.items():
        timed = _timed(work, of_row[0])
        seconds = 0.0
        runs = 0
        for cell in of_row:
            experiment = work.experiment(cell)
            rounds = int(method_of(experiment).settings.rounds)
            sites = len(work.folders(cell))
            runs += sites
            seconds += sites * timed.seconds(rounds, experiment.evaluate_every)
        table.add(name, str(runs), f"{seconds / runs / 60:.1f}", f"{seconds / 3600:.2f}")
        run_count += runs
        hours += seconds / 3600
    repetitions = missing_references(work, cells)
    if repetitions:
        started = time.perf_counter()
        run_references(work, repetitions[0])
        minutes = (time.perf_counter() - started) / 60
        others = len(repetitions) - 1
        table.add("references", str(others), f"{minutes:.1f}", f"{others * minutes / 60:.2f}")
        hours += others * minutes / 60
    total = f"{count(run_count, 'run')}, {hours:.1f} core hours"
    return f"{table.markdown()}\n\n{total}: about {hours / workers:.1f} hours, {workers} at once"


def _timed(work: "Bench", cell: Cell) -> Timed:
    """Return how long a run of a cell takes; one of its sites is timed if they are alone."""
    experiment = work.experiment(cell).model_copy(update={"evaluate_every": 2})
    files = work.files_of(cell)
    site = next(iter(work.folders(cell)))
    sites = [site] if site else work.sites_of(cell)
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        simulation = Simulation(
            experiment,
            run,
            sites,
            site_files=files,
            cache=work.out / "cache",
            checks_pseudo_labels=True,
        )
        started = time.perf_counter()
        with redirect_stdout(io.StringIO()), suppress(_Enough):
            simulation.run(_Stopwatch())
        elapsed = time.perf_counter() - started
        by_round: dict[int, float] = {}
        for row in read_rows(run / "rounds.jsonl", RoundRow, []):
            by_round[row.round] = by_round.get(row.round, 0.0) + row.seconds
    if len(by_round) < TIMED_ROUNDS:
        return Timed(elapsed, 0.0, 0.0)
    # A moving average is evaluated in the round before, other models in the round after.
    shorter, longer = sorted([by_round[2], by_round[3]])
    evaluation = longer - shorter
    # The round in which the run was stopped trained, too.
    start = elapsed - (TIMED_ROUNDS + 1) * shorter - 2 * evaluation
    return Timed(max(start, 0.0), shorter, evaluation)

"""What a cell of the FedAL benchmark keeps of its runs: test scores of each hospital, and the curve over labels."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from fedward.client.labels import bought
from fedward.errors import RunError
from fedward.evaluation import best_global, last_round, mean_over_sites
from fedward.report.run import Run
from papers.fedal_paper import HOSPITALS, METRICS
from papers.fedal_sites import CLASSES, site_of

CHOOSES = "f1_macro"
"""Validation metric that chooses a round, mean over hospitals."""

_END = 99_999
"""A round after all others."""

Scores = dict[str, float]
"""Metric -> percent."""


class Schedule(NamedTuple):
    """When the sites of a run ask for labels."""

    rounds: int
    query_every: int
    """Rounds from a query to the next; the first comes after so many."""
    steps: int
    """Queries in all."""

    def queries_before(self, round_: int) -> int:
        """Return how many queries had been made when a round trained; -1 for the initial model, round 0."""
        return min((round_ - 1) // self.query_every, self.steps)


def scores_of(runs: Sequence[Run], schedule: Schedule) -> dict[str, Any]:
    """Return the test scores of the hospitals, each from the run it is a site of, after two rounds.

    Returns:
        ``chosen``: hospital -> scores after the round that is best on the validation images of all hospitals, among
        those with all labels. A hospital that is a run of its own does not choose alone either: it would choose more
        freely than in a federation. ``last``: after the last round; ``round``: the chosen one.
    """
    chosen: dict[str, Scores] = {}
    last: dict[str, Scores] = {}
    best = _best_round(runs, schedule, schedule.steps)
    for run in runs:
        end = last_round(run.metrics, CHOOSES).round
        for hospital in [name for name in HOSPITALS if site_of(name) in run.info.sites]:
            chosen[hospital] = _test(run, site_of(hospital), best)
            last[hospital] = _test(run, site_of(hospital), end)
    return {"chosen": chosen, "last": last, "round": best}


def curve_of(run: Run, schedule: Schedule) -> list[dict[str, Any]]:
    """Return the means over hospitals by share of labels, a point for each number of queries made before.

    Of several rounds with the same labels the best on validation images stands, so the last point is the round that
    :func:`scores_of` chooses.
    """
    table = {split: {name: mean_over_sites(run.metrics, name, split) for name in METRICS} for split in ("val", "test")}
    best = {queries: _best_round([run], schedule, queries) for queries in range(schedule.steps + 1)}
    return [
        {
            "queries": queries,
            "round": round_,
            "percent": _labelled_percent(run, round_),
            **{split: {name: 100 * line[round_] for name, line in lines.items()} for split, lines in table.items()},
        }
        for queries, round_ in best.items()
        if round_ is not None
    ]


def classes_bought(run: Run) -> dict[str, dict[str, int]]:
    """Return hospital -> class -> labels it bought in a finished run, the first ones among them.

    They are in the memory of each site, which lies in the run folder where all run in one process. Hospitals that asked
    for none are left out. Raises RunError where such a memory is gone.
    """
    found = {}
    for hospital in HOSPITALS:
        memory = run.folder / "sites" / site_of(hospital) / "memory"
        labels = [label for of_run in memory.glob("*") for label in bought(memory, of_run.name, _END).values()]
        if not labels and any(row.bought for row in run.queries if row.site == site_of(hospital)):
            raise RunError(
                f"run {run.folder}, {site_of(hospital)}",
                expected=f"the labels that it bought, in {memory}",
                found="none",
                remedy="Run the cell again in another folder: the memory of this run is gone.",
            )
        if labels:
            found[hospital] = {name: labels.count(index) for index, name in enumerate(CLASSES)}
    return found


def mean_over_hospitals(scores: Mapping[str, Scores], metric: str) -> float:
    """Return the plain mean, each hospital counting once."""
    return fmean(own[metric] for own in scores.values())


def _best_round(runs: Sequence[Run], schedule: Schedule, queries: int) -> int | None:
    """Return the best round of those with the labels of so many queries; None if none of them was evaluated."""
    rows = [row for run in runs for row in run.metrics if schedule.queries_before(row.round) == queries]
    return best_global(rows, CHOOSES).round


def _test(run: Run, site: str, round_: int | None) -> Scores:
    rows = run.at(site, "test", round_)
    return {name: 100 * value for name in METRICS if (value := rows[name].value) is not None}


def _labelled_percent(run: Run, round_: int) -> float:
    rows = [row for row in run.queries if row.round == round_]
    labelled, images = sum(row.labelled for row in rows), sum(row.labelled + row.unlabelled for row in rows)
    return 100 * labelled / images

"""What one hostile site of ten does to a run, and what robust means cost.

    OMP_NUM_THREADS=1 python benchmarks/robustness.py [--processes 2]
    python benchmarks/robustness.py --page docs/results/robustness.md

Ten sites with synthetic images, all in every round, in this process: `fedavg` on all labels, 13
steps of 16 images a round. The hostile site trains as the others do and sends its update with the
opposite sign, as large as `largest_update` lets pass. The bound is the run without that site.
Accuracy is that of the last model on test images: the mean over the nine honest sites, and that of
the loner among them, whose cases differ most. Equal seeds have equal data and start from equal
weights. The second command writes the tables of the kept lines into the page.
"""

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from fedward.config import DataSpec, Experiment, SyntheticData
from fedward.errors import RunError
from fedward.evaluation import mean_and_interval, paired_difference
from fedward.jobs import site_names
from fedward.lab.bench.comparisons import in_common
from fedward.lab.bench.markdown import Table, gap_text, interval_text
from fedward.lab.local import LocalTransport, Sites
from fedward.protocol.transport import Deliver
from fedward.protocol.wire import Message
from measured import Line, Measurement, run
from quiet_run import run_quietly

SITES = site_names(10)
HOSTILE = "site-8"
LONER = "site-9"
ALIKE = ("site-6", "site-7")
"""Honest sites whose images and classes are drawn as those of the hostile site."""
SEEDS = (1, 2, 3, 4, 5)
ROUNDS = 60
AVERAGES: dict[str, dict[str, Any]] = {
    "weighted mean": {"robust": "no"},
    "median": {"robust": "median"},
    "trimmed mean": {"robust": "trimmed_mean", "trim": 0.2},
}
HONEST = "no attack"
REVERSED = "hostile site 8"
ABSENT = "without site 8"
ATTACKS = (HONEST, REVERSED, ABSENT)
CASES = [*product(AVERAGES, (HONEST, REVERSED)), ("weighted mean", ABSENT)]
"""Average and attack of each run of a seed."""
LARGEST_UPDATE = 100.0
"""Largest update that the server takes; the unit is the norm of the model."""
SHARE_OF_LARGEST = 0.999
"""Norm of the hostile site's update, as a share of the largest one."""
CURVE = 10
"""Rounds between two evaluations."""


class Hostile(LocalTransport):
    """Delivers the hostile site's updates changed."""

    def __init__(self, experiment: Experiment, folder: Path, cell: Mapping[str, Any]) -> None:
        sites = [site for site in SITES if (site, cell["attack"]) != (HOSTILE, ABSENT)]
        super().__init__(Sites(experiment, folder), sites)
        self._reverses = cell["attack"] == REVERSED
        self._norm = cell["share_of_largest_update"] * experiment.largest_update

    def exchange(self, requests: dict[str, Message], timeout: int, deliver: Deliver) -> None:
        """Carry out the exchange."""

        def forward(site: str, answer: Message) -> None:
            if site == HOSTILE and self._reverses and answer.arrays:
                length = norm(answer.arrays) or 1.0  # an update may vanish beside a ruined model
                factor = self._norm * norm(requests[site].arrays) / length
                answer.arrays = {
                    name: np.float32(-factor) * array for name, array in answer.arrays.items()
                }
            deliver(site, answer)

        super().exchange(requests, timeout, forward)


def norm(arrays: Mapping[str, np.ndarray]) -> float:
    """Return the norm of all arrays together."""
    return float(
        np.sqrt(sum(np.square(array.astype(np.float64)).sum() for array in arrays.values()))
    )


class Robustness(Measurement):
    """A run for each average, attack and seed."""

    name = "robustness"

    def cells(self) -> list[dict[str, Any]]:
        cells = []
        for seed, (average, attack) in product(SEEDS, CASES):
            experiment = experiment_of(average, seed).model_dump(mode="json", exclude_unset=True)
            cells.append(
                {
                    "average": average,
                    "attack": attack,
                    "share_of_largest_update": SHARE_OF_LARGEST,
                    "seed": seed,
                    "experiment": experiment,
                }
            )
        return cells

    def measure(self, cell: Mapping[str, Any]) -> dict[str, Any]:
        """Return each honest site's accuracies, and the classes that the last model recognises.

        Keys are ``test`` and ``val`` (site -> accuracy of the last model), ``earlier`` (validation
        accuracy ten rounds before) and ``recognised`` (classes with an F1 above 0 on some honest
        site's test images). A run that failed has ``failed``, the reason, alone.
        """
        experiment = Experiment.model_validate(cell["experiment"])
        with tempfile.TemporaryDirectory() as folder:
            try:
                run_folder = run_quietly(
                    experiment,
                    Path(folder) / "run",
                    Hostile(experiment, Path(folder) / "sites", cell),
                )
            except RunError as error:
                return {"failed": error.problem}
            lines = (run_folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        rows = [row for row in map(json.loads, lines) if row["site"] != HOSTILE]
        rounds = experiment.options["rounds"]
        recognised = {
            row["name"].removeprefix("f1/")
            for row in rows
            if (row["split"], row["round"]) == ("test", rounds)
            and row["name"].startswith("f1/")
            and row["value"]
        }
        return {
            "test": accuracies(rows, "test", rounds),
            "val": accuracies(rows, "val", rounds),
            "earlier": accuracies(rows, "val", rounds - CURVE),
            "recognised": sorted(recognised),
        }

    def tables(self, lines: Sequence[Line]) -> dict[str, str]:
        honest = {
            case: [fmean(line.outcome["test"].values()) for line in finished(lines, *case)]
            for case in CASES
        }
        loner = {
            case: [line.outcome["test"][LONER] for line in finished(lines, *case)] for case in CASES
        }
        return {
            "robustness_honest_sites": accuracy_table(honest),
            "robustness_site_9": accuracy_table(loner),
            "robustness_differences": differences_table(lines),
            "robustness_last_rounds": last_rounds_table(lines),
        }


def experiment_of(average: str, seed: int) -> Experiment:
    """Return what a run's sites and server do, apart from the attack."""
    return Experiment(
        method="fedavg",
        options={
            "rounds": ROUNDS,
            "images_per_round": 208,
            "batch": 16,
            "learning_rate": 2e-3,
            "participants": None,
            "class_weighting": "none",
            **AVERAGES[average],
        },
        data=DataSpec(image_size=16),
        net="small_cnn_gn",
        synthetic=SyntheticData(sites=10, labelled=1.0, images=400),
        seed=seed,
        evaluate_every=CURVE,
        largest_update=LARGEST_UPDATE,
    )


def accuracies(
    rows: Sequence[Mapping[str, Any]], split: str, round_number: int
) -> dict[str, float]:
    """Return site -> accuracy of the model after a round."""
    return {
        row["site"]: float(row["value"])
        for row in rows
        if (row["name"], row["split"], row["round"]) == ("accuracy", split, round_number)
    }


def finished(lines: Sequence[Line], average: str, attack: str) -> Iterator[Line]:
    """Yield the lines of the runs that ended."""
    for line in lines:
        case = (line.cell["average"], line.cell["attack"])
        if case == (average, attack) and "failed" not in line.outcome:
            yield line


def accuracy_table(values: Mapping[tuple[str, str], Sequence[float]]) -> str:
    """Return a table with a row for each average and a column for each attack.

    Args:
        values: (average, attack) -> accuracy of each run that ended.
    """
    table = Table(["average", *ATTACKS])
    for average in AVERAGES:
        cells = []
        for attack in ATTACKS:
            of_runs = values.get((average, attack))
            cells.append("" if of_runs is None else accuracy_text(of_runs))
        table.add(average, *cells)
    return table.markdown()


def accuracy_text(values: Sequence[float]) -> str:
    """Return a mean over seeds with its 95 % t interval, and how many runs failed."""
    failed = len(SEEDS) - len(values)
    # Ruined models all name one class: equal values have no spread to make an interval of.
    are_equal = len(set(values)) == 1
    text = f"{values[0]:.3f}" if are_equal else interval_text(values, "accuracy")
    return f"{text} in {len(values)} runs, {failed} failed" if failed else text


def differences_table(lines: Sequence[Line]) -> str:
    """Return what the attack costs robust means, paired by seed, by groups of honest sites."""
    honest = [site for site in SITES if site != HOSTILE]
    groups = {
        "all nine": honest,
        "6 and 7, like the hostile one": ALIKE,
        "the other seven": [site for site in honest if site not in ALIKE],
    }
    table = Table(
        ["honest sites", "average", "minus no attack", "minus without site 8"], left=(0, 1)
    )
    for (title, sites), average in product(groups.items(), list(AVERAGES)[1:]):
        attacked = means_of(lines, average, REVERSED, sites)
        unattacked = means_of(lines, average, HONEST, sites)
        without = means_of(lines, "weighted mean", ABSENT, sites)
        table.add(
            title,
            average,
            gap_text(paired_difference(*in_common(attacked, unattacked))),
            gap_text(paired_difference(*in_common(attacked, without))),
        )
    return table.markdown()


def means_of(
    lines: Sequence[Line], average: str, attack: str, sites: Sequence[str]
) -> dict[int, float]:
    """Return seed -> mean accuracy over some sites, of the runs that ended."""
    return {
        line.cell["seed"]: fmean(line.outcome["test"][site] for site in sites)
        for line in finished(lines, average, attack)
    }


def last_rounds_table(lines: Sequence[Line]) -> str:
    """Return how much validation accuracy rose in the last rounds without an attack."""
    table = Table(["average", f"validation accuracy, round {ROUNDS} minus round {ROUNDS - CURVE}"])
    for average in AVERAGES:
        rises = [
            fmean(line.outcome["val"].values()) - fmean(line.outcome["earlier"].values())
            for line in finished(lines, average, HONEST)
        ]
        table.add(average, gap_text(mean_and_interval(rises)))
    return table.markdown()


if __name__ == "__main__":
    run(Robustness(), __doc__)

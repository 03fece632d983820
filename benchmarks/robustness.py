"""What one hostile site of ten does to a run, and what robust means cost.

    OMP_NUM_THREADS=1 python benchmarks/robustness.py [--seeds 5] [--rounds 60] [--processes 2]
    [--results FILE]

Ten sites with synthetic images, all in every round, in this process: `fedavg` on all labels, 13
steps of 16 images a round. The hostile site trains as the others do and sends its update with the
opposite sign, as large as `largest_update` lets pass. The bound is the run without that site.
Accuracy is that of the last model on test
images: the mean over the nine honest sites, and that of the loner among them, whose cases differ
most. Equal seeds have equal data and start from equal weights. Finished runs are kept in FILE and
not made again.
"""

import argparse
import io
import json
import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from statistics import fmean

import numpy as np

from fedward.config import DataSpec, Experiment, SyntheticData
from fedward.console.console import Console
from fedward.errors import RunError
from fedward.evaluation import mean_and_interval
from fedward.jobs import site_names
from fedward.lab.local import LocalTransport
from fedward.methods import method_of
from fedward.protocol.transport import Deliver
from fedward.protocol.wire import Message
from fedward.report import write_report
from fedward.server.loop import run_experiment

SITES = site_names(10)
HOSTILE = "site-8"
LONER = "site-9"
MEANS = {
    "weighted mean": {"robust": "no"},
    "median": {"robust": "median"},
    "trimmed mean": {"robust": "trimmed_mean", "trim": 0.2},
}
HONEST = "no attack"
LARGEST = "reversed, as large as passes"
ABSENT = "without site 8"
ATTACKS = (HONEST, LARGEST)
CELLS = [*product(MEANS, ATTACKS), ("weighted mean", ABSENT)]
CLOSE_TO_THE_BOUND = 0.999
CURVE = 10
"""Rounds between two points of a run's validation curve."""
Cell = tuple[str, str, int, int]
"""How models are averaged, the attack, the seed, rounds."""


class Hostile(LocalTransport):
    """Delivers the hostile site's updates changed."""

    def __init__(self, experiment: Experiment, folder: Path, attack: str) -> None:
        sites = [site for site in SITES if (site, attack) != (HOSTILE, ABSENT)]
        super().__init__(experiment, sites, folder)
        self._attack = attack
        self._bound = CLOSE_TO_THE_BOUND * experiment.largest_update

    def exchange(self, requests: dict[str, Message], timeout: int, deliver: Deliver) -> None:
        """Carry out the exchange."""

        def forward(site: str, answer: Message) -> None:
            if site == HOSTILE and self._attack == LARGEST and answer.arrays:
                length = norm(answer.arrays) or 1.0  # an update may vanish beside a ruined model
                factor = self._bound * norm(requests[site].arrays) / length
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


def accuracies(cell: Cell) -> dict[str, dict[str, float]]:
    """Run one experiment and return each honest site's accuracies.

    Keys are ``test``, ``val`` (of the last model) and ``earlier`` (ten rounds before it). Nothing
    of a run that failed, because no site could train from the model it was sent.
    """
    mean, attack, seed, rounds = cell
    local = {
        "images_per_round": 208,
        "learning_rate": 2e-3,
        "participants": None,
        "class_weighting": "none",
    }
    experiment = Experiment(
        method="fedavg",
        options={"rounds": rounds, **local, **MEANS[mean]},
        data=DataSpec(image_size=16),
        net="small_cnn_gn",
        synthetic=SyntheticData(labelled=1.0, images=400),
        seed=seed,
        evaluate_every=CURVE,
    )
    with tempfile.TemporaryDirectory() as folder:
        transport = Hostile(experiment, Path(folder) / "sites", attack)
        try:
            run = run_experiment(
                experiment,
                method_of(experiment),
                Path(folder) / "run",
                transport,
                engine="local",
                console=Console(io.StringIO()),
                report=write_report,
            )
        except RunError:
            return {}
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    wanted = {"test": ("test", rounds), "val": ("val", rounds), "earlier": ("val", rounds - CURVE)}
    accuracy = [row for row in rows if row["name"] == "accuracy" and row["site"] != HOSTILE]
    return {
        name: {
            row["site"]: float(row["value"])
            for row in accuracy
            if (row["split"], row["round"]) == place
        }
        for name, place in wanted.items()
    }


def kept(file: Path) -> dict[Cell, dict[str, dict[str, float]]]:
    """Return the finished runs in a file."""
    lines = file.read_text().splitlines() if file.exists() else []
    return {tuple(cell): result for cell, result in map(json.loads, lines)}


def interval(values: Iterable[float]) -> str:
    """Return a mean over seeds with its 95 % t interval."""
    one = mean_and_interval(list(values))
    return f"{one.mean:.3f}" + ("" if one.low is None else f" [{one.low:.3f}, {one.high:.3f}]")


def table(results: Mapping[Cell, Mapping[str, Mapping[str, float]]], loner: bool) -> list[str]:
    """Return the lines of a table: a row for each way to average, a column for each attack."""
    columns = (*ATTACKS, ABSENT)
    lines = [f"| average | {' | '.join(columns)} |", "|---|" + "--:|" * len(columns)]
    for mean in MEANS:
        cells = []
        for attack in columns:
            accuracies_by_site = [
                run["test"]
                for (name, what, *_), run in results.items()
                if run and (name, what) == (mean, attack)
            ]
            values = [
                sites[LONER] if loner else fmean(sites.values()) for sites in accuracies_by_site
            ]
            failed = sum(
                not run
                for (name, what, *_), run in results.items()
                if (name, what) == (mean, attack)
            )
            cells.append(
                (interval(values) if values else "") + (f" {failed} failed" if failed else "")
            )
        lines.append(f"| {mean} | {' | '.join(cells)} |")
    return lines


def flat(results: Mapping[Cell, Mapping[str, Mapping[str, float]]]) -> list[str]:
    """Return a line for each cell: how much validation accuracy rose in the last ten rounds."""
    rises: dict[tuple[str, str], list[float]] = {}
    for (mean, attack, *_), run in results.items():
        if not run:
            continue
        rises.setdefault((mean, attack), []).append(
            fmean(run["val"].values()) - fmean(run["earlier"].values())
        )
    return [f"{mean}, {attack}: {interval(values)}" for (mean, attack), values in rises.items()]


def main() -> None:
    """Run all cells that are not finished, and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--results", type=Path, default=Path("build/robustness.jsonl"))
    options = parser.parse_args()
    cells = [
        (*cell, seed, options.rounds) for seed in range(1, options.seeds + 1) for cell in CELLS
    ]
    results = kept(options.results)
    missing = [cell for cell in cells if cell not in results]
    options.results.parent.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(options.processes) as pool, options.results.open("a") as file:
        for cell, accuracies_ in zip(missing, pool.map(accuracies, missing), strict=True):
            file.write(json.dumps([cell, accuracies_]) + "\n")
            file.flush()
            results[cell] = accuracies_
    results = {cell: results[cell] for cell in cells}
    print("Mean over the nine honest sites:", "", *table(results, loner=False), "", sep="\n")
    print(f"{LONER}:", "", *table(results, loner=True), "", sep="\n")
    print(
        f"Validation accuracy, last round less {CURVE} rounds before:", "", *flat(results), sep="\n"
    )


if __name__ == "__main__":
    main()

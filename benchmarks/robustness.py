"""What one hostile site of ten does to a run, by how the sites' models are averaged; and what robust means cost.

    OMP_NUM_THREADS=1 python benchmarks/robustness.py [--seeds 5] [--rounds 6] [--processes 2]

Ten phantom sites, all in every round, run in this process: `fedavg` on all labels of the phantom, 13 steps of 16 images
a round. The hostile site trains as the others do and sends its update with the opposite sign: as large as it was, or as
large as `largest_update` lets pass. Accuracy is that of the last model on test images: the mean over the nine honest
sites, and that of the loner among them, whose cases differ most. Equal seeds have equal data and start from equal
weights.
"""

import argparse
import io
import json
import tempfile
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from statistics import fmean

import numpy as np

from fedward.config import DataSpec, Experiment, StandIn
from fedward.evaluation import mean_and_interval
from fedward.federation.driver import run_experiment
from fedward.federation.local import LocalTransport
from fedward.federation.transport import Deliver
from fedward.federation.wire import Message
from fedward.jobs import site_names
from fedward.report.console import Console

SITES = site_names(10)
HOSTILE, LONER = "site-8", "site-9"
MEANS = {
    "weighted mean": {"robust": "no"},
    "median": {"robust": "median"},
    "trimmed mean": {"robust": "trimmed_mean", "trim": 0.2},
}
HONEST, REVERSED, LARGEST = "no attack", "reversed", "reversed, as large as passes"
ATTACKS = (HONEST, REVERSED, LARGEST)
CLOSE_TO_THE_BOUND = 0.999


class Hostile(LocalTransport):
    """Delivers the hostile site's updates changed."""

    def __init__(self, experiment: Experiment, folder: Path, attack: str) -> None:
        super().__init__(experiment, SITES, folder)
        self._attack, self._bound = attack, CLOSE_TO_THE_BOUND * experiment.largest_update

    def exchange(self, requests: dict[str, Message], timeout: int, deliver: Deliver) -> None:
        """Carry out the exchange."""

        def forward(site: str, answer: Message) -> None:
            if site == HOSTILE and self._attack != HONEST and answer.arrays:
                factor = self._bound * norm(requests[site].arrays) / norm(answer.arrays)
                factor = 1.0 if self._attack == REVERSED else factor
                answer.arrays = {name: np.float32(-factor) * array for name, array in answer.arrays.items()}
            deliver(site, answer)

        super().exchange(requests, timeout, forward)


def norm(arrays: Mapping[str, np.ndarray]) -> float:
    """Return the norm of all arrays together."""
    return float(np.sqrt(sum(np.square(array.astype(np.float64)).sum() for array in arrays.values())))


def accuracies(cell: tuple[str, str, int, int]) -> dict[str, float]:
    """Run one experiment; return each honest site's accuracy on its test images after the last round."""
    mean, attack, seed, rounds = cell
    local = {"images_per_round": 208, "learning_rate": 2e-3, "participants": None, "class_weighting": "none"}
    experiment = Experiment(
        method="fedavg",
        options={"rounds": rounds, **local, **MEANS[mean]},
        data=DataSpec(image_size=16),
        net="small_cnn_gn",
        stand_in=StandIn(labelled=1.0, images=400),
        seed=seed,
        evaluate_every=rounds,
    )
    with tempfile.TemporaryDirectory() as folder:
        transport = Hostile(experiment, Path(folder) / "sites", attack)
        run = run_experiment(
            experiment, Path(folder) / "run", transport, engine="local", console=Console(io.StringIO())
        )
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    last = [row for row in rows if (row["round"], row["split"], row["name"]) == (rounds, "test", "accuracy")]
    return {row["site"]: float(row["value"]) for row in last if row["site"] != HOSTILE}


def table(results: Mapping[tuple[str, str, int, int], Mapping[str, float]], loner: bool) -> list[str]:
    """Return the lines of a table: a row for each way to average, a column for each attack."""
    lines = [f"| average | {' | '.join(ATTACKS)} |", "|---|" + "--:|" * len(ATTACKS)]
    for mean in MEANS:
        cells = []
        for attack in ATTACKS:
            found = [sites for (name, what, *_), sites in results.items() if (name, what) == (mean, attack)]
            one = mean_and_interval([sites[LONER] if loner else fmean(sites.values()) for sites in found])
            cells.append(f"{one.mean:.3f}" + ("" if one.low is None else f" [{one.low:.3f}, {one.high:.3f}]"))
        lines.append(f"| {mean} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Run all cells and print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    cells = [(*cell, options.rounds) for cell in product(MEANS, ATTACKS, range(1, options.seeds + 1))]
    with ProcessPoolExecutor(options.processes) as pool:
        results = dict(zip(cells, pool.map(accuracies, cells), strict=True))
    print("Mean over the nine honest sites:", "", *table(results, loner=False), "", sep="\n")
    print(f"{LONER}:", "", *table(results, loner=True), sep="\n")


if __name__ == "__main__":
    main()

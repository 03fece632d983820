"""Seconds a step of a site that trains in several processes, against one process.

    python benchmarks/distributed.py [--processes 2] [--method ssfl] [--net small_cnn_gn]
    [--image-size 64] [--batch 16]

Wall clock of one site with synthetic images; the start of the processes is timed separately.
Processes that share the machine's cores, with each other or with other work, cannot be faster than
it: on a busy one the ratios mean nothing.

- **1, B**: one process with the job's batch.
- **1, N B**: one process with the batch that N processes have together: the same result.
- **N, N B**: N processes; at best as fast as the first.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fedward.client.ranks import rank_learner
from fedward.config import DataSpec, Experiment, SyntheticData
from fedward.lab.synthetic import SyntheticSites
from fedward.nets import build
from fedward.training.distributed.launch import launch, private_folder, work
from fedward.training.distributed.sharing import group

LIMIT = 0.6
"""Smallest speed of N processes as a share of N times one."""


def experiment(options: argparse.Namespace, batch: int) -> Experiment:
    """Return one whose rounds have as many steps whatever the batch."""
    return Experiment(
        method=options.method,
        options={
            "batch": batch,
            "images_per_round": options.processes * options.batch * options.steps,
        },
        data=DataSpec(image_size=options.image_size),
        net=options.net,
        synthetic=SyntheticData(images=400, labelled=0.5),
    )


def measure(folder: Path, rank: int, processes: int) -> None:
    """Train the rounds of the experiment in a folder, and note the time of each."""
    asked = json.loads((folder / "asked.json").read_text())
    spec = Experiment.model_validate(asked["experiment"])
    with group(folder, rank, processes) as device:
        data = SyntheticSites().data("site-1", spec)
        learner = rank_learner("site-1", spec, data, rank=rank, processes=processes, device=device)
        model = build(spec.net, len(spec.data.classes)).state_dict()
        seconds = []
        for repeat in range(asked["repeats"] + 1):
            torch.distributed.barrier()
            started = time.perf_counter()
            learner.train(model, [], repeat + 1)
            torch.distributed.barrier()
            seconds.append(time.perf_counter() - started)
    if rank == 0:
        steps = spec.options["images_per_round"] // (processes * spec.options["batch"])
        result = [value / steps for value in seconds[1:]]  # the first warms up
        (folder / "seconds.json").write_text(json.dumps(result))


def time_of(spec: Experiment, processes: int, repeats: int) -> tuple[list[float], float]:
    """Return seconds a step of each round, and the seconds that starting and ending took."""
    with tempfile.TemporaryDirectory() as parent, private_folder(Path(parent)) as folder:
        asked: dict[str, Any] = {"experiment": spec.model_dump(mode="json"), "repeats": repeats}
        (folder / "asked.json").write_text(json.dumps(asked))
        started = time.perf_counter()
        launch(Path(__file__).stem, folder, processes, "site-1", lambda: False)
        whole = time.perf_counter() - started
        seconds = json.loads((folder / "seconds.json").read_text())
    steps = spec.options["images_per_round"] // (processes * spec.options["batch"])
    return seconds, whole - sum(seconds) * steps * (repeats + 1) / repeats


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--method", default="ssfl")
    parser.add_argument("--net", default="small_cnn_gn")
    parser.add_argument("--image-size", type=int, default=64)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    )
    count = options.processes
    together = options.processes * options.batch
    contenders = {
        f"1 process, batch {options.batch}": (experiment(options, options.batch), 1),
        f"1 process, batch {together}": (experiment(options, together), 1),
        f"{count} processes, batch {together}": (experiment(options, options.batch), count),
    }
    device = "cuda" if torch.cuda.is_available() else "cpu"
    print(f"{options.method}, {options.net}, {options.image_size} px, {device}\n")
    print(
        "| | seconds a step, median | min | max | seconds to start and end |\n|---|--:|--:|--:|--:|"
    )
    medians = []
    for name, (spec, processes) in contenders.items():
        seconds, start = time_of(spec, processes, options.repeats)
        median = statistics.median(seconds)
        medians.append(median)
        print(f"| {name} | {median:.4f} | {min(seconds):.4f} | {max(seconds):.4f} | {start:.1f} |")
    of_same_batch = medians[2] / medians[0]
    of_whole_batch = medians[2] / medians[1]
    print(f"\nseconds a step, {count} processes / 1 process")
    print(f"- with the same batch each: {of_same_batch:.2f}")
    print(f"- with the whole batch: {of_whole_batch:.2f}")
    print(
        f"aim: at most {1 / LIMIT:.2f} and {1 / (LIMIT * count):.2f}, on as many idle cores or GPUs"
    )


if __name__ == "__main__":
    if Path(sys.argv[-1], "asked.json").exists():
        work(Path(sys.argv[-1]), partial(measure, Path(sys.argv[-1])))
    else:
        main()

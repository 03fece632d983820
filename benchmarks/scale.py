"""Does a round cost more if more sites are registered?

And how long does a report of a thousand sites take?

    OMP_NUM_THREADS=1 python benchmarks/scale.py [rounds] [report] [--picture FILE.svg] [--quick]

- **rounds**: FedPerl with 10 to 10,000 registered sites, ten a round. Each number of sites has a
  process of its own. All sites have trained before, so that each is a possible peer of each other.
  They answer at once with a small
  difference: what is measured is the server. A round is to cost as much as with the fewest sites,
  in CPU time, in private memory (USS) and in bytes of logs.
- **report**: the report of a made-up run of 1,000 sites and 100 rounds, written by the run folder's
  own classes: ten sites train in a round, all evaluate every five rounds. CPU time, the size of the
  page and the peak memory of a process that does nothing else have a limit.

Without a name both run. Exit status 1 where a limit is missed.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import psutil
import torch

from fedward.config import Experiment
from fedward.evaluation.names import OVERALL
from fedward.evaluation.selection import MetricRow
from fedward.jobs import load_experiment
from fedward.methods import method_of
from fedward.methods.fedperl.algorithm import FedPerlState
from fedward.methods.fedperl.similarity import layer_moments
from fedward.protocol.transport import Deliver
from fedward.protocol.wire import Message
from fedward.starting_model import initial_model
from fedward.storage.info import Summary
from fedward.storage.rows import ByteRow, RoundRow
from fedward.storage.run_folder import NewRun, RunFolder
from quiet_run import resume_quietly
from rounds import Echo

SITES = (10, 100, 1_000, 10_000)
PARTICIPANTS = 10
WARM = 2
ROUNDS = 12
"""Sites a round; rounds that are not counted, and all rounds."""
LIMIT = 1.1
"""Times the first number of sites: 10; of logs 100, as a row names at most thirty sites near a
participant.
"""
REPORT_SITES = 1_000
REPORT_ROUNDS = 100
EVERY = 5
REPORT_LIMITS = {"CPU s": 30.0, "MB of HTML": 3.0, "peak MB": 500.0}
SETTINGS = ("net=small_cnn_gn", "data.image_size=16", "warm_up=0", "evaluate_every=1000")


def names_of(count: int) -> list[str]:
    """Return names that are equally long, however many there are."""
    return [f"hospital-{number:05d}" for number in range(count)]


class Watched(Echo):
    """Notes CPU seconds and the folder's bytes of logs when an exchange begins."""

    def __init__(self, names: list[str], folder: Path) -> None:
        super().__init__(names)
        self.folder = folder
        self.marks = list[tuple[float, int, int]]()
        """CPU seconds, bytes of logs and bytes of private memory when each exchange began."""

    def exchange(self, requests: dict[str, Message], timeout: int, deliver: Deliver) -> None:
        logs = sum(path.stat().st_size for path in self.folder.glob("*.jsonl"))
        self.marks.append((time.process_time(), logs, psutil.Process().memory_full_info().uss))
        super().exchange(requests, timeout, deliver)


def begun(experiment: Experiment, names: list[str], folder: Path) -> None:
    """Write the folder of a run in which all sites have trained once, each with other moments."""
    algorithm = method_of(experiment)
    run = RunFolder.create(folder, experiment, algorithm.requirements, names, NewRun("local"))
    model = initial_model(experiment, algorithm).state
    state = algorithm.start(model)
    moments = layer_moments(model)
    assert isinstance(state, FedPerlState)
    draw = torch.Generator().manual_seed(1)
    state.remember(
        {
            name: moments + torch.rand(len(moments), generator=draw, dtype=moments.dtype)
            for name in names
        }
    )
    run.models.put(names[0], 0, model)
    first = folder / "models" / names[0] / "00000.safetensors"
    for name in names[1:]:
        (folder / "models" / name).mkdir()
        os.link(first, folder / "models" / name / first.name)
    run.commit(0, state)


def measure_rounds(sites: int, folder: Path) -> None:
    """Print what a round costs with so many registered sites."""
    settings = [*SETTINGS, f"rounds={ROUNDS}", f"participants={PARTICIPANTS}"]
    experiment = load_experiment("fedperl", settings)
    names = names_of(sites)
    begun(experiment, names, folder)
    transport = Watched(names, folder)
    resume_quietly(experiment, folder, transport)
    seconds, logs, memory = zip(*transport.marks[WARM:ROUNDS], strict=True)
    spans = [after - before for before, after in pairwise(seconds)]
    written = (logs[-1] - logs[0]) / (len(logs) - 1)
    print(
        json.dumps(
            {
                "seconds": statistics.median(spans),
                "logs": written,
                "memory": statistics.median(memory),
            }
        )
    )


def rounds(folder: Path, counts: Sequence[int]) -> tuple[bool, list[dict[str, float]]]:
    """Print a row for each number of sites; return whether rounds are flat, and the numbers."""
    print(
        "| registered sites | CPU s a round | private memory, MB | logs a round, kB |\n"
        "|--:|--:|--:|--:|"
    )
    measured = []
    for sites in counts:
        measured.append(inner(__file__, "--rounds-of", str(sites), str(folder / str(sites))))
        one = measured[-1]
        print(
            f"| {sites:,} | {one['seconds']:.3f} | {one['memory'] / 1e6:.1f} "
            f"| {one['logs'] / 1e3:.1f} |",
            flush=True,
        )
    first = measured[0] | {"logs": measured[1]["logs"]}
    worst = {name: max(one[name] for one in measured) / first[name] for name in first}
    shown = ", ".join(f"{name} {ratio:.2f}" for name, ratio in worst.items())
    print(f"\nLargest beside 10 sites (logs: beside 100): {shown}; aim: at most {LIMIT}")
    return all(ratio <= LIMIT for ratio in worst.values()), measured


def made_up(sites: int, folder: Path) -> None:
    """Write a run of FedPerl with random numbers, as the server's loop writes one."""
    experiment = load_experiment("fedperl", [f"rounds={REPORT_ROUNDS}", f"evaluate_every={EVERY}"])
    names = names_of(sites)
    requirements = method_of(experiment).requirements
    run = RunFolder.create(folder, experiment, requirements, names, NewRun("local"))
    draw = np.random.default_rng(1)
    level = draw.normal(0.6, 0.1, sites)
    for round_ in range(1, REPORT_ROUNDS + 1):
        due = round_ % EVERY == 1
        asked = [names[place] for place in sorted(draw.choice(sites, PARTICIPANTS, replace=False))]
        if due:
            for name, site_level in zip(names, level, strict=True):
                add_metrics(
                    run,
                    experiment,
                    name,
                    round_ - 1,
                    site_level + 0.2 * round_ / REPORT_ROUNDS,
                    draw,
                )
        for name in asked:
            values = {
                "loss": 2 - round_ / REPORT_ROUNDS,
                "kept": draw.random(),
                "labelled": 16.0,
                "unlabelled": 144.0,
            }
            for metric, value in values.items():
                run.append("metrics", MetricRow(round_, name, "train", metric, value, 160))
        for name in names if due else asked:
            trains = name in asked
            run.append(
                "bytes",
                ByteRow(round_, name, 412_000 * (1 + trains), 412_000 * trains, int(trains)),
            )
        nearest = [
            [names[place] for place in draw.choice(sites, min(30, sites - 1), replace=False)]
            for _ in asked
        ]
        run.append(
            "peers",
            {
                "round": round_,
                "sites": asked,
                "nearest": nearest,
                "similarity": [
                    sorted(draw.random(len(near)).tolist(), reverse=True) for near in nearest
                ],
                "chosen": {name: near[:2] for name, near in zip(asked, nearest, strict=True)},
                "anonymised": True,
            },
        )
        done = tuple(asked)
        moved = (412_000 * (len(asked) + (sites if due else len(asked))), 412_000 * len(asked))
        run.append("rounds", RoundRow(round_, 3.0, done, done, {}, *moved, len(asked)))
        run.flush()
    run.set_status("finished", Summary(rounds=REPORT_ROUNDS))


def add_metrics(
    run: RunFolder, experiment: Experiment, site: str, round_: int, level: float, draw: Any
) -> None:
    """Add what a site reports of one evaluation: every metric of both splits.

    The first row of each split has the classes.
    """
    kinds = [
        f"{kind}/{name}" for name in experiment.data.classes for kind in ("f1", "auroc", "auprc")
    ]
    for split in ("val", "test"):
        values = dict(
            zip(
                [*OVERALL, *kinds],
                (level + draw.normal(0, 0.02, 99)).clip(0, 1).tolist(),
                strict=False,
            )
        )
        values |= {f"support/{name}": 12.0 for name in experiment.data.classes}
        classes = experiment.data.classes
        for name, value in values.items():
            run.append(
                "metrics",
                MetricRow(
                    round_, site, split, name, value, 12 * len(experiment.data.classes), classes
                ),
            )
            classes = ()


MEASURE = """
import json, sys, time
from pathlib import Path
started = time.process_time()
from fedward.report import write_report
page = write_report(Path(sys.argv[1]))
status = Path("/proc/self/status").read_text(encoding="ascii")
peak = int(status.split("VmHWM:")[1].split()[0]) * 1024
print(json.dumps([time.process_time() - started, page.stat().st_size / 1e6, peak / 1e6]))
"""
"""Imports and the report, in a process without the libraries of this one (Linux)."""


def report(folder: Path, sites: int) -> bool:
    """Print what a report of so many sites costs; return whether it is within the limits."""
    made_up(sites, folder / "run")
    logs = sum(path.stat().st_size for path in (folder / "run").glob("*.jsonl")) / 1e6
    measured = dict(zip(REPORT_LIMITS, inner("-c", MEASURE, str(folder / "run")), strict=True))
    print(
        f"\n{sites:,} sites, {REPORT_ROUNDS} rounds, {logs:.0f} MB of logs\n\n"
        "| | report | aim |\n"
        "|---|--:|--:|"
    )
    for name, limit in REPORT_LIMITS.items():
        print(f"| {name} | {measured[name]:.1f} | at most {limit:.0f} |")
    return all(measured[name] <= limit for name, limit in REPORT_LIMITS.items())


def inner(*arguments: str) -> Any:
    """Return the JSON that a Python process of its own prints last."""
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr[-3000:])
    return json.loads(done.stdout.splitlines()[-1])


def draw_picture(
    found: Sequence[Mapping[str, float]], counts: Sequence[int], picture: Path
) -> None:
    """Draw a panel for each quantity against the number of registered sites."""
    plt.rcParams["svg.hashsalt"] = "fedward"  # equal curves give equal files
    panels = {
        "seconds": (1, "CPU s a round"),
        "memory": (1e6, "private memory, MB"),
        "logs": (1e3, "logs a round, kB"),
    }
    figure, places = plt.subplots(1, len(panels), figsize=(12, 3.6), layout="constrained")
    for place, (name, (unit, label)) in zip(places, panels.items(), strict=True):
        place.plot(counts, [one[name] / unit for one in found], marker="o")
        place.set(xlabel="registered sites", ylabel=label, xscale="log")
        place.set_ylim(0, 1.3 * place.get_ylim()[1])
        place.spines[["top", "right"]].set_visible(False)
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, metadata={"Date": None})


def main() -> None:
    """Measure, print and draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help="rounds, report; both by default")
    parser.add_argument("--picture", type=Path, help="draw the rounds")
    parser.add_argument(
        "--quick", action="store_true", help="1,000 registered sites at most; the report of 100"
    )
    parser.add_argument("--rounds-of", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.rounds_of:
        sites, folder = options.rounds_of
        return measure_rounds(int(sites), Path(folder))
    within = True
    counts = SITES[:-1] if options.quick else SITES
    with tempfile.TemporaryDirectory() as folder:
        if "rounds" in (options.parts or ["rounds"]):
            within, measured = rounds(Path(folder), counts)
            if options.picture:
                draw_picture(measured, counts, options.picture)
        if "report" in (options.parts or ["report"]):
            within &= report(Path(folder), 100 if options.quick else REPORT_SITES)
    sys.exit(not within)


if __name__ == "__main__":
    main()

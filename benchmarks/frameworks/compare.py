"""Seconds and memory of a FedAvg round: fedward beside what a user would pick instead, in one run.

    pip install "flwr[simulation]" OMP_NUM_THREADS=1 python benchmarks/frameworks/compare.py
    [--steps 13] [--rounds 24] [--picture FILE.svg]

Ten sites, three train in a round, nobody evaluates. The network (small_cnn_gn), the synthetic
images at 32 px, their views, Adam and the number of steps are the same. All processes of a
framework count. The first half of the rounds, in which sites start, is left out; a round is the
median of the others. Wall-clock seconds need a quiet machine.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import psutil
from work import settings

HERE = Path(__file__).parent


class Framework(NamedTuple):
    """How to start one, and where it tells of its rounds."""

    command: Sequence[str]
    log: str = "output"
    """Pattern of the file below the run's folder."""
    finished: str = r"finished round \d+"
    """What stands there once for each finished round."""


def frameworks(folder: Path, changes: Sequence[str]) -> dict[str, Framework]:
    """Return all of them; they write below ``folder``."""
    python = sys.executable
    fedward = str(Path(sys.executable).with_name("fedward"))
    changed = [part for change in changes for part in ("--set", change)]
    run = (fedward, "run", "fedavg_full", *changed, "--out", str(folder / "run"))
    script = str(HERE.parents[1] / "jobs" / "fedavg_full" / "job.py")
    return {
        "plain PyTorch": Framework((python, str(HERE / "plain.py"))),
        "fedward, in process": Framework(run, "run/rounds.jsonl", '"round"'),
        "fedward, two workers": Framework((*run, "--workers", "2"), "run/rounds.jsonl", '"round"'),
        "Flower, Ray": Framework((python, str(HERE / "flower.py"))),
        "fedward, FLARE simulator": Framework(
            (python, script, *changed), "**/rounds.jsonl", '"round"'
        ),
        "FLARE's FedAvg recipe, simulator": Framework(
            (python, str(HERE / "flare_recipe.py"), str(folder / "flare")),
            "flare/**/server/log.txt",
            r"Round \d+ started",
        ),
    }


class Sample(NamedTuple):
    """All processes right after a round."""

    wall: float
    cpu: float
    memory: float
    """Private memory (USS) in MB (10^6 bytes)."""


def measure(process: psutil.Process) -> Sample:
    """Return what a process and its children have used so far, without those that have ended."""
    cpu = memory = 0.0
    for each in (process, *process.children(recursive=True)):
        try:
            times = each.cpu_times()
            used = each.memory_full_info().uss
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        cpu = cpu + times.user + times.system
        memory = memory + used / 1e6
    return Sample(time.perf_counter(), cpu, memory)


def watch(framework: Framework, folder: Path, environment: Mapping[str, str]) -> list[Sample]:
    """Run it and return a sample for each round."""
    output = folder / "output"
    samples = list[Sample]()
    with output.open("w") as stream:
        process = subprocess.Popen(
            framework.command,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            cwd=folder,
        )
    root = psutil.Process(process.pid)
    while process.poll() is None:
        found = next(folder.glob(framework.log), None)
        text = found.read_text(encoding="utf-8", errors="replace") if found else ""
        if len(re.findall(framework.finished, text)) > len(samples):
            samples.append(measure(root))
        time.sleep(0.02)
    if process.returncode or len(samples) < int(environment["ROUNDS"]) - 1:
        sys.exit(
            f"{framework.command}: exit status {process.returncode}\n{output.read_text()[-3000:]}"
        )
    return samples


class Round(NamedTuple):
    """A round of one framework."""

    cpu: float
    """Seconds, the mean."""
    wall: float
    """Seconds, the median."""
    memory: float
    """MB at most."""


def measure_rounds(name: str, steps: int, rounds: int) -> Round:
    """Run a framework and return what its later rounds take."""
    environment = {"ROUNDS": str(rounds), "STEPS": str(steps)}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        samples = watch(frameworks(folder, settings(rounds, steps))[name], folder, environment)
    late = samples[len(samples) // 2 :]
    wall = statistics.median(after.wall - before.wall for before, after in pairwise(late))
    cpu = (late[-1].cpu - late[0].cpu) / (len(late) - 1)
    return Round(cpu, wall, max(sample.memory for sample in late))


def draw(results: Mapping[int, Mapping[str, Round]], picture: Path) -> None:
    """Draw the wall-clock seconds of a round, a panel for each number of steps."""
    plt.rcParams["svg.hashsalt"] = "fedward"  # equal numbers give equal files
    figure, panels = plt.subplots(
        1, len(results), figsize=(12, 2.8), layout="constrained", sharey=True, squeeze=False
    )
    for panel, (steps, found) in zip(panels[0], results.items(), strict=True):
        bars = panel.barh(list(found), [each.wall for each in found.values()], color="0.75")
        for bar, name in zip(bars, found, strict=True):
            bar.set_color("C0" if name.startswith("fedward") else "0.75")
        panel.bar_label(bars, fmt="%.2f s", padding=3)
        panel.set(xlabel=f"seconds a round, {steps} steps a site")
        panel.margins(x=0.2)
        panel.invert_yaxis()
        panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(picture, metadata={"Date": None})


def main() -> None:
    """Measure, print and draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, nargs="+", default=[13])
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument(
        "--only", nargs="+", default=list(frameworks(HERE, ())), help="frameworks; all by default"
    )
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    results: dict[int, dict[str, Round]] = {}
    for steps in options.steps:
        print(f"\n### {steps} steps a site and round\n")
        print(
            "| | CPU s a round | wall s | CPU, ratio to the first | private memory, MB |\n"
            "|---|--:|--:|--:|--:|"
        )
        found = results.setdefault(steps, {})
        for name in options.only:
            found[name] = each = measure_rounds(name, steps, options.rounds)
            ratio = each.cpu / found[options.only[0]].cpu
            print(
                f"| {name} | {each.cpu:.2f} | {each.wall:.2f} | {ratio:.2f} | {each.memory:.0f} |",
                flush=True,
            )
    if options.picture:
        draw(results, options.picture)


if __name__ == "__main__":
    main()

"""How much faster a shipped job is with each shortcut of ``fedward.speed``.

    python benchmarks/tricks.py [SHORTCUT ...] [--job fedavg] [--repeats 5]

A copy of the package has one of its shortcuts replaced by the ordinary way. Both packages run the
same job in turn, so that a machine which gets slower or faster in between changes both. CPU seconds
are those of all processes of a run. What is printed is the median over the pairs of the time
without the shortcut divided by the time with it.

- **simulator**: ``nvflare simulator`` without flags, which starts a process for each site and
  exchange: two sites, two rounds.
- **in process**: ``fedward run`` with the same two sites and rounds, in one process.
- **two processes**: ``fedward run`` with one site whose file says ``processes: 2``, two rounds.

A shortcut whose ratio is below 1.10 for every run is to be removed.
"""

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

import fedward
from fedward.flare.jobs.export import export_job
from fedward.jobs import load_experiment

LIMIT = 1.10
CHANGES = ("rounds=2", "synthetic.sites=2")
"""What makes a shipped job short."""


class Shortcut(NamedTuple):
    """A module of ``fedward.speed``."""

    ordinary: str
    """The code that replaces it where the shortcut is not taken."""
    runs: tuple[str, ...]
    """The runs in which it plays a part."""


SHORTCUTS = {
    "monai_trainer": Shortcut(
        "from monai.engines import Trainer\n\n\ndef load_trainer():\n    return Trainer\n",
        ("simulator", "in process"),
    ),
    "plain_optimizers": Shortcut(
        "def without_compiler(kind):\n    return kind\n", ("simulator", "in process")
    ),
    "plain_parallel": Shortcut(
        "from torch.nn.parallel import DistributedDataParallel as PlainParallel  # noqa: F401\n",
        ("two processes",),
    ),
}


def without(shortcut: str, parent: Path) -> Path:
    """Return a folder with a copy of the package that does not take a shortcut."""
    folder = parent / f"without-{shortcut}"
    shutil.copytree(Path(fedward.__file__).parent, folder / "fedward")
    module = folder / "fedward" / "speed" / f"{shortcut}.py"
    module.write_text(SHORTCUTS[shortcut].ordinary, encoding="utf-8")
    return folder


def cpu_seconds(command: list[str], package: Path, folder: Path) -> float:
    """Return the CPU seconds of a command and of all processes that it started.

    Args:
        command: what to run.
        package: the folder from which it imports fedward.
        folder: where it runs. It is removed afterwards.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(package)}
    folder.mkdir()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, cwd=folder, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    shutil.rmtree(folder)
    return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)


def write_site(folder: Path) -> None:
    """Write a site file with two processes, and images of noise."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    arrays: dict[str, np.ndarray] = {}
    for split, count in (("train", 400), ("val", 80), ("test", 80)):
        arrays[f"{split}_images"] = rng.integers(0, 256, (count, 28, 28, 3), dtype=np.uint8)
        arrays[f"{split}_labels"] = np.arange(count)[:, None] % 2
    np.savez(folder / "images.npz", allow_pickle=False, **arrays)
    (folder / "site-1.yaml").write_text(
        f"kind: npz\nfile: {folder / 'images.npz'}\nlabels: {{0: even, 1: odd}}\nprocesses: 2\n",
        encoding="utf-8",
    )


def commands(job: str, folder: Path) -> dict[str, list[str]]:
    """Return the ways to run a shipped job, shortened: name -> command."""
    export_job(load_experiment(job, CHANGES), folder / job)
    write_site(folder / "sites")
    run = [sys.executable, "-m", "fedward", "run", job, "--out", "run"]
    changes = [word for change in CHANGES for word in ("--set", change)]
    data = ["--set", "data.classes=[even, odd]", "--set", "data.image_size=28"]
    nvflare = str(Path(sys.executable).with_name("nvflare"))
    return {
        "simulator": [nvflare, "simulator", str(folder / job), "-w", "workspace"],
        "in process": [*run, *changes],
        "two processes": [*run, "--site-files", str(folder / "sites"), "--set", "rounds=2", *data],
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("shortcuts", nargs="*", metavar="SHORTCUT", default=list(SHORTCUTS))
    parser.add_argument("--job", default="fedavg")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    print("| shortcut | run | CPU s without | CPU s with | ratio, median (min to max) | |")
    print("|---|---|--:|--:|--:|---|")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        package = Path(fedward.__file__).parents[1]
        ways_to_run = commands(options.job, folder)
        for shortcut in options.shortcuts:
            other_package = without(shortcut, folder)
            for run in SHORTCUTS[shortcut].runs:
                with_it = []
                without_it = []
                for _ in range(options.repeats):
                    with_it.append(cpu_seconds(ways_to_run[run], package, folder / "here"))
                    without_it.append(cpu_seconds(ways_to_run[run], other_package, folder / "here"))
                ratios = [slow / fast for slow, fast in zip(without_it, with_it, strict=True)]
                ratio = statistics.median(ratios)
                print(
                    f"| {shortcut} | {run} | {statistics.median(without_it):.1f} "
                    f"| {statistics.median(with_it):.1f} "
                    f"| {ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f}) "
                    f"| {'' if ratio >= LIMIT else 'below the limit'} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()

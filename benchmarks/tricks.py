"""How much faster a shipped job is with each shortcut of ``fedward.speed``.

    python benchmarks/tricks.py [--job fedavg] [--repeats 5]

A copy of the package has one of its shortcuts replaced by the ordinary way. Both packages run the
same job in turn, so that a machine which gets slower or faster in between changes both. CPU seconds
are those of all processes of a run. What is printed is the median over the pairs of the time
without the shortcut divided by the time with it.

- **simulator**: ``nvflare simulator`` without flags, which starts a process for each site and
  exchange: two sites, two rounds.
- **in process**: ``fedward run`` with the same two sites and rounds, in one process.

A shortcut whose ratio is below 1.10 for every job is to be removed.
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

import fedward
from fedward.flare.jobs.export import export_job
from fedward.jobs import load_experiment

LIMIT = 1.10
ORDINARY = {
    "monai_trainer": """
from monai.engines import Trainer


def load_trainer():
    return Trainer
""",
    "plain_optimizers": """
def without_compiler(kind):
    return kind
""",
}
"""Module of ``fedward.speed`` -> what stands in its place where the shortcut is not taken."""
SHORT = ("rounds=2", "synthetic.sites=2")


def without(shortcut: str, parent: Path) -> Path:
    """Return a folder with a copy of the package that does not take a shortcut."""
    folder = parent / f"without-{shortcut}"
    shutil.copytree(Path(fedward.__file__).parent, folder / "fedward")
    (folder / "fedward" / "speed" / f"{shortcut}.py").write_text(ORDINARY[shortcut])
    return folder


def cpu_seconds(command: list[str], package: Path, folder: Path) -> float:
    """Return the CPU seconds of a command and of all processes that it started.

    Args:
        command: what to run.
        package: the folder from which it imports fedward.
        folder: where it runs; it is removed afterwards.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(package)}
    folder.mkdir()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, cwd=folder, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    shutil.rmtree(folder)
    return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)


def commands(job: str, parent: Path) -> dict[str, list[str]]:
    """Return the ways to run a shipped job, shortened: name -> command."""
    export_job(load_experiment(job, SHORT), parent / job)
    changes = [word for change in SHORT for word in ("--set", change)]
    simulator = str(Path(sys.executable).with_name("nvflare"))
    return {
        "simulator": [simulator, "simulator", str(parent / job), "-w", "workspace"],
        "in process": [sys.executable, "-m", "fedward", "run", job, "--out", "run", *changes],
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--job", default="fedavg")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    print("| shortcut | run | CPU s without | CPU s with | ratio, median (min to max) | |")
    print("|---|---|--:|--:|--:|---|")
    with tempfile.TemporaryDirectory() as temporary:
        parent = Path(temporary)
        with_all = Path(fedward.__file__).parents[1]
        for shortcut in ORDINARY:
            package = without(shortcut, parent)
            for name, command in commands(options.job, parent).items():
                taken = []
                not_taken = []
                for _ in range(options.repeats):
                    taken.append(cpu_seconds(command, with_all, parent / "here"))
                    not_taken.append(cpu_seconds(command, package, parent / "here"))
                ratios = [slow / fast for slow, fast in zip(not_taken, taken, strict=True)]
                ratio = statistics.median(ratios)
                print(
                    f"| {shortcut} | {name} | {statistics.median(not_taken):.1f} "
                    f"| {statistics.median(taken):.1f} "
                    f"| {ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f}) "
                    f"| {'missed' if ratio < LIMIT else ''} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()

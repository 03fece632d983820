"""Does the server grow over a hundred rounds of FedPerl on ten sites?

Measured are its memory, its file descriptors and its threads.

    OMP_NUM_THREADS=1 python benchmarks/long_run.py [--picture FILE.svg]

Two runs of the same tiny experiment, each in a process of its own that is watched from here: after
every round (a new row in ``rounds.jsonl``) the process that holds the server is measured.

- **in process**: server and sites in one process.
- **simulator**: FLARE's simulator with a thread for every site. The server's process is the parent
  of the sites'.

Memory is what the process alone would free (USS): pages shared with the sites' processes do not
hide growth. For 65 seconds FLARE keeps each finished message and a thread for it (``RxTask`` in
``nvflare/fuel/f3/streaming``), so that the first rounds fill that window. So growth is reported
twice, over the first and over the second fifty rounds. Only the latter have a limit. Threads have
no limit: FLARE's pools start theirs when first needed. Exit status 1 if memory or descriptors grow
past the limit.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import psutil

from fedward.flare.jobs.export import export_job
from fedward.jobs import load_experiment, simulated_sites

START = 10
WARM = 50
ROUNDS = 100
WINDOW = 5
"""Rounds between which growth is reported, the last of them the end; rounds whose median is taken
at each.
"""
LIMIT = 1.05
SETTINGS = {
    "rounds": ROUNDS,
    "warm_up": 2,
    "participants": 10,
    "images_per_round": 16,
    "batch": 8,
    "net": "small_cnn_gn",
    "data.image_size": 16,
    "synthetic.images": 40,
    "evaluate_every": 10,
}
ENGINES = ("in process", "simulator")
MEASURED = ("memory", "resident", "descriptors", "threads")
JUDGED = ("memory", "descriptors")
PANELS = {
    "memory": "private memory, MB",
    "descriptors": "open file descriptors",
    "threads": "threads",
}


@dataclass(frozen=True)
class Sample:
    """The server's process right after a round."""

    round: int
    memory: float
    """USS in MB (10^6 bytes)."""
    resident: float
    """RSS in MB."""
    descriptors: int
    threads: int


def watch(name: str, folder: Path) -> list[Sample]:
    """Run the experiment with one engine and return a sample for each round.

    This process exits if the run fails.
    """
    log = folder.with_suffix(".log")
    with log.open("w") as output:
        process = subprocess.Popen(
            command_of(name, folder), stdout=output, stderr=subprocess.STDOUT
        )
    samples = list(samples_of(process, folder))
    if process.returncode or [sample.round for sample in samples] != list(range(1, ROUNDS + 1)):
        sys.exit(
            f"{name}: exit status {process.returncode}, {len(samples)} rounds seen\n"
            f"{log.read_text()[-3000:]}"
        )
    return samples


def command_of(name: str, folder: Path) -> list[str]:
    """Return the command of an engine, which writes into ``folder``."""
    changes = [f"{key}={value}" for key, value in SETTINGS.items()]
    experiment = load_experiment("fedperl", changes)
    if name == "in process":
        settings = [part for change in changes for part in ("--set", change)]
        fedward = str(Path(sys.executable).with_name("fedward"))
        return [fedward, "run", "fedperl", "--out", str(folder), *settings]
    export_job(experiment, folder / "fedperl")
    sites = simulated_sites(experiment)
    nvflare = str(Path(sys.executable).with_name("nvflare"))
    command = [nvflare, "simulator", str(folder / "fedperl"), "-w", str(folder / "workspace")]
    return [*command, "-c", ",".join(sites), "-t", str(len(sites)), "-l", "warning"]


def samples_of(process: subprocess.Popen[bytes], folder: Path) -> Iterator[Sample]:
    """Yield a sample whenever the run's log of rounds has grown, until the process ends."""
    server = None
    done = 0
    while process.poll() is None:
        log = next(folder.rglob("rounds.jsonl"), None)
        rounds = log.read_bytes().count(b"\n") if log else 0
        if rounds > done:
            server = server or server_of(psutil.Process(process.pid))
            yield measure(server, rounds)
            done = rounds
        time.sleep(0.02)


def server_of(root: psutil.Process) -> psutil.Process:
    """Return the process that holds the server.

    It is the parent of the simulator's sites; without such sites it is ``root``.
    """
    sites = [child for child in root.children(recursive=True) if "--client" in child.cmdline()]
    return sites[0].parent() or root if sites else root


def measure(server: psutil.Process, round_: int) -> Sample:
    """Measure one process (Linux)."""
    memory = server.memory_full_info()
    return Sample(
        round_, memory.uss / 1e6, memory.rss / 1e6, server.num_fds(), server.num_threads()
    )


def growth(samples: list[Sample], value: str, start: int, end: int) -> float:
    """Return the ratio of a value's medians: rounds up to ``end`` to rounds up to ``start``."""
    early, late = (
        statistics.median(getattr(sample, value) for sample in samples[last - WINDOW : last])
        for last in (start, end)
    )
    return float(late / early)


def print_table(name: str, samples: list[Sample]) -> bool:
    """Print every tenth round and the growth; return whether it is within the limit."""
    print(
        f"\n### {name}\n\n"
        "| round | private memory, MB | resident, MB | descriptors | threads |\n"
        "|--:|--:|--:|--:|--:|"
    )
    for sample in samples[9::10]:
        print(
            f"| {sample.round} | {sample.memory:.1f} | {sample.resident:.1f} "
            f"| {sample.descriptors} | {sample.threads} |"
        )
    for start, end in ((START, WARM), (WARM, ROUNDS)):
        ratios = {
            value: growth(samples, value, start, end)
            for value in ("memory", "resident", "descriptors", "threads")
        }
        cells = " | ".join(f"{ratio:.3f}" for ratio in ratios.values())
        print(f"| growth {start} to {end} | {cells} |")
    print(f"\nAim: from round {WARM} on memory and descriptors grow by at most {LIMIT}", flush=True)
    return all(ratios[value] <= LIMIT for value in JUDGED)


def draw(runs: Mapping[str, list[Sample]], picture: Path) -> None:
    """Draw the curves, a panel for each quantity."""
    plt.rcParams["svg.hashsalt"] = "fedward"  # equal curves give equal files
    figure, panels = plt.subplots(1, len(PANELS), figsize=(12, 3.6), layout="constrained")
    for panel, (value, label) in zip(panels, PANELS.items(), strict=True):
        for name, samples in runs.items():
            panel.plot(
                [sample.round for sample in samples],
                [getattr(sample, value) for sample in samples],
                label=name,
            )
        panel.axvline(WARM, color="0.8", zorder=0)
        panel.set(xlabel="round", ylabel=label, xlim=(0, ROUNDS))
        panel.set_ylim(0, 1.05 * panel.get_ylim()[1])
        panel.spines[["top", "right"]].set_visible(False)
    figure.legend(
        *panels[0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=len(runs),
        frameon=False,
    )
    figure.savefig(picture, metadata={"Date": None})


def main() -> None:
    """Watch all runs, print and draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--picture",
        type=Path,
        default=Path("build/long_run.svg"),
        help="default: build/long_run.svg",
    )
    picture = parser.parse_args().picture
    runs = {}
    flat = True
    with tempfile.TemporaryDirectory() as folder:
        for index, name in enumerate(ENGINES):
            runs[name] = watch(name, Path(folder) / str(index))
            flat &= print_table(name, runs[name])
    picture.parent.mkdir(parents=True, exist_ok=True)
    draw(runs, picture)
    print(f"\n{picture}")
    sys.exit(not flat)


if __name__ == "__main__":
    main()

"""What processes cost before they work: CPU seconds and memory, each in fresh processes.

    python benchmarks/startup.py [--repeats 5]

- **torch**: imports PyTorch and does nothing.
- **evaluates**: predicts with a small network and computes its metrics.
- **trains**: one step of MONAI's trainer with torch's Adam, with all that a site's client imports.
- **--help**, **--version**: the command line.

Seconds are user and system time of the whole process. ``beyond torch`` is the median of the
differences to the process with PyTorch alone that ran in the same repeat. Private memory is what
the process alone would free (USS); resident memory (RSS) also counts the files of libraries that
processes share.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

import started
from started import PROCESSES

LIMITS = {"evaluates": 1.0, "trains": 1.0, "--help": 0.3, "--version": 0.3}
"""CPU seconds; of the first two, beyond those of torch."""
PRIVATE = 600
"""MB."""


def measure(name: str) -> list[float]:
    """Return CPU seconds, and MB of private and of resident memory, of a new process."""
    command = [sys.executable, started.__file__, name]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    numbers: list[float] = json.loads(done.stderr.strip().splitlines()[-1])
    return numbers


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    for name in PROCESSES:
        # Not counted, because it reads files from the disk.
        measure(name)
    measured: dict[str, list[list[float]]] = {name: [] for name in PROCESSES}
    for _ in range(repeats):
        for name in PROCESSES:
            measured[name].append(measure(name))
    print(
        f"{'':12}{'CPU s':>8}{'beyond torch':>14}{'limit':>8}{'private MB':>12}{'resident MB':>13}"
    )
    for name, rows in measured.items():
        seconds, private, resident = (
            statistics.median(column) for column in zip(*rows, strict=True)
        )
        beyond_torch = statistics.median(
            row[0] - torch[0] for row, torch in zip(rows, measured["torch"], strict=True)
        )
        is_compared = name in ("evaluates", "trains")
        judged = beyond_torch if is_compared else seconds
        beyond = f"{beyond_torch:.2f}" if is_compared else ""
        limit = f"{LIMITS[name]:.1f}" if name in LIMITS else ""
        missed = judged > LIMITS.get(name, float("inf")) or private > PRIVATE
        print(
            f"{name:12}{seconds:8.2f}{beyond:>14}{limit:>8}{private:12.0f}{resident:13.0f}"
            f"{'  missed' if missed else ''}"
        )


if __name__ == "__main__":
    main()

"""What the federation costs: time besides training, the server's memory, bytes on the wire.

    python benchmarks/rounds.py [overhead] [workers] [simulator] [memory] [bytes] [--quick]

- **overhead**: the in-process engine. Time of a round outside the sites' training and evaluation:
  messages, checks, averaging, files. CPU time is what other work on the machine disturbs least; the
  wall clock includes waiting for the disk. The first rounds, in which the sites load their data,
  are left out.
- **workers**: the same rounds with the sites in one process and in two. By CPU time a round takes
  as long as the server's process and the busiest worker: what it would take if each had a core of
  its own. Wall-clock time is that of this machine, with all else that runs there.
- **simulator**: the same rounds in the FLARE simulator, with a thread for every site.
- **memory**: peak memory of the server, in a process of its own for each number of sites, with
  sites that answer at once and train nothing.
- **bytes**: what one site receives and sends in a round, in models, and how much more that is than
  SSFL's.

Without a name all of them run.
"""

import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import psutil
import torch

from fedward.config import Experiment
from fedward.flare.jobs.export import export_job
from fedward.jobs import load_experiment, site_names
from fedward.lab.local import LocalTransport, Sites, local_transport
from fedward.methods import method_of
from fedward.protocol.transport import Deliver, Transport
from fedward.protocol.wire import Message
from fedward.report import write_report
from fedward.storage.model_files import StoredState
from fedward.training.learner import Learner
from quiet_run import run_quietly

LIMITS = {"overhead": 0.05, "workers": 1.5, "bytes": 0.25, "memory": 0.1}
SMALL = (
    "net=small_cnn",
    "data.image_size=32",
    "images_per_round=208",
    "synthetic.images=240",
    "synthetic.sites=10",
    "synthetic.places=null",
    "evaluate_every=4",
)
"""Said in full: the shipped jobs may change, these numbers should not."""
LARGE = (*SMALL, "net=tf_efficientnet_lite0", "data.image_size=48")
METHODS = {
    "SSFL": ("ssfl", ()),
    "FedPerl": ("fedperl", ("warm_up=1",)),
    "FedPerl without anonymisation": ("fedperl", ("warm_up=1", "anonymise=false")),
}


class Timed:
    """Adds up the CPU and wall seconds spent in functions."""

    def __init__(self) -> None:
        self.spent = np.zeros(2)

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            start = clocks()
            try:
                return function(*args, **kwargs)
            finally:
                self.spent += clocks() - start

        return timed


def clocks() -> np.ndarray:
    """Return (CPU, wall) seconds."""
    return np.array([time.process_time(), time.perf_counter()])


class Marking(LocalTransport):
    """Notes the clocks, and what the sites have used so far, at the start of every exchange."""

    def __init__(
        self, timed: Timed, experiment: Experiment, names: Sequence[str], folder: Path
    ) -> None:
        super().__init__(Sites(experiment, folder), names)
        self.timed = timed
        self.marks = list[tuple[np.ndarray, np.ndarray]]()
        """The clocks, and what the sites have used."""

    def exchange(self, requests: dict[str, Message], timeout: int, deliver: Deliver) -> None:
        self.marks.append((clocks(), self.timed.spent.copy()))
        super().exchange(requests, timeout, deliver)


def overhead(folder: Path, quick: bool) -> None:
    """Print seconds of a round in and outside of the sites."""
    print("\n### In-process engine: time of a round beside training and evaluation\n")
    print(
        "| method and network | rounds | CPU s a round | share beside training, CPU | wall | aim |"
    )
    print("|---|--:|--:|--:|--:|---|")
    timed = Timed()
    cases = {
        "FedPerl, small_cnn, 32 px": ("fedperl", SMALL),
        "SSFL, small_cnn, 32 px": ("ssfl", SMALL),
        "FedPerl, tf_efficientnet_lite0, 48 px": ("fedperl", LARGE),
        "FedPerl, tf_efficientnet_lite0, 48 px, two steps a round": (
            "fedperl",
            (*LARGE, "images_per_round=32"),
        ),
    }
    for name, (job, changes) in cases.items():
        rounds = 3 if quick or "lite0" in name else 12
        experiment = load_experiment(
            job, [*changes, f"rounds={rounds}"] + ["warm_up=1"] * (job == "fedperl")
        )
        out = folder / name.replace(" ", "-")
        transport = Marking(timed, experiment, site_names(10), folder / "cache")
        with (
            patch.object(Learner, "train", timed.wrap(Learner.train)),
            patch.object(Learner, "evaluate", timed.wrap(Learner.evaluate)),
        ):
            run_quietly(experiment, out, transport, report=write_report)
        # The first exchange evaluates everywhere, and so loads every site's data.
        spans = [
            (b[0] - a[0], b[1] - a[1])
            for a, b in zip(transport.marks[1:], transport.marks[2:], strict=False)
        ]
        total, inside = (np.sum(part, axis=0) for part in zip(*spans, strict=True))
        share = 1 - inside / total
        print(
            f"| {name} | {len(spans)} | {total[0] / len(spans):.2f} "
            f"| {share[0]:.1%} | {share[1]:.1%} "
            f"| at most {LIMITS['overhead']:.0%} |",
            flush=True,
        )


class Watched:
    """Notes at the start of every exchange what this process and its workers have used."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.marks = list[tuple[float, float, np.ndarray]]()
        """Wall-clock seconds, CPU seconds of this process, and those of each worker."""
        self.memory = list[float]()
        """Private memory of each worker after the last exchange, in MB."""

    def sites(self) -> list[str]:
        return self.inner.sites()

    def exchange(self, requests: dict[str, Message], timeout: int, deliver: Deliver) -> None:
        workers = [worker for forker in psutil.Process().children() for worker in forker.children()]
        own, *others = (sum(process.cpu_times()[:2]) for process in (psutil.Process(), *workers))
        self.marks.append((time.perf_counter(), own, np.array(others or [0.0])))
        self.inner.exchange(requests, timeout, deliver)
        self.memory = [worker.memory_full_info().uss / 1e6 for worker in workers]

    def rounds(self) -> Iterator[tuple[float, float]]:
        """Yield the wall-clock and CPU seconds of each round.

        CPU seconds are those of the server and of the busiest worker.
        """
        for (wall, server, others), (wall_after, server_after, others_after) in zip(
            self.marks, self.marks[1:], strict=False
        ):
            yield wall_after - wall, server_after - server + max(others_after - others)


def workers(folder: Path, quick: bool) -> None:
    """Print seconds of a round with the sites in one process and in two, and their ratio.

    The workers' memory is printed too.
    """
    print("\n### In-process engine: a round with two workers\n")
    print(
        "| network | sites, all train | rounds | 1: CPU s, wall s | 2: CPU s, wall s "
        "| faster, CPU | wall | first exchange, s: 1, 2 | a worker, MB | aim, CPU |\n"
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|---|"
    )
    for changes, count in ((SMALL, 12), (LARGE, 6)):
        for participants in (3, 4):
            settings = [
                f"participants={participants}",
                "evaluate_every=99",
                "warm_up=1",
                f"rounds={5 if quick else count}",
            ]
            experiment = load_experiment("fedperl", [*changes, *settings])
            algorithm = method_of(experiment)
            names = site_names(participants)
            taken = list[np.ndarray]()
            started = list[float]()
            memory_ = list[float]()
            for number in (1, 2):
                out = folder / f"{experiment.net}-{participants}-{number}"
                sites = Sites(experiment, out / "sites")
                with local_transport(sites, names, algorithm, out, workers=number) as inner:
                    watched = Watched(inner)
                    began = time.perf_counter()
                    run_quietly(experiment, out, watched)
                # In the first half sites load their images, some of them in both processes.
                warm = list(watched.rounds())[len(watched.marks) // 2 :]
                taken.append(np.median(warm, axis=0))
                started.append(watched.marks[1][0] - began)
                memory_ = watched.memory
            times = " | ".join(f"{cpu:.2f}, {wall:.2f}" for wall, cpu in taken)
            wall, cpu = taken[0] / taken[1]
            print(
                f"| {experiment.net} | {participants} | {len(warm)} | {times} "
                f"| {cpu:.2f} | {wall:.2f} "
                f"| {', '.join(f'{seconds:.1f}' for seconds in started)} | {max(memory_):.0f} "
                f"| at least {LIMITS['workers']} |",
                flush=True,
            )


def simulator(folder: Path, quick: bool) -> None:
    """Print seconds of a round of FLARE's simulator, and how long sites wait for work there."""
    print("\n### FLARE simulator: a round of FedPerl\n")
    print(
        "| sites | training | rounds | s a round | slowest site | beyond it "
        "| of that FLARE's wait | aim |"
    )
    print("|--:|--:|--:|--:|--:|--:|--:|---|")
    for sites, training in ((10, 3), (4, 4)):
        rounds = 8 if quick else 24
        out = folder / f"{sites}-{training}"
        # Evaluated before the first round and after the last only: what is left of a round is
        # training and transport.
        changes = [
            *SMALL,
            f"rounds={rounds}",
            f"participants={training}",
            "warm_up=1",
            f"evaluate_every={rounds}",
        ]
        export_job(load_experiment("fedperl", changes), out / "fedperl")
        command = ["nvflare", "simulator", str(out / "fedperl"), "-w", str(out / "workspace")]
        command += ["-c", ",".join(site_names(sites)), "-t", str(sites)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(command)}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
        (run,) = (path.parent for path in (out / "workspace").rglob("rounds.jsonl"))
        slowest: dict[int, float] = {}
        for row in rows(run, "metrics"):
            if row["name"] == "seconds":
                slowest[row["round"]] = max(row["value"], slowest.get(row["round"], 0.0))
        # A site's first training imports what it needs: its process is new.
        warm = [row for row in rows(run, "rounds") if row["round"] > rounds // 2]
        waits = waiting((out / "workspace" / "server" / "log.txt").read_text(encoding="utf-8"))
        beyond = [row["seconds"] - slowest[row["round"]] for row in warm]
        numbers = [
            [row["seconds"] for row in warm],
            [slowest[row["round"]] for row in warm],
            beyond,
        ]
        numbers.append([waits[row["round"] - 1] for row in warm])
        cells = " | ".join(f"{statistics.median(values):.2f}" for values in numbers)
        print(
            f"| {sites} | {training} | {len(warm)} | {cells} | at most 0.5 s beyond |", flush=True
        )


def waiting(log: str) -> list[float]:
    """Return the seconds of each exchange from its first task to the last task that is asked for.

    Sites ask: FLARE's simulator sleeps half a second after a site asked in vain.
    """
    event = re.compile(r"^(\S+ \S+) - .*(scheduled task|assigned task|got result)", re.MULTILINE)
    spans = list[list[float]]()
    open_tasks = 0
    for time_, what in event.findall(log):
        at = datetime.strptime(time_, "%Y-%m-%d %H:%M:%S,%f").timestamp()
        if what == "scheduled task" and not open_tasks:
            spans.append([at, at])
        elif what == "assigned task":
            spans[-1][1] = at
        open_tasks += {"scheduled task": 1, "assigned task": 0, "got result": -1}[what]
    return [end - start for start, end in spans]


class Echo:
    """Sites that answer at once with a small difference."""

    def __init__(self, names: list[str]) -> None:
        self.names = names

    def sites(self) -> list[str]:
        return self.names

    def exchange(self, requests: dict[str, Message], timeout: int, deliver: Deliver) -> None:
        for site in sorted(requests):
            deliver(site, self._answer(site, requests[site]))

    @staticmethod
    def _answer(site: str, request: Message) -> Message:
        works = request.meta["task"] != "idle"
        meta = {
            "site": site,
            "round": request.meta["round"],
            "labelled": 1,
            "unlabelled": 1,
            "steps": int(works),
        }
        diff = {
            name.replace("model/", "diff/", 1): np.full(array.shape, 1e-4, np.float32)
            for name, array in request.arrays.items()
            if works and name.startswith("model/")
        }
        return Message({**meta, "train": {}, "metrics": []}, diff)


def measure_memory(method: str, sites: int, folder: Path) -> None:
    """Print the peak memory of a run, before and after it, and the size of its model.

    Args:
        sites: number of sites in a round.
    """
    job, changes = METHODS[method]
    experiment = load_experiment(
        job, [*LARGE, *changes, "rounds=4", f"participants={sites}", "evaluate_every=99"]
    )
    from fedward.nets import build  # timm and the network belong to the base line

    net = build(experiment.net, len(experiment.data.classes), 3)
    size = sum(value.nbytes for value in net.state_dict().values() if value.is_floating_point())
    before = peak()
    run_quietly(experiment, folder / "run", Echo(site_names(sites)), report=write_report)
    print(json.dumps({"before": before, "peak": peak(), "model": size}))


def peak() -> int:
    """Return the largest resident memory of this process so far in bytes (Linux)."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def memory(folder: Path, quick: bool) -> None:
    """Print the server's peak memory against the number of sites."""
    counts = (3, 10) if quick else (3, 10, 30)
    print("\n### Server memory: peak of a run by its sites, in MB above a process without one\n")
    columns = " | ".join(f"{count} sites" for count in counts)
    print(f"| method | {columns} | models for each further site | aim |")
    print(f"|---|{'--:|' * len(counts)}--:|---|")
    for method in METHODS:
        results = []
        for count in counts:
            out = folder / f"{METHODS[method][0]}-{len(METHODS[method][1])}-{count}"
            command = [sys.executable, __file__, "--measure-memory", method, str(count), str(out)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            results.append(json.loads(done.stdout.splitlines()[-1]))
            shutil.rmtree(out)
        above = [result["peak"] - result["before"] for result in results]
        slope = (above[-1] - above[0]) / (counts[-1] - counts[0]) / results[0]["model"]
        cells = [f"{value / 1e6:.0f}" for value in above]
        print(
            f"| {method} | {' | '.join(cells)} | {slope:.2f} | at most {LIMITS['memory']} |",
            flush=True,
        )
    model, before = (results[0][name] / 1e6 for name in ("model", "before"))
    print(f"\nOne model: {model:.1f} MB; the process without a run: {before:.0f} MB.")


def wire_bytes(folder: Path, quick: bool) -> None:
    """Print what travels in a round past the warm-up."""
    del quick
    print("\n### Bytes of one training site and round, past the warm-up, in models\n")
    print(
        "| method | model, MB | down | up | peer models | more than SSFL | aim |\n"
        "|---|--:|--:|--:|--:|--:|---|"
    )
    ssfl = 0.0
    half = ("fedperl", ("warm_up=1", "update_dtype=float16"))
    for method, (job, changes) in {**METHODS, "FedPerl, updates in float16": half}.items():
        settings = [
            *LARGE,
            "data.image_size=32",
            "rounds=5",
            "participants=4",
            "evaluate_every=99",
            *changes,
        ]
        experiment: Experiment = load_experiment(job, settings)
        out = folder / method.replace(" ", "-")
        transport = LocalTransport(Sites(experiment, folder / "cache"), site_names(4))
        run_quietly(experiment, out, transport, report=write_report)
        state = StoredState(out / "model.safetensors")
        size = sum(value.nbytes for value in state.values() if value.is_floating_point())
        past = [row for row in rows(out, "bytes") if 2 < row["round"] <= 5]
        columns = [
            statistics.mean(row[name] for row in past) for name in ("down", "up", "peer_models")
        ]
        down = columns[0] / size
        up = columns[1] / size
        ssfl = ssfl or down + up
        cells = [
            f"{size / 1e6:.1f}",
            *(f"{value:.3f}" for value in (down, up)),
            f"{columns[2]:.2f}",
        ]
        more = f"{(down + up) / ssfl - 1:.1%} | at most {LIMITS['bytes']:.0%}"
        print(f"| {method} | {' | '.join(cells)} | {more} |", flush=True)


def rows(run: Path, log: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a log."""
    return map(json.loads, (run / f"{log}.jsonl").read_text(encoding="utf-8").splitlines())


PARTS = {
    "overhead": overhead,
    "workers": workers,
    "simulator": simulator,
    "memory": memory,
    "bytes": wire_bytes,
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all by default"
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds, fewer sites")
    parser.add_argument("--measure-memory", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.measure_memory:
        method, sites, folder = options.measure_memory
        measure_memory(method, int(sites), Path(folder))
        return
    for name in options.parts or PARTS:
        with tempfile.TemporaryDirectory() as folder:
            PARTS[name](Path(folder), options.quick)


if __name__ == "__main__":
    main()

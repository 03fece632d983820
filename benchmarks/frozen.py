"""What a frozen encoder saves: bytes and CPU time of a site's rounds.

``trainable=head`` is compared with ``trainable=all``.

    python benchmarks/frozen.py /path/to/skin [--site site-10] [--image-size 224] [--rounds 3]
    python benchmarks/frozen.py /path/to/skin --whole [--image-size 112] [--rounds 100] [--cache
    FOLDER]

A site of the partition of real images that ``fedward partition`` writes trains SSFL with an
EfficientNet-Lite0 of ImageNet. Both runs are the same job but for ``trainable``, in one process and
one thread, round by round in turn. The clock is the process's own CPU time, which other work on the
machine disturbs least.

- **training**: the site's local training of one round.
- **evaluation**: of one model on the site's validation and test images.
- **features**: once for each image and view. Bytes are those of a request's model and of an update.

With ``--whole`` all sites of the partition train heads, by one method after another, from the same
stored features. Metrics are those of the last model on the sites' test images, means over the sites
that have them.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch

from fedward.client.client import Client
from fedward.config import DataSpec, Experiment
from fedward.console.listener import Listener
from fedward.evaluation import last_round
from fedward.lab.local import Sites
from fedward.lab.partition.fedperl import fedperl_layout, read_skin, write_site_files
from fedward.lab.simulation import Simulation
from fedward.methods import method_of
from fedward.methods.algorithm import Algorithm
from fedward.model_state import State
from fedward.protocol import wire
from fedward.runs.run import Run
from fedward.sites import named_sites
from fedward.starting_model import initial_model

METHODS = ("fedavg", "ssfl", "fedperl")
METRICS = ("accuracy", "balanced_accuracy", "f1_macro", "auroc_macro")
BYTES = 50
TRAINING = 20
"""Aims: times fewer bytes, times less CPU time of training."""

T = TypeVar("T")


def job(trainable: str, image_size: int) -> Experiment:
    """Return SSFL with FedPerl's rounds on the eight diagnoses."""
    return Experiment(
        method="ssfl",
        net="tf_efficientnet_lite0",
        pretrained=True,
        trainable=trainable,
        data=DataSpec(image_size=image_size),
        synthetic=None,
    )


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """Return the CPU seconds of some work and what it gives."""
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def client_at(sites: Sites, name: str, algorithm: Algorithm[Any]) -> Client:
    """Return a site that has decoded its images."""
    client = sites.client(name, algorithm, key=None)
    assert isinstance(client, Client), "only a survey has another kind of client"
    client.data  # noqa: B018 - read now, because decoding is not measured
    return client


def feature_seconds(client: Client, part: str) -> float:
    """Return the CPU seconds after which a site has its features, if one part is asked for."""
    images = client.learner.images
    seconds, _ = timed(lambda: images[part])
    return seconds


def traffic(model: State) -> int:
    """Return the bytes of a model and of an update of all of it."""
    return sum(array.nbytes for array in wire.flatten("model", model).values()) + sum(
        array.nbytes for array in wire.difference(model, model).values()
    )


def ratios(numbers: dict[str, float], aim: float | None, digits: int = 2) -> str:
    """Return a row's numbers as cells: head, all, their ratio, and whether the aim is met."""
    head = numbers["head"]
    whole = numbers["all"]
    ratio = whole / head
    verdict = ""
    if aim is not None:
        verdict = f"{aim:g} times: {'met' if ratio >= aim else 'missed'}"
    return f"{head:,.{digits}f} | {whole:,.{digits}f} | {ratio:,.0f} | {verdict}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="folder with manifest.csv and images")
    parser.add_argument("--site", default="site-10", help="a site of the partition")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--whole", action="store_true", help="whole runs of heads at all sites")
    parser.add_argument(
        "--cache", type=Path, help="with --whole, decoded images and features of an earlier time"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        layout = fedperl_layout(read_skin(options.data / "manifest.csv"))
        write_site_files(layout, options.data, Path(folder) / "sites")
        if options.whole:
            runs(
                options.image_size,
                options.rounds,
                Path(folder),
                options.cache or Path(folder) / "cache",
            )
        else:
            measure(options.site, options.image_size, options.rounds, Path(folder))


def runs(image_size: int, rounds: int, folder: Path, cache: Path) -> None:
    """Print a table of whole runs of heads on the partition in ``folder / sites``."""
    names = named_sites(folder / "sites")
    headed = job("head", image_size)
    sites = Sites(headed, folder / "made", [folder / "sites"], cache)
    algorithm = method_of(headed)
    features = sum(feature_seconds(client_at(sites, name, algorithm), "val") for name in names)
    print(
        f"{len(names)} sites, {image_size} px, {rounds} rounds; "
        f"features ready after {features:.0f} CPU s\n"
    )
    print(f"| | CPU s | {' | '.join(METRICS)} |\n|---|--:|{'--:|' * len(METRICS)}")
    for method in METHODS:
        options = {"rounds": rounds, "learning_rate": 1e-3}
        changes = {"method": method, "options": options, "evaluate_every": 10}
        experiment = Experiment.parse({**headed.model_dump(), **changes}, method)
        simulation = Simulation(experiment, folder / method, names, folder / "sites", cache=cache)
        seconds, run_folder = timed(partial(simulation.run, Listener()))
        metrics = Run.load(run_folder).metrics
        means = [last_round(metrics.named(name), name).test for name in METRICS]
        cells = ["-" if mean is None else f"{mean:.3f}" for mean in means]
        print(f"| {method} | {seconds:.0f} | {' | '.join(cells)} |", flush=True)


def measure(site: str, image_size: int, rounds: int, folder: Path) -> None:
    """Print the table for one site of a partition in ``folder / sites``."""
    clients = dict[str, Client]()
    models = dict[str, State]()
    for kind in ("head", "all"):
        experiment = job(kind, image_size)
        sites = Sites(experiment, folder / kind, [folder / "sites"], folder / "cache")
        algorithm = method_of(experiment)
        models[kind] = initial_model(experiment, algorithm).state
        clients[kind] = client_at(sites, site, algorithm)
    data = clients["head"].data
    training = len(data.labelled) + len(data.unlabelled)
    held_out = len(data.val) + len(data.test)
    learners = {kind: client.learner for kind, client in clients.items()}
    features = feature_seconds(clients["head"], "labelled")
    taken = {
        name: {kind: list[float]() for kind in learners} for name in ("training", "evaluation")
    }
    for round_ in range(1, rounds + 1):
        for kind, learner in learners.items():
            seconds, update = timed(partial(learner.train, models[kind], [], round_))
            models[kind] = update.model
            taken["training"][kind].append(seconds)
    for kind, learner in learners.items():
        seconds, _ = timed(partial(learner.evaluate, models[kind]))
        taken["evaluation"][kind].append(seconds)
    medians = {
        name: {
            kind: statistics.median(seconds_of_rounds) for kind, seconds_of_rounds in row.items()
        }
        for name, row in taken.items()
    }
    print(
        f"{site}, {image_size} px: {training} training images, {held_out} others; "
        f"{rounds} rounds of each\n"
    )
    print("| | head | all | all / head | aim |\n|---|--:|--:|--:|---|")
    moved = {kind: float(traffic(model)) for kind, model in models.items()}
    print(f"| bytes of a round | {ratios(moved, BYTES, 0)} |")
    print(f"| CPU s of training in a round | {ratios(medians['training'], TRAINING)} |")
    print(f"| CPU s of an evaluation | {ratios(medians['evaluation'], None)} |")
    saved = sum(medians[name]["all"] - medians[name]["head"] for name in medians)
    print(f"\nfeatures: {features:.1f} CPU s once, saved again in {features / saved:.1f} rounds")


if __name__ == "__main__":
    main()

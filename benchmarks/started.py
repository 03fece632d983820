"""What each process that ``startup.py`` measures does.

    python benchmarks/started.py NAME

At its end the process prints its CPU seconds, and MB of private and of resident memory. Imports are
what is measured, so each function has its own.
"""

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, nn

COLOURS = 256
CLASSES = "abcdefgh"
IMAGES = 16


def imports_torch() -> None:
    import torch  # noqa: F401 - the import is all that it does


def client() -> "tuple[nn.Module, Tensor, Tensor]":
    """Import what a site's client does; return a network, images as bytes, and their labels."""
    import torch

    import fedward.client.client
    import fedward.client.site_data  # noqa: F401 - as the import above
    from fedward.nets import build

    net = build("small_cnn", len(CLASSES))
    images = torch.randint(COLOURS, (IMAGES, 3, 32, 32), dtype=torch.uint8)
    return net, images, torch.arange(IMAGES) % len(CLASSES)


def evaluates() -> None:
    net, images, labels = client()
    from fedward.evaluation import classification_metrics
    from fedward.training.batches import Pixels
    from fedward.training.evaluation import predict

    found = predict(net, Pixels(images, labels))
    classification_metrics(found.numpy(), labels.numpy(), CLASSES)


def trains() -> None:
    net, images, labels = client()
    import torch

    from fedward.methods.local import Batch, Phase, RoundInputs
    from fedward.methods.settings import Settings
    from fedward.methods.supervised import Supervised
    from fedward.training.trainer import train

    train(
        net,
        [Batch(images / (COLOURS - 1), labels)],
        Phase(Supervised(), 0.001),
        RoundInputs(torch.ones(len(CLASSES))),
        Settings(images_per_round=IMAGES),
        device=torch.device("cpu"),
        aborted=lambda: False,
    )


def prints_help() -> None:
    from fedward.cli import main

    main(["--help"])


def prints_version() -> None:
    from fedward.cli import main

    main(["--version"])


PROCESSES: dict[str, Callable[[], None]] = {
    "torch": imports_torch,
    "evaluates": evaluates,
    "trains": trains,
    "--help": prints_help,
    "--version": prints_version,
}


def tell() -> None:
    """Print what this process has used so far."""
    # Before the imports that only this function needs.
    seconds = sum(os.times()[:2])
    import json

    import psutil

    memory = psutil.Process().memory_full_info()
    print(json.dumps([seconds, memory.uss / 1e6, memory.rss / 1e6]), file=sys.stderr)


if __name__ == "__main__":
    try:
        PROCESSES[sys.argv[1]]()
    finally:
        # The command line ends its process itself.
        tell()

"""Images a second of an IsoFed site's phases, against plain loops on tensors that are ready.

    python benchmarks/phases.py [--images 3008] [--repeats 7]

28 px images, the small CNN, batches of 64, one thread: the passes are so short that a slow data
path would be most of a round. Measured in one process, in turn, by the process's own CPU time.

- **fedward**: the real trainer, from a site's cached pixels to the optimiser step: views, losses,
  logging.
- **bare**: the same passes of the same net on views made beforehand, and the optimiser: nothing
  else.
"""

import argparse
import copy
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from fedward.methods.isofed import (
    InformationMaximisation,
    IsoFedSettings,
    information_maximisation,
)
from fedward.methods.local import Batch, Objective, Phase, RoundInputs, Uses
from fedward.methods.mean_teacher import MeanTeacher, ema, sharpen
from fedward.methods.supervised import Supervised
from fedward.nets import build
from fedward.seeds import Draws
from fedward.sites import Images
from fedward.training.batches import Pixels, RoundBatches
from fedward.training.trainer import train
from fedward.views import VIEWS

CLASSES = 8
SIZE = 28
LIMIT = 0.8
"""Smallest speed of fedward as a share of bare."""
SETTINGS = IsoFedSettings()

Loss = Callable[[nn.Module, Batch, nn.Module], torch.Tensor]
"""Takes the network, a batch, and the network's teacher."""


def supervised(net: nn.Module, batch: Batch, teacher: nn.Module) -> torch.Tensor:
    """Cross-entropy."""
    assert batch.labelled is not None
    assert batch.labels is not None
    return F.cross_entropy(net(batch.labelled), batch.labels)


def mean_teacher(net: nn.Module, batch: Batch, teacher: nn.Module) -> torch.Tensor:
    """Distance to the teacher, which follows."""
    assert batch.weak is not None
    assert batch.strong is not None
    ema(teacher, net, SETTINGS.ema_decay)
    with torch.no_grad():
        target = sharpen(torch.softmax(teacher(batch.weak), 1), SETTINGS.temperature)
    predicted = torch.softmax(net(batch.strong), 1)
    return (predicted - target).square().sum(1).mean()


def adaptation(net: nn.Module, batch: Batch, teacher: nn.Module) -> torch.Tensor:
    """Information maximisation."""
    return information_maximisation(torch.softmax(net(batch.weak), 1))


def bare(net: nn.Module, batches: Sequence[Batch], loss: Loss) -> None:
    """Train on batches that are ready."""
    optimizer = torch.optim.SGD(
        net.parameters(),
        SETTINGS.learning_rate,
        SETTINGS.momentum,
        weight_decay=SETTINGS.weight_decay,
        fused=True,
    )
    teacher = copy.deepcopy(net).eval()
    for batch in batches:
        optimizer.zero_grad(set_to_none=True)
        loss(net, batch, teacher).backward()
        if SETTINGS.clip_gradient is not None:
            nn.utils.clip_grad_norm_(net.parameters(), SETTINGS.clip_gradient)
        optimizer.step()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=3008)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    cpu = torch.device("cpu")
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (options.images, SIZE, SIZE, 3), dtype=np.uint8)
    held = Pixels.of(
        Images(tuple(map(str, range(options.images))), pixels, np.arange(options.images) % CLASSES),
        cpu,
    )
    net = build("small_cnn", CLASSES).to(memory_format=torch.channels_last)
    inputs = RoundInputs(torch.ones(CLASSES))
    phases: dict[str, tuple[Objective[Any], Loss]] = {
        "supervised": (Supervised(), supervised),
        "mean teacher": (MeanTeacher(SETTINGS), mean_teacher),
        "adaptation": (InformationMaximisation(), adaptation),
    }
    print(
        "| phase | fedward, images a CPU second | bare | fedward / bare, median | min | max | aim |"
    )
    print("|---|--:|--:|--:|--:|--:|---|")
    for name, (objective, loss) in phases.items():

        def stream(repeat: int, uses: Uses = objective.uses) -> RoundBatches:
            return RoundBatches(
                held if uses.labelled else None,
                None if uses.labelled else held,
                [],
                SETTINGS,
                Draws(0),
                (repeat,),
                views=VIEWS["mirrored"],
                uses=uses,
            )

        ready = list(stream(0))
        phase = Phase(objective, SETTINGS.learning_rate)
        ours = partial(
            train,
            net,
            phase=phase,
            inputs=inputs,
            settings=SETTINGS,
            device=cpu,
            aborted=lambda: False,
        )
        seconds: dict[str, list[float]] = {"fedward": [], "bare": []}
        for repeat in range(options.repeats + 1):
            batches = stream(repeat)
            for kind, work in (
                ("fedward", partial(ours, batches)),
                ("bare", partial(bare, net, ready, loss)),
            ):
                started = time.process_time()
                work()
                if repeat:  # the first pass warms up
                    seconds[kind].append(time.process_time() - started)
        ratios = sorted(b / a for a, b in zip(seconds["fedward"], seconds["bare"], strict=True))
        rates = [f"{options.images / statistics.median(times):,.0f}" for times in seconds.values()]
        spread = f"{statistics.median(ratios):.2f} | {ratios[0]:.2f} | {ratios[-1]:.2f}"
        print(f"| {name} | {' | '.join(rates)} | {spread} | at least {LIMIT} |")


if __name__ == "__main__":
    main()

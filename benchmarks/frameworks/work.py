"""What every framework does at a site: the same network, images, views, optimiser and number of
steps.
"""

import os
from functools import cache

import torch
from torch import nn
from torch.nn import functional as F

from fedward.config import Experiment
from fedward.jobs import load_experiment, site_names
from fedward.lab.synthetic import SyntheticSites
from fedward.nets import build
from fedward.training.batches import Pixels
from fedward.views import VIEWS

SITES = 10
TRAINING = 3
BATCH = 16
ROUNDS = int(os.environ.get("ROUNDS", "24"))
STEPS = int(os.environ.get("STEPS", "13"))
"""Of the run; the environment reaches all processes."""


def settings(rounds: int, steps: int) -> tuple[str, ...]:
    """Return the changes of fedward's own job."""
    return (
        f"rounds={rounds}",
        f"participants={TRAINING}",
        f"images_per_round={BATCH * steps}",
        "class_weighting=none",
        "learning_rate=2e-3",
        "evaluate_every=1000",
        "synthetic.sites=10",
        "synthetic.places=null",
    )


def experiment() -> Experiment:
    """Return the job as fedward runs it."""
    return load_experiment("fedavg_full", settings(ROUNDS, STEPS))


def network() -> nn.Module:
    """Return a network with the same first weights in every process."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    job = experiment()
    return build(job.net, len(job.data.classes), job.data.channels)


@cache
def pixels(site: int) -> Pixels:
    """Return the labelled training images of a site, numbered from 0."""
    data = SyntheticSites().data(site_names(SITES)[site], experiment())
    return Pixels.of(data.labelled, torch.device("cpu"))


def train(net: nn.Module, site: int, seed: int) -> int:
    """Train ``net`` in place for so many steps and return the number of images seen."""
    net.train().to(memory_format=torch.channels_last)
    images = pixels(site)
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3, fused=True)
    count = BATCH * STEPS
    orders = [
        torch.randperm(len(images), generator=generator) for _ in range(1 + count // len(images))
    ]
    for index in torch.cat(orders)[:count].split(BATCH):
        views = VIEWS["rotation_invariant"].weak(images.take(index), generator)
        loss = F.cross_entropy(net(views), images.labels[index])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    return count


def say(round_: int) -> None:
    """Tell whoever watches that a round, from 1, is finished."""
    print(f"finished round {round_}", flush=True)

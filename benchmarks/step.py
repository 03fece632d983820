"""Steps a second of a site that trains, compared with plain loops and bare passes.

The site trains by FedPerl or with a mean teacher.

    python benchmarks/step.py [--net tf_efficientnet_lite0] [--image-size 48] [--peers 2] [--repeats
    5]

Measured in one process, in turn, so that a drifting machine slows all alike. With one CPU thread
the clock is the process's own CPU time, which other work on the machine disturbs least; else it is
the wall clock.

- **fedward**: the real trainer, from cached pixels to the optimiser step: views, peers,
  pseudo-labels, losses, logging.
- **bare**: the forward and backward passes of the same losses, one after another on ready-made
  views, and the optimiser: no data path, no logging. The peers see all weak views of the round at
  once.
- **reload**: a plain loop over the same losses which, like the method's published code, loads each
  peer's weights into one network in every step, in torch's default memory layout. It makes its
  views as fedward does, but those of one step at a time.
- **reload, free views**: the same on ready-made views, which no training gets.
- **mean teacher**, **its bare passes**: as the first two, for the students and teachers of IsoFed.
- **loop**, **vmap**: the peers' predictions alone, one network after another and as one
  ``torch.func.vmap``.
"""

import argparse
import copy
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedward.methods.fedperl.pseudo_labels import FedPerlObjective, committee_mean, consistency
from fedward.methods.fedperl.settings import FedPerlSettings
from fedward.methods.isofed import IsoFedSettings
from fedward.methods.local import Batch, Phase, RoundInputs
from fedward.methods.mean_teacher import MeanTeacher, sharpen
from fedward.methods.pseudo_labels.labeller import pseudo_label_loss
from fedward.methods.pseudo_labels.threshold import pseudo_label
from fedward.methods.settings import Settings
from fedward.nets import build
from fedward.seeds import Draws, torch_generator
from fedward.sites import Images
from fedward.training.batches import Pixels, RoundBatches, predictions
from fedward.training.trainer import Trained, train
from fedward.views import strong, weak

CLASSES = 8
THRESHOLD = 0.0
"""All pseudo-labels are kept, so that every contender makes the same passes."""
LIMITS = {"fedward / bare": 0.91, "fedward / reload": 1.5, "mean teacher / its bare passes": 0.85}
"""Least ratio of speeds."""
PAIRS = (
    *(limit.split(" / ") for limit in LIMITS),
    ("fedward", "reload, free views"),
    ("peers, loop", "peers, vmap"),
)


def images(count: int, size: int, rng: np.random.Generator) -> Images:
    """Random pixels: time does not depend on what they show."""
    pixels = rng.integers(0, 256, (count, size, size, 3), dtype=np.uint8)
    return Images(tuple(map(str, range(count))), pixels, rng.integers(0, CLASSES, count))


def build_net(name: str, device: torch.device) -> nn.Module:
    """Return a network as a site makes it."""
    return build(name, CLASSES).to(device).to(memory_format=torch.channels_last)


def plain_net(name: str, device: torch.device) -> nn.Module:
    """Return a network in torch's default layout, as it is without fedward."""
    return build(name, CLASSES).to(device)


class ReadyViews(NamedTuple):
    """The views of one step at a site with images of both kinds."""

    labelled: Tensor
    labels: Tensor
    weak: Tensor
    strong: Tensor

    @classmethod
    def of(cls, batch: Batch) -> "ReadyViews":
        """Return the views of a batch, which must have both kinds of images."""
        assert batch.labelled is not None
        assert batch.labels is not None
        assert batch.weak is not None
        assert batch.strong is not None
        return cls(batch.labelled, batch.labels, batch.weak, batch.strong)

    def contiguous(self) -> "ReadyViews":
        """Return the same views in torch's default layout."""
        return ReadyViews(
            self.labelled.contiguous(),
            self.labels,
            self.weak.contiguous(),
            self.strong.contiguous(),
        )


def views_by_step(
    labelled: Pixels, unlabelled: Pixels, steps: int, seed: int, size: int
) -> Iterator[ReadyViews]:
    """Make the views of one step at a time."""
    generator = torch_generator(seed, "views")
    for _ in range(steps):
        index = torch.randint(len(labelled), (size,), generator=generator)
        images = unlabelled.take(index)
        labels = labelled.labels[index.to(labelled.labels.device)]
        views = ReadyViews(
            weak(labelled.take(index), generator),
            labels,
            weak(images, generator),
            strong(images, generator),
        )
        yield views.contiguous()


def bare(
    net: nn.Module,
    batches: list[ReadyViews],
    peers: list[nn.Module],
    inputs: RoundInputs,
    rate: float,
) -> None:
    """The same losses alone; the peers see all weak views of the round at once."""
    optimizer = torch.optim.Adam(net.parameters(), lr=rate, fused=True)
    answers = predictions(peers, torch.cat([batch.weak for batch in batches])).split(
        len(batches[0].weak), dim=1
    )
    for batch, peer in zip(batches, answers, strict=True):
        loss = F.cross_entropy(net(batch.labelled), batch.labels, weight=inputs.class_weights)
        net.eval()
        local = torch.softmax(net(batch.weak), 1)
        net.train()
        labels, keep = pseudo_label(committee_mean(local.detach(), peer), THRESHOLD)
        loss = (
            loss
            + 0.5 * pseudo_label_loss(net(batch.strong), labels, keep)
            + 0.01 * consistency(local, peer)
        )
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()


def reload(
    net: nn.Module,
    batches: Iterable[ReadyViews],
    peer_states: list[dict[str, Tensor]],
    helper: nn.Module,
    rate: float,
) -> None:
    """A plain loop that loads every peer in every step."""
    optimizer = torch.optim.Adam(net.parameters(), lr=rate)
    for batch in batches:
        loss = F.cross_entropy(net(batch.labelled), batch.labels)
        net.eval()
        local = torch.softmax(net(batch.weak), 1)
        net.train()
        answers = []
        for state in peer_states:
            helper.load_state_dict(state)
            helper.eval()
            with torch.no_grad():
                answers.append(torch.softmax(helper(batch.weak), 1))
        confidence, labels = torch.stack([local.detach(), *answers]).mean(0).max(1)
        keep = confidence >= THRESHOLD
        if keep.any():
            loss = loss + 0.5 * F.cross_entropy(net(batch.strong[keep]), labels[keep])
        loss = loss + 0.01 * sum(F.mse_loss(local, answer) for answer in answers) / len(answers)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def bare_teacher(net: nn.Module, batches: list[ReadyViews], settings: IsoFedSettings) -> None:
    """The mean teacher's passes, its optimiser, and the teacher's step."""
    teacher = copy.deepcopy(net).requires_grad_(False).eval()
    mine: list[Tensor] = list(teacher.parameters())
    theirs: list[Tensor] = list(net.parameters())
    rate = settings.unlabelled_learning_rate
    momentum = settings.momentum
    optimizer = torch.optim.SGD(
        theirs, lr=rate, momentum=momentum, weight_decay=settings.weight_decay, fused=True
    )
    for batch in batches:
        with torch.no_grad():
            target = sharpen(torch.softmax(teacher(batch.weak), 1), settings.temperature)
        loss = (
            settings.unlabelled_weight
            * (torch.softmax(net(batch.strong), 1) - target).square().sum(1).mean()
        )
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if settings.clip_gradient is not None:
            nn.utils.clip_grad_norm_(theirs, settings.clip_gradient)
        optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(mine, theirs, 1 - settings.ema_decay)
            for old, new in zip(teacher.buffers(), net.buffers(), strict=True):
                old.copy_(new)


def vmapped(peers: list[nn.Module]) -> Callable[[Tensor], Tensor]:
    """Return the peers as one batched forward pass."""
    parameters, buffers = torch.func.stack_module_state(peers)
    skeleton = peers[0]

    def one(parameter: dict[str, Tensor], buffer: dict[str, Tensor], views: Tensor) -> Tensor:
        return torch.softmax(torch.func.functional_call(skeleton, (parameter, buffer), (views,)), 1)

    batched = torch.func.vmap(one, in_dims=(0, 0, None))
    return lambda views: batched(parameters, buffers, views)


def show(
    options: argparse.Namespace,
    device: torch.device,
    seconds: dict[str, list[float]],
    cpu_time: bool,
) -> None:
    """Print the speeds and their ratios."""
    print(
        f"{options.net}, {options.image_size} px, {options.peers} peers, {device.type}, "
        f"{options.threads} thread(s)\n"
    )
    print(f"| | steps a {'CPU ' * cpu_time}second, median | min | max |\n|---|--:|--:|--:|")
    for name, times in seconds.items():
        rates = sorted(options.steps / value for value in times)
        print(f"| {name} | {statistics.median(rates):.2f} | {rates[0]:.2f} | {rates[-1]:.2f} |")
    print("\n| ratio of speeds, pair by pair | median | min | max | aim |\n|---|--:|--:|--:|---|")
    for above, below in PAIRS:
        ratios = sorted(b / a for a, b in zip(seconds[above], seconds[below], strict=True))
        limit = LIMITS.get(f"{above} / {below}")
        aim = f"at least {limit}" if limit else ""
        median = statistics.median(ratios)
        print(f"| {above} / {below} | {median:.2f} | {ratios[0]:.2f} | {ratios[-1]:.2f} | {aim} |")


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--net", default="tf_efficientnet_lite0")
    parser.add_argument("--image-size", type=int, default=48)
    parser.add_argument("--peers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def main() -> None:
    """Measure and print."""
    options = arguments()
    torch.set_num_threads(options.threads)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rng = np.random.default_rng(0)
    settings = FedPerlSettings(images_per_round=16 * options.steps, threshold=THRESHOLD)
    labelled, unlabelled = (
        Pixels.of(images(256, options.image_size, rng), device) for _ in range(2)
    )
    inputs = RoundInputs(torch.ones(CLASSES, device=device))
    teaching = IsoFedSettings(images_per_round=16 * options.steps, batch=16)
    teacher = MeanTeacher(teaching)
    net = build_net(options.net, device)
    plain = plain_net(options.net, device)
    helper = plain_net(options.net, device)
    peers = [build_net(options.net, device).eval() for _ in range(options.peers)]
    states = [peer.state_dict() for peer in peers]

    def stream(repeat: int) -> RoundBatches:
        return RoundBatches(labelled, unlabelled, peers, settings, Draws(0), ("bench", repeat))

    def unsupervised(repeat: int) -> RoundBatches:
        return RoundBatches(
            None, unlabelled, [], teaching, Draws(0), ("bench", repeat), uses=teacher.uses
        )

    def trainer(batches: RoundBatches, phase: Phase, settings: Settings) -> Trained:
        return train(net, batches, phase, inputs, settings, device=device, aborted=lambda: False)

    def plainly(batches: Iterable[ReadyViews]) -> None:
        reload(plain.train(), batches, states, helper, settings.learning_rate)

    ready = [ReadyViews.of(batch) for batch in stream(0)]
    free = [batch.contiguous() for batch in ready]
    views = torch.cat([batch.weak for batch in ready])
    phase = Phase(FedPerlObjective(settings), settings.learning_rate)
    together = vmapped(peers)
    teach = Phase(teacher, teaching.unlabelled_learning_rate)
    work: dict[str, Callable[[int], object]] = {
        "fedward": lambda r: trainer(stream(r), phase, settings),
        "bare": lambda r: bare(net.train(), ready, peers, inputs, settings.learning_rate),
        "reload": lambda r: plainly(views_by_step(labelled, unlabelled, options.steps, r, 16)),
        "reload, free views": lambda r: plainly(free),
        "mean teacher": lambda r: trainer(unsupervised(r), teach, teaching),
        "its bare passes": lambda r: bare_teacher(net.train(), ready, teaching),
        "peers, loop": lambda r: predictions(peers, views),
        "peers, vmap": lambda r: torch.no_grad()(together)(views),
    }
    cpu_time = device.type == "cpu" and options.threads == 1
    clock = time.process_time if cpu_time else time.perf_counter
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for repeat in range(options.repeats + 1):
        for name, run in work.items():
            started = clock()
            run(repeat)
            if device.type == "cuda":
                torch.cuda.synchronize()
            if repeat:  # the first pass warms up
                seconds[name].append(clock() - started)
    show(options, device, seconds, cpu_time)


if __name__ == "__main__":
    main()

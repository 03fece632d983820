"""Steps a second of a FedPerl site, against a plain loop and against the passes nobody can avoid.

    python benchmarks/step.py [--net tf_efficientnet_lite0] [--image-size 48] [--peers 2] [--repeats 5]

Measured in one process, in turn, so that a drifting machine slows all alike. With one CPU thread the clock is the
process's own CPU time, which other work on the machine disturbs least; else it is the wall clock.

- **fedward**: the real trainer, from cached pixels to the optimiser step: views, peers, pseudo-labels, losses, logging.
- **bare**: the forward and backward passes of the same losses on ready-made views, and the optimiser: no data path, no
  logging. The floor.
- **reload**: a plain loop over the same losses on the same ready-made views which, like the method's published code,
  loads each peer's weights into one network in every step, in torch's default memory layout.
- **loop**, **vmap**: the peers' predictions alone, one network after another and as one ``torch.func.vmap``.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedward.methods.fedperl import FedPerlObjective, FedPerlSettings, consistency, pseudo_label
from fedward.methods.fixmatch import pseudo_label_loss
from fedward.methods.local import Batch, Phase, RoundInputs
from fedward.nets import build
from fedward.sites import Images
from fedward.training.batches import Pixels, RoundBatches, predictions
from fedward.training.trainer import train

CLASSES = 8
THRESHOLD = 0.0
"""All pseudo-labels are kept, so that every contender makes the same passes."""
LIMITS = {"fedward / bare": (0.85, "at least"), "fedward / reload": (1.5, "at least")}


def images(count: int, size: int, rng: np.random.Generator) -> Images:
    """Random pixels: time does not depend on what they show."""
    pixels = rng.integers(0, 256, (count, size, size, 3), dtype=np.uint8)
    return Images(tuple(map(str, range(count))), pixels, rng.integers(0, CLASSES, count))


def build_net(name: str, device: torch.device) -> nn.Module:
    """Return a network as a site makes it."""
    return build(name, CLASSES).to(device, memory_format=torch.channels_last)


def bare(net: nn.Module, batches: list[Batch], peers: list[nn.Module], inputs: RoundInputs, rate: float) -> None:
    """The same losses with nothing around them; the peers see all weak views of the round at once."""
    optimizer = torch.optim.Adam(net.parameters(), lr=rate, fused=True)
    answers = predictions(peers, torch.cat([batch.weak for batch in batches])).split(len(batches[0].weak), dim=1)
    for batch, peer in zip(batches, answers, strict=True):
        loss = F.cross_entropy(net(batch.labelled), batch.labels, weight=inputs.class_weights)
        net.eval()
        local = torch.softmax(net(batch.weak), 1)
        net.train()
        labels, keep = pseudo_label(local.detach(), peer, THRESHOLD)
        loss = loss + 0.5 * pseudo_label_loss(net(batch.strong), labels, keep) + 0.01 * consistency(local, peer)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()


def reload(net: nn.Module, batches: list[Batch], peer_states: list[dict], helper: nn.Module, rate: float) -> None:
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


def vmapped(peers: list[nn.Module]) -> Callable[[Tensor], Tensor]:
    """Return the peers as one batched forward pass."""
    parameters, buffers = torch.func.stack_module_state(peers)
    skeleton = peers[0]

    def one(parameter: dict, buffer: dict, views: Tensor) -> Tensor:
        return torch.softmax(torch.func.functional_call(skeleton, (parameter, buffer), (views,)), 1)

    batched = torch.func.vmap(one, in_dims=(0, 0, None))
    return lambda views: batched(parameters, buffers, views)


def show(options: argparse.Namespace, device: torch.device, seconds: dict[str, list[float]], cpu_time: bool) -> None:
    """Print the speeds and their ratios."""
    print(
        f"{options.net}, {options.image_size} px, {options.peers} peers, {device.type}, {options.threads} thread(s)\n"
    )
    print(f"| | steps a {'CPU ' * cpu_time}second, median | min | max |\n|---|--:|--:|--:|")
    for name, times in seconds.items():
        rates = sorted(options.steps / value for value in times)
        print(f"| {name} | {statistics.median(rates):.2f} | {rates[0]:.2f} | {rates[-1]:.2f} |")
    print("\n| ratio of speeds, pair by pair | median | min | max | aim |\n|---|--:|--:|--:|---|")
    for above, below in (("fedward", "bare"), ("fedward", "reload"), ("peers, loop", "peers, vmap")):
        ratios = sorted(b / a for a, b in zip(seconds[above], seconds[below], strict=True))
        limit = LIMITS.get(f"{above} / {below}")
        aim = f"{limit[1]} {limit[0]}" if limit else ""
        print(f"| {above} / {below} | {statistics.median(ratios):.2f} | {ratios[0]:.2f} | {ratios[-1]:.2f} | {aim} |")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", default="tf_efficientnet_lite0")
    parser.add_argument("--image-size", type=int, default=48)
    parser.add_argument("--peers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rng = np.random.default_rng(0)
    settings = FedPerlSettings(images_per_round=16 * options.steps, threshold=THRESHOLD)
    labelled, unlabelled = (Pixels.of(images(256, options.image_size, rng), device) for _ in range(2))
    inputs = RoundInputs(torch.ones(CLASSES, device=device))
    net, helper = build_net(options.net, device), build_net(options.net, device)
    plain = build(options.net, CLASSES).to(device)
    peers = [build_net(options.net, device).eval() for _ in range(options.peers)]
    states = [peer.state_dict() for peer in peers]

    def stream(repeat: int) -> RoundBatches:
        return RoundBatches(labelled, unlabelled, peers, settings, 0, ("bench", repeat))

    ready = list(stream(0))
    contiguous = [
        Batch(b.labelled.contiguous(), b.labels, b.weak.contiguous(), b.strong.contiguous(), b.peers) for b in ready
    ]
    views = torch.cat([batch.weak for batch in ready])
    phase, together = Phase(FedPerlObjective(settings), settings.learning_rate), vmapped(peers)
    never = lambda: False  # noqa: E731
    work: dict[str, Callable[[int], object]] = {
        "fedward": lambda r: train(net, stream(r), phase, inputs, settings, device=device, aborted=never),
        "bare": lambda r: bare(net.train(), ready, peers, inputs, settings.learning_rate),
        "reload": lambda r: reload(plain.train(), contiguous, states, helper, settings.learning_rate),
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

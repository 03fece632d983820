"""What choosing images costs besides predicting on them.

Printed are the seconds of each sampler, and their ratio to one forward pass of the pool.

    python benchmarks/samplers.py [--images 20000] [--budget 800] [--labelled 2000] [--quick]

Eight classes and 1280 features, one thread. The forward pass is that of the small CNN over the
whole pool at 28 pixels; what a sampler needs beyond one pass (views, a second model, features) is
not counted. Time is the process's own CPU time, which other work on the machine disturbs least; the
table shows medians, the candidates run in turn.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from fedward.methods.samplers import sampler_of
from fedward.methods.samplers.pool import Pool
from fedward.methods.samplers.suggestive import principal_axes
from fedward.nets import build
from fedward.registry import SAMPLERS
from fedward.seeds import torch_generator

CLASSES = 8
FEATURES = 1280
SIZE = 28
FORWARD = "forward pass of the pool"


def pool_for(name: str, images: int, features: Tensor, labelled: Tensor) -> Pool:
    """Random predictions; features that cluster, as those of a network do."""
    uses = sampler_of(name).uses
    draw = torch_generator(0, "benchmark", name)
    logits = torch.randn(uses.members, images, CLASSES, generator=draw).mul(2)
    ids = [f"{index:06d}" for index in range(images)]
    return Pool("north", ids, logits.softmax(dim=2), features, labelled)


def clustered(count: int, purpose: str) -> Tensor:
    """Rectified points around 50 centres."""
    draw = torch_generator(0, "benchmark", purpose)
    same = torch_generator(0, "benchmark", "centres")
    centres = 2 * torch.randn(50, FEATURES, generator=same)
    noise = torch.randn(count, FEATURES, generator=draw)
    return (centres[torch.randint(50, (count,), generator=draw)] + noise).relu()


@torch.no_grad()
def forward(net: torch.nn.Module, pictures: Tensor) -> Tensor:
    return torch.cat([net(batch).softmax(dim=1) for batch in pictures.split(256)])


def choose(name: str, pool: Pool, budget: int) -> list[str]:
    """Return the images that a sampler chooses from a pool."""
    return sampler_of(name).choose(pool, budget, torch_generator(0, "benchmark", "choice"))


def candidates(options: argparse.Namespace) -> dict[str, Callable[[], object]]:
    """Return what is timed by name, the forward pass first."""
    pictures = torch.rand(
        options.images, 3, SIZE, SIZE, generator=torch_generator(0, "benchmark", "pictures")
    )
    net = build("small_cnn", CLASSES).eval()
    features = clustered(options.images, "pool")
    labelled = clustered(options.labelled, "labelled")
    work: dict[str, Callable[[], object]] = {FORWARD: lambda: forward(net, pictures)}
    for name in SAMPLERS:
        pool = pool_for(name, options.images, features, labelled)
        work[name] = partial(choose, name, pool, options.budget)
    work[f"principal axes of {SIZE} px, once a run"] = lambda: principal_axes(pictures.mean(dim=1))
    return work


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Seconds of each sampler, beside one forward pass of the pool"
    )
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--budget", type=int, default=800)
    parser.add_argument("--labelled", type=int, default=2_000)
    parser.add_argument("--quick", action="store_true", help="1 repetition instead of 5")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    work = candidates(options)
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for repetition in range(2 if options.quick else 6):
        for name, run in work.items():
            started = time.process_time()
            run()
            if repetition:  # the first is warm-up
                seconds[name].append(time.process_time() - started)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    print(
        f"{options.images} images, {CLASSES} classes, {FEATURES} features, "
        f"{options.labelled} labelled, budget {options.budget}, one thread, "
        f"torch {torch.__version__}\n"
    )
    print("| | CPU seconds | of a forward pass |\n|---|--:|--:|")
    for name, taken in medians.items():
        print(f"| {name} | {taken:.3f} | {taken / medians[FORWARD]:.2f} |")


if __name__ == "__main__":
    main()

"""Strong and weak views: distinct pictures per batch, and images per second.

They are compared with those of kornia and torchvision.

    python benchmarks/views.py [--quick]

Every candidate runs in this one process, in turn, once per repetition, on one thread. Time is the
process's own CPU time, which other work on the machine disturbs least; the table shows each median
and its ratio to ours with as many operations. "distinct" counts different views of 16 equal images.
kornia and torchvision come with ``pip install "fedward[bench]"``; one that cannot be imported is
left out and named. The work differs a little: torchvision takes uint8 images, one by one as in a
data loader or the whole batch with one draw; the other libraries have their own list of operations,
here with magnitude 9 of their scales.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from fedward.seeds import torch_generator
from fedward.views import VIEWS, crop, strong, weak

View = Callable[[Tensor], Tensor]
BATCH = 64
OURS = {2: "fedward strong, 2 operations", 6: "fedward strong, 6 operations"}
SIZES = (28, 64, 224)


def candidates() -> dict[str, View]:
    generator = torch_generator(0, "benchmark", "views")
    views: dict[str, View] = {
        "fedward crop": lambda images: crop(images, generator, flip=True),
        "fedward weak": lambda images: weak(images, generator),
        "fedward crop and strong, 2 operations": lambda images: VIEWS["mirrored"].strong(
            images, generator
        ),
        OURS[2]: lambda images: strong(images, generator, ops=2),
        OURS[6]: lambda images: strong(images, generator),
    }
    for add in (add_kornia, add_torchvision):
        try:
            add(views)
        except ImportError as error:
            print(f"left out: {error}")
    return views


def add_kornia(views: dict[str, View]) -> None:
    from kornia.augmentation.auto import RandAugment

    for ops in OURS:
        views[f"kornia RandAugment on the batch, {ops} operations"] = RandAugment(n=ops, m=9)


def add_torchvision(views: dict[str, View]) -> None:
    from torchvision.transforms import v2

    def per_image(ops: int) -> View:
        transform = v2.RandAugment(num_ops=ops, magnitude=9)
        return lambda images: (
            torch.stack([transform(image) for image in images.mul(255).byte()]).float() / 255
        )

    def on_batch(ops: int) -> View:
        transform = v2.RandAugment(num_ops=ops, magnitude=9)
        return lambda images: transform(images.mul(255).byte()).float() / 255

    for ops in OURS:
        views[f"torchvision RandAugment per image, {ops} operations"] = per_image(ops)
        views[f"torchvision RandAugment on the batch, {ops} operations"] = on_batch(ops)


def distinct(view: View) -> int:
    """Return how many different views 16 equal images get."""
    image = torch.rand(1, 3, 64, 64, generator=torch_generator(1, "benchmark", "views"))
    return len(torch.unique(view(image.repeat(16, 1, 1, 1)).flatten(1), dim=0))


def seconds(views: dict[str, View], size: int, repetitions: int) -> dict[str, float]:
    """Return each candidate's median CPU seconds for one batch, the candidates interleaved."""
    images = torch.rand(BATCH, 3, size, size, generator=torch_generator(2, "benchmark", "views"))
    taken: dict[str, list[float]] = {name: [] for name in views}
    for repetition in range(repetitions + 1):
        for name, view in views.items():
            start = time.process_time()
            view(images)
            if repetition:  # the first is warm-up
                taken[name].append(time.process_time() - start)
    return {name: statistics.median(values) for name, values in taken.items()}


def row(name: str, different: int, times: list[dict[str, float]]) -> str:
    ours = OURS[2 if "2 op" in name else 6]
    cells = [f"{BATCH / taken[name]:,.0f} ({taken[ours] / taken[name]:.2f}x)" for taken in times]
    return f"| {name} | {different} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed and distinctness of augmented views")
    parser.add_argument("--quick", action="store_true", help="3 repetitions instead of 15")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)  # kornia and torchvision draw from the global generator
    views = candidates()
    times = [seconds(views, size, 3 if arguments.quick else 15) for size in SIZES]
    print(f"\nImages per CPU second, batches of {BATCH}, one thread, torch {torch.__version__}\n")
    print(f"| view | distinct of 16 | {' | '.join(f'{size} px' for size in SIZES)} |")
    print(f"|---|--:|{'--:|' * len(SIZES)}")
    for name, view in views.items():
        print(row(name, distinct(view), times))


if __name__ == "__main__":
    main()

"""The strong view: RandAugment, drawn per sample."""

import math
from collections import Counter
from collections.abc import Callable
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from fedward.views import colour
from fedward.views.geometry import affine, warp
from fedward.views.types import check

FILL = 128 / 255
"""Grey level outside of a moved picture, as in the authors' code."""


class Colour(NamedTuple):
    """A photometric operation and its range of values."""

    apply: Callable[[Tensor, Tensor], Tensor]
    """Changes images (N, C, H, W) by values (N, 1, 1, 1)."""
    centre: float
    """The value at strength 0."""
    reach: float
    """The value is ``centre + reach * strength``."""
    signed: bool
    """Whether the strength's sign counts; else its absolute value is used."""


# Ranges and values are those of FedPerl's code; lengths are shares of the side.
GEOMETRIC = {
    "rotate": 2 * math.pi,
    "shear_x": 0.3,
    "shear_y": 0.3,
    "translate_x": 0.2,
    "translate_y": 0.2,
}
COLOUR = {
    "autocontrast": Colour(colour.autocontrast, 0, 0, False),
    "equalize": Colour(colour.equalize, 0, 0, False),
    "solarize": Colour(colour.solarize, 256 / 255, -25 / 255, False),
    "posterize": Colour(colour.posterize, 8, -4, False),
    "saturation": Colour(colour.saturation, 1, 0.9, True),
    "contrast": Colour(colour.contrast, 1, 0.5, True),
    "brightness": Colour(colour.brightness, 1, 0.3, True),
    "sharpness": Colour(colour.sharpness, 1, 0.9, True),
}
OPERATIONS = (*GEOMETRIC, *COLOUR)


class Draw(NamedTuple):
    """What happens to each image; both are (N, ops) on the CPU."""

    operation: Tensor
    """int64: index into OPERATIONS."""
    strength: Tensor
    """float32 in (-1, 1): the magnitude as a share of the operation's range, with a sign."""


def strong(
    images: Tensor, generator: torch.Generator, ops: int = 6, turn: float = GEOMETRIC["rotate"]
) -> Tensor:
    """Return one strong view of every image, each with its own draw of operations and magnitudes.

    ``ops`` of the 13 operations are drawn with replacement, each with a uniform magnitude: rotation
    +-``turn``, shear +-0.3, translation +-0.2 of the side, solarize threshold 256-231, posterize
    8-4 bits, saturation 1 +- 0.9, contrast 1 +- 0.5, brightness 1 +- 0.3, sharpness 1 +- 0.9,
    autocontrast, equalize.

    Source: Cubuk et al., NeurIPS 2020 (RandAugment), with the operations, ranges and ``ops = 13 //
    2`` of Bdair et al., MELBA 2022 (FedPerl).

    Args:
        images: as :func:`fedward.views.weak` takes them.
        generator: as there.
        ops: operations per image, at least 0.
        turn: largest rotation of one operation in radians, at least 0. It does not change the
            draws.

    Returns:
        As :func:`fedward.views.weak`.

    Raises:
        DataError: images of another shape or dtype.

    Deviates: an image's geometric operations are composed, in their drawn order, into one
    resampling before its colour operations. Magnitudes are continuous, not in ten steps. Equalize
    equalizes, where the authors' code leaves the image as it is. Everything outside the image is
    grey, not only after a rotation.
    """
    check(images)
    return apply(images, draw(len(images), ops, generator), turn)


def draw(count: int, ops: int, generator: torch.Generator) -> Draw:
    """Draw ``ops`` operations and strengths for each of ``count`` images."""
    operation = torch.randint(len(OPERATIONS), (count, ops), generator=generator)
    return Draw(operation, 2 * torch.rand(count, ops, generator=generator) - 1)


def apply(images: Tensor, drawn: Draw, turn: float = GEOMETRIC["rotate"]) -> Tensor:
    """Apply each image's operations to it. No view depends on the other images of the batch."""
    pictures = list(images)
    moved = (drawn.operation < len(GEOMETRIC)).any(1).nonzero().flatten()
    if len(moved):
        turned = warp(images[moved.to(images.device)], _matrices(drawn, moved, turn), FILL)
        for row, picture in zip(moved.tolist(), turned, strict=True):
            pictures[row] = picture
    strengths = drawn.strength.tolist()
    for change, places in _waves(drawn.operation.tolist()):
        batch = torch.stack([pictures[row] for row, _ in places])
        strength = torch.tensor([strengths[row][slot] for row, slot in places]).view(-1, 1, 1, 1)
        if not change.signed:
            strength = strength.abs()
        value = (change.centre + change.reach * strength).to(images)
        for (row, _), picture in zip(places, change.apply(batch, value), strict=True):
            pictures[row] = picture
    return torch.stack(pictures) if pictures else images.clone()


def _matrices(drawn: Draw, rows: Tensor, turn: float) -> Tensor:
    """Return the composed geometric operations of some images, (len(rows), 3, 3).

    Colour operations count as identities.
    """
    operation = drawn.operation[rows]
    strength = drawn.strength[rows]
    ranges = GEOMETRIC | {"rotate": turn}
    values = []
    for index, reach in enumerate(ranges.values()):
        values.append(torch.where(operation == index, strength * reach, 0))
    # The matrices lead from output to input, so the first operation is the leftmost factor.
    return reduce(torch.matmul, affine(*values).unbind(1))


def _waves(operations: list[list[int]]) -> list[tuple[Colour, list[tuple[int, int]]]]:
    """Group colour operations into few waves, each of one operation on many images.

    Every image keeps the order of its own operations. The next wave is the operation that is next
    for most images.

    Args:
        operations: for each image (row), indices into OPERATIONS, by slot.

    Returns:
        The operation of each wave, and its places (row, slot).
    """
    table = list(COLOUR.values())
    # The operations that each image still needs, as (operation, (row, slot)); the next one is last.
    queues = []
    for row, chosen in enumerate(operations):
        queue = []
        for slot, index in enumerate(chosen):
            if index >= len(GEOMETRIC):
                queue.append((index - len(GEOMETRIC), (row, slot)))
        if queue:
            queues.append(queue[::-1])
    waves = []
    while queues:
        next_operations = Counter(queue[-1][0] for queue in queues)
        commonest, _ = next_operations.most_common(1)[0]
        places = []
        for queue in queues:
            if queue[-1][0] == commonest:
                _, place = queue.pop()
                places.append(place)
        waves.append((table[commonest], places))
        queues = [queue for queue in queues if queue]
    return waves

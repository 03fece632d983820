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

FILL = 128 / 255  # grey outside a turned image, as in the authors' code


class Colour(NamedTuple):
    """A photometric operation; its value is ``centre + reach * strength``, with the strength's sign
    only if signed.
    """

    apply: Callable[[Tensor, Tensor], Tensor]
    centre: float
    reach: float
    signed: bool


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
    """What happens to every image: both (N, ops), on the CPU."""

    operation: Tensor
    """int64, index into OPERATIONS."""
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
        images, generator: as :func:`fedward.views.weak` takes them; what is returned and raised is
        the same, too.
        ops: operations per image, at least 0.
        turn: largest rotation of one operation in radians, at least 0; it changes no draw.

    Deviates: an image's geometric operations are composed, in their drawn order, into one
    resampling before its colour operations. Magnitudes are continuous, not ten steps. Equalize
    equalizes (the authors' code leaves the image as it is). Everything outside the image is grey,
    not only after a rotation.
    """
    check(images)
    return apply(images, draw(len(images), ops, generator), turn)


def draw(count: int, ops: int, generator: torch.Generator) -> Draw:
    """Draw ``ops`` operations and strengths for each of ``count`` images."""
    operation = torch.randint(len(OPERATIONS), (count, ops), generator=generator)
    return Draw(operation, 2 * torch.rand(count, ops, generator=generator) - 1)


def apply(images: Tensor, drawn: Draw, turn: float = GEOMETRIC["rotate"]) -> Tensor:
    """Apply each image's operations to it; an image's view does not depend on the rest of the
    batch.
    """
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
        value = change.centre + change.reach * (strength if change.signed else strength.abs())
        for (row, _), picture in zip(places, change.apply(batch, value.to(images)), strict=True):
            pictures[row] = picture
    return torch.stack(pictures) if pictures else images.clone()


def _matrices(drawn: Draw, rows: Tensor, turn: float) -> Tensor:
    """Return the composed geometric operations (len(rows), 3, 3) of some images; a colour operation
    is an identity.
    """
    operation = drawn.operation[rows]
    strength = drawn.strength[rows]
    ranges = GEOMETRIC | {"rotate": turn}
    values = (
        torch.where(operation == index, strength * reach, 0)
        for index, reach in enumerate(ranges.values())
    )
    # The matrices lead from output to input: the first operation stands leftmost.
    return reduce(torch.matmul, affine(*values).unbind(1))


def _waves(operations: list[list[int]]) -> list[tuple[Colour, list[tuple[int, int]]]]:
    """Group the colour operations into few waves of (operation, [(row, slot), ...]) that keep every
    image's own order.

    The commonest next operation goes first.
    """
    table = list(COLOUR.values())
    queues = [
        [
            (index - len(GEOMETRIC), (row, slot))
            for slot, index in enumerate(chosen)
            if index >= len(GEOMETRIC)
        ][::-1]
        for row, chosen in enumerate(operations)
    ]
    waves = []
    while queues := [queue for queue in queues if queue]:
        commonest = Counter(queue[-1][0] for queue in queues).most_common(1)[0][0]
        places = [queue.pop()[1] for queue in queues if queue[-1][0] == commonest]
        waves.append((table[commonest], places))
    return waves

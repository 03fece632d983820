"""Weak and strong pictures of one image: drawn per sample, computed per batch."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from fedward.views.crop import crop
from fedward.views.strong import strong
from fedward.views.weak import weak

View = Callable[[Tensor, torch.Generator], Tensor]
"""Images (N, C, H, W) and a CPU generator to one view of every image; see :func:`weak` for what it promises."""

OPS, TURN = 2, math.radians(30)  # RandAugment's own, of Cubuk et al., where FedPerl turns all the way round


class Views(NamedTuple):
    """The two views that a recipe makes of an image."""

    weak: View
    strong: View


def _cropped(flip: bool) -> Views:
    """Return a crop, and RandAugment on top of another such crop, as in FixMatch."""

    def light(images: Tensor, generator: torch.Generator) -> Tensor:
        return crop(images, generator, flip=flip)

    def heavy(images: Tensor, generator: torch.Generator) -> Tensor:
        return strong(light(images, generator), generator, OPS, TURN)

    return Views(light, heavy)


VIEWS: dict[str, Views] = {
    "rotation_invariant": Views(weak, strong),
    "mirrored": _cropped(flip=True),
    "upright": _cropped(flip=False),
}
"""The recipes by name, chosen by what may happen to a picture without changing its label.

``rotation_invariant``, the default: pictures without an up or a left (dermoscopy, pathology). They are flipped both
ways and turned all the way round.
``mirrored``: left and right are alike, but crops are to be cheap and turns small (blood cells, BloodMNIST).
``upright``: left and right mean something (chest X-ray, CT: the side of the heart or the liver). Nothing is flipped.
In the last two a strong view's rotation turns by at most 30 degrees; one image in 169 draws it twice.
"""


def alike(view: View, images: Tensor, generator: torch.Generator) -> Tensor:
    """Return one view of every image, all by the draw that the first one gets.

    Args:
        view: see :data:`View`.
        images: (N, C, H, W) as the view takes them; N may be 0.
        generator: CPU generator, left as one image leaves it.
    """
    state, views = generator.get_state(), []
    for image in images.split(1):
        generator.set_state(state)
        views.append(view(image, generator))
    return torch.cat(views) if views else images


__all__ = ["VIEWS", "View", "Views", "alike", "crop", "strong", "weak"]

"""Weak and strong pictures of one image: drawn per sample, computed per batch."""

import torch
from torch import Tensor

from fedward.registry import VIEWS
from fedward.views.crop import crop
from fedward.views.strong import strong
from fedward.views.types import View, Views
from fedward.views.weak import weak


def alike(view: View, images: Tensor, generator: torch.Generator) -> Tensor:
    """Return one view of every image, with the same draw for all of them.

    Args:
        view: a :data:`View`.
        images: (N, C, H, W) as the view takes them; N may be 0.
        generator: on the CPU. Afterwards it is as if one image had been drawn.
    """
    state = generator.get_state()
    views = []
    for image in images.split(1):
        generator.set_state(state)
        views.append(view(image, generator))
    return torch.cat(views) if views else images


__all__ = ["VIEWS", "View", "Views", "alike", "crop", "strong", "weak"]

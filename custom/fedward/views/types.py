"""What a view is, and a recipe of two."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

View = Callable[[Tensor, torch.Generator], Tensor]
"""Images (N, C, H, W) and a CPU generator to one view of every image; :func:`fedward.views.weak` says what it promises.
"""


class Views(NamedTuple):
    """The two views that a recipe makes of an image."""

    weak: View
    strong: View

"""A network's predictions on a site's images. Imports no MONAI: most visits to a site evaluate and do not train."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fedward.training.batches import Pixels

BATCH = {"cpu": 32, "cuda": 256}
"""Images at once by kind of device: larger batches leave a CPU's cache, smaller ones a GPU idle (docs/results)."""


@torch.no_grad()
def predict(
    net: nn.Module,
    pixels: Pixels,
    batch: int | None = None,
    view: Callable[[Tensor], Tensor] = lambda images: images,
) -> Tensor:
    """Return (N, K) float32 CPU probabilities of ``net`` in evaluation mode on a site's images, or a view of each.

    N may be 0; ``batch`` is the device's unless given.
    """
    net.eval()
    parts = torch.arange(len(pixels)).split(batch or BATCH[pixels.pixels.device.type])
    return torch.cat([torch.softmax(net(view(pixels.take(part))).float(), dim=1).cpu() for part in parts])

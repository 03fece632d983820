"""A network's predictions on a site's images. Imports no MONAI: most visits to a site evaluate and
do not train.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fedward.label_kinds import kind_of_labels
from fedward.training.batches import FORWARD_BATCH, Samples


@torch.no_grad()
def predict(
    net: nn.Module,
    pixels: Samples,
    batch: int | None = None,
    view: Callable[[Tensor], Tensor] = lambda images: images,
) -> Tensor:
    """Return (N, K) float32 CPU probabilities of ``net`` in evaluation mode on a site's images, or
    a view of each.

    N may be 0; ``batch`` is :data:`~fedward.training.batches.FORWARD_BATCH` unless given.
    """
    net.eval()
    outputs = kind_of_labels(pixels.labels).outputs

    def probabilities(images: Tensor) -> Tensor:
        logits = net(view(images)).float()
        return outputs.probabilities(logits).cpu()

    every = torch.arange(len(pixels))
    if not len(every):  # many networks cannot compute no images
        images = pixels.take(every)
        return probabilities(images.new_zeros(1, *images.shape[1:]))[:0]
    parts = every.split(batch or FORWARD_BATCH[pixels.labels.device.type])
    return torch.cat([probabilities(pixels.take(part)) for part in parts])

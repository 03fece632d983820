"""A network's predictions on a site's images."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fedward.label_kinds import kind_of_labels
from fedward.training.batches import FORWARD_BATCH, Samples


def _unchanged(images: Tensor) -> Tensor:
    return images


@torch.no_grad()
def predict(
    net: nn.Module,
    samples: Samples,
    view: Callable[[Tensor], Tensor] = _unchanged,
) -> Tensor:
    """Return the probabilities (N, K), float32 on the CPU, of ``net`` in evaluation mode.

    Args:
        net: the network; it is left in evaluation mode.
        samples: N images of a site, perhaps none.
        view: makes the views that the network sees from a batch of images.
    """
    net.eval()
    outputs = kind_of_labels(samples.labels).outputs

    def probabilities(images: Tensor) -> Tensor:
        logits = net(view(images)).float()
        return outputs.probabilities(logits).cpu()

    every = torch.arange(len(samples))
    if not len(every):
        # Many networks cannot compute a batch of no images, so the width K is that of a black one.
        images = samples.take(every)
        return probabilities(images.new_zeros(1, *images.shape[1:]))[:0]
    parts = every.split(FORWARD_BATCH[samples.labels.device.type])
    return torch.cat([probabilities(samples.take(part)) for part in parts])

"""From a site's cached pixels to the batches of one federated round."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedward.methods.local import Batch
from fedward.methods.settings import Settings
from fedward.seeds import torch_generator
from fedward.sites import Images
from fedward.sites.sampling import virtual_client
from fedward.views import strong, weak

_CHUNK_IMAGES = 256
"""Images whose views and peer predictions are made in one go: large enough to amortise, small enough for memory."""


@dataclass(frozen=True)
class Pixels:
    """A site's images on the device that trains, decoded once: uint8 (N, C, H, W), labels (N,) int64."""

    pixels: Tensor
    labels: Tensor

    @classmethod
    def of(cls, images: Images, device: torch.device) -> "Pixels":
        """Copy a site's images to ``device``."""
        pixels = torch.tensor(images.pixels).permute(0, 3, 1, 2).contiguous()
        labels = torch.tensor(images.labels)
        return cls(_to(pixels, device), _to(labels, device))

    def __len__(self) -> int:
        return len(self.pixels)

    def take(self, index: Tensor) -> Tensor:
        """Return the indexed images as float32 in [0, 1], channels last."""
        chosen = self.pixels[index.to(self.pixels.device)].to(torch.float32).div_(255)
        return chosen.contiguous(memory_format=torch.channels_last)


def _to(tensor: Tensor, device: torch.device) -> Tensor:
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def round_batches(
    labelled: Pixels,
    unlabelled: Pixels | None,
    peers: Sequence[nn.Module],
    settings: Settings,
    seed: tuple[int, str, int],
) -> Iterator[Batch]:
    """Yield ``settings.steps`` batches of one site's round.

    FedVC draws the images (without replacement while they last). The peers are frozen for the round, so their
    predictions on the weak views are computed for many steps at once, in evaluation mode: exactly the numbers a forward
    pass per step would give, at the cost of large batches.

    Args:
        labelled, unlabelled: the site's images; an empty or absent part gives batches without it.
        peers: networks in evaluation mode.
        settings: batch size and images per round.
        seed: (experiment seed, site, round); equal values give equal batches.
    """
    draws = {
        name: torch_generator(*seed, name) for name in ("labelled", "unlabelled", "weak", "strong", "weak labelled")
    }
    total, batch = settings.images_per_round, settings.batch
    order = virtual_client(len(labelled), total, draws["labelled"]) if len(labelled) else None
    hidden = virtual_client(len(unlabelled), total, draws["unlabelled"]) if unlabelled and len(unlabelled) else None
    chunk = max(1, _CHUNK_IMAGES // batch) * batch
    for start in range(0, total, chunk):
        window = slice(start, min(start + chunk, total))
        parts: dict[str, Sequence[Tensor]] = {}
        if order is not None:
            index = order[window]
            parts["labelled"] = weak(labelled.take(index), draws["weak labelled"]).split(batch)
            parts["labels"] = labelled.labels[index.to(labelled.labels.device)].split(batch)
        if unlabelled is not None and hidden is not None:
            images = unlabelled.take(hidden[window])
            views = weak(images, draws["weak"])
            parts["weak"] = views.split(batch)
            parts["strong"] = strong(images, draws["strong"]).split(batch)
            if peers:
                parts["peers"] = predictions(peers, views).split(batch, dim=1)
        for step in range((window.stop - window.start) // batch):
            yield Batch(**{name: tensors[step] for name, tensors in parts.items()})


@torch.no_grad()
def predictions(nets: Sequence[nn.Module], images: Tensor) -> Tensor:
    """Return float32 softmax outputs (P, N, K) of P >= 1 frozen networks on (N, C, H, W) images."""
    with torch.autocast(images.device.type, torch.bfloat16, enabled=images.is_cuda):
        return torch.stack([torch.softmax(net(images).float(), dim=1) for net in nets])

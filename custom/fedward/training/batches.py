"""From a site's cached pixels to the batches of one federated round."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
import torch
from torch import Tensor, nn

from fedward.label_kinds import kind_of_labels
from fedward.methods.local import Batch, Uses
from fedward.methods.outputs import SOFTMAX, Outputs
from fedward.methods.settings import Settings
from fedward.methods.steps import batch_sizes, phase_images
from fedward.seeds import Draws
from fedward.sites.data import Images
from fedward.sites.sampling import virtual_client
from fedward.training.machine import has_bfloat16
from fedward.views import VIEWS, Views

_CHUNK_IMAGES = 256
"""Images whose views are drawn and made in one go: large enough to amortise, small enough for
memory. Another number gives other views."""
FORWARD_BATCH = {"cpu": 64, "cuda": 256}
"""Images of a pass without gradient, by kind of device: larger batches leave a CPU's cache, smaller
ones a GPU idle.
"""

_STRONG_TOO = Uses(second_view="strong")

_DRAWS = ("labelled", "unlabelled", "weak", "strong", "weak labelled")
"""What is drawn at random, each from a generator of its own."""


class Samples(Protocol):
    """A site's images on the device that trains, as a network takes them."""

    @property
    def labels(self) -> Tensor:
        """(N,) int64; in a multi-label job (N, K)."""
        ...

    def __len__(self) -> int: ...

    def take(self, index: Tensor) -> Tensor:
        """Return the indexed images in float32."""
        ...

    def originals(self, index: Tensor) -> Tensor:
        """Return what views are made of."""
        ...

    @classmethod
    def together(cls, parts: Sequence[Any]) -> Self:
        """Return the images of all parts as one."""
        ...

    def split(self, sizes: list[int]) -> Sequence[Self]:
        """Return parts of as many images each as ``sizes`` say, which add up to all."""
        ...


@dataclass(frozen=True)
class Pixels:
    """A site's images on the device that trains, decoded once: uint8 (N, C, H, W), labels as of
    Samples.
    """

    pixels: Tensor
    labels: Tensor

    @classmethod
    def of(cls, images: Images, device: torch.device) -> "Pixels":
        """Return a site's images on ``device``; on the CPU they are those of ``images``, not
        copied.
        """
        pixels = torch.from_numpy(np.require(images.pixels, requirements="W")).permute(0, 3, 1, 2)
        return cls(pixels.to(device), torch.tensor(images.labels, device=device))

    @classmethod
    def together(cls, parts: Sequence["Pixels"]) -> "Pixels":
        """Return the images of all parts as one; a single part that is not empty is not copied."""
        filled = [part for part in parts if len(part)]
        if len(filled) == 1:
            return filled[0]
        return cls(
            torch.cat([part.pixels for part in parts]), torch.cat([part.labels for part in parts])
        )

    def split(self, sizes: list[int]) -> list["Pixels"]:
        """Return views of as many images each as ``sizes`` say, which add up to all."""
        return [
            Pixels(*both)
            for both in zip(self.pixels.split(sizes), self.labels.split(sizes), strict=True)
        ]

    def __len__(self) -> int:
        return len(self.pixels)

    def take(self, index: Tensor) -> Tensor:
        """Return the indexed images as float32 in [0, 1], channels last."""
        chosen = self.pixels[index.to(self.pixels.device)].to(torch.float32).div_(255)
        return chosen.contiguous(memory_format=torch.channels_last)

    def originals(self, index: Tensor) -> Tensor:
        """Return the indexed images: all views are made of these."""
        return self.take(index)


class RoundBatches:
    """The batches of one phase of a site's round: an iterable of :class:`Batch`, whose length is
    the number of steps.

    FedVC draws the images (without replacement while they last); without a fixed number a site
    passes through what it has, the smaller of two kinds repeated in fresh orders. No batch is
    smaller than the settings say, unless the site has fewer images. The peers are frozen for the
    round, so their predictions on the weak views are computed for many steps at once: the numbers
    that a forward pass per step would give.

    Args:
        labelled, unlabelled: the site's images; an empty or absent part gives batches without it.
        peers: networks in evaluation mode.
        settings: batch size and images per round.
        draws, stream: what draws at random, and (site, round, ...); equal ones give equal batches.
        views: how pictures are varied.
        uses: which views the objective wants, and which kind sets the pace.
    """

    def __init__(
        self,
        labelled: Samples | None,
        unlabelled: Samples | None,
        peers: Sequence[nn.Module],
        settings: Settings,
        draws: Draws,
        stream: tuple[int | str, ...],
        *,
        views: Views = VIEWS["rotation_invariant"],
        uses: Uses = _STRONG_TOO,
    ) -> None:
        self._labelled = labelled if labelled else None
        self._unlabelled = unlabelled if unlabelled else None
        self._peers = peers
        self._batch = settings.batch
        self._views = views
        self._strong = uses.second_view != "none"
        self._plain = uses.labelled_view == "none"
        counted = (
            (self._labelled,) if uses.pace == "labelled" else (self._labelled, self._unlabelled)
        )
        self.images = phase_images(settings, [len(pixels) for pixels in counted if pixels])
        """Images of each kind in the phase."""
        self._sizes = batch_sizes(self.images, settings.batch)
        self._generators = {name: draws.torch_generator(*stream, name) for name in _DRAWS}

    def __len__(self) -> int:
        return len(self._sizes)

    def __iter__(self) -> Iterator[Batch]:
        labelled_order = self._order("labelled", self._labelled)
        unlabelled_order = self._order("unlabelled", self._unlabelled)
        together = max(1, _CHUNK_IMAGES // self._batch)
        end = 0
        for first in range(0, len(self._sizes), together):
            sizes = self._sizes[first : first + together]
            start = end
            end = start + sum(sizes)
            window = slice(start, end)
            parts: dict[str, Tensor] = {}
            if self._labelled:
                parts |= self._labelled_parts(self._labelled, labelled_order[window])
            if self._unlabelled:
                parts |= self._unlabelled_parts(self._unlabelled, unlabelled_order[window])
            split = [
                tensor.split(sizes, dim=1 if name == "peers" else 0)
                for name, tensor in parts.items()
            ]
            for tensors in zip(*split, strict=True):
                yield Batch(**dict(zip(parts, tensors, strict=True)))

    def _order(self, kind: str, pixels: Samples | None) -> Tensor:
        return (
            virtual_client(len(pixels), self.images, self._generators[kind])
            if pixels
            else torch.empty(0)
        )

    def _labelled_parts(self, pixels: Samples, index: Tensor) -> dict[str, Tensor]:
        labels = pixels.labels[index.to(pixels.labels.device)]
        if self._plain:
            return {"labelled": pixels.take(index), "labels": labels}
        views = self._views.weak(pixels.originals(index), self._generators["weak labelled"])
        return {"labelled": views, "labels": labels}

    def _unlabelled_parts(self, pixels: Samples, index: Tensor) -> dict[str, Tensor]:
        images = pixels.originals(index)
        parts = {
            "weak": self._views.weak(images, self._generators["weak"]),
            "which": index.to(pixels.labels.device),
        }
        if self._strong:
            parts["strong"] = self._views.strong(images, self._generators["strong"])
        if self._peers:
            parts["peers"] = predictions(
                self._peers, parts["weak"], kind_of_labels(pixels.labels).outputs
            )
        return parts


@torch.no_grad()
def predictions(nets: Sequence[nn.Module], images: Tensor, outputs: Outputs = SOFTMAX) -> Tensor:
    """Return float32 probabilities (P, N, K) of P >= 1 frozen networks on (N, C, H, W) images, N >=
    1.
    """
    parts = images.split(FORWARD_BATCH[images.device.type])
    with torch.autocast(images.device.type, torch.bfloat16, enabled=has_bfloat16(images.device)):
        logits = (torch.cat([net(part) for part in parts]).float() for net in nets)
        return torch.stack([outputs.probabilities(each) for each in logits])

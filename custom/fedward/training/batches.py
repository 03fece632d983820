"""From a site's cached pixels to the batches of one federated round."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from fedward.label_kinds import kind_of_labels
from fedward.methods.local import Batch, Uses
from fedward.methods.outputs import SOFTMAX, Outputs
from fedward.methods.settings import Settings
from fedward.methods.steps import DrawnFrom, batch_sizes, phase_images
from fedward.seeds import Draws
from fedward.sites.data import Images
from fedward.sites.sampling import virtual_client
from fedward.training.machine import has_bfloat16
from fedward.views import VIEWS, Views

_CHUNK_IMAGES = 256
"""Number of images whose views are drawn and made at once: a compromise of speed and memory.

A change of this number changes the views that are drawn.
"""

FORWARD_BATCH = {"cpu": 64, "cuda": 256}
"""Number of images in one pass without gradient, by kind of device.

Larger batches do not fit a CPU's cache, smaller ones leave a GPU idle.
"""

_WITH_STRONG_VIEWS = Uses(second_view="strong")

_DRAW_NAMES = ("labelled", "unlabelled", "weak", "strong", "weak labelled")
"""Names of a round's random draws: the orders of two kinds of images, and three kinds of views.

Each has a generator of its own, so that one draw does not change the others.
"""
_Generators: TypeAlias = Mapping[str, torch.Generator]
"""Name of a draw -> its generator."""


class Samples(Protocol):
    """A site's images on the device that trains, as a network takes them."""

    @property
    def labels(self) -> Tensor:
        """(N,) int64 class indices; in a multi-label job (N, K) of 0 and 1."""
        ...

    def __len__(self) -> int: ...

    def take(self, index: Tensor) -> Tensor:
        """Return the indexed images in float32, as a network takes them."""
        ...

    def originals(self, index: Tensor) -> Tensor:
        """Return the indexed images in the form from which views are made."""
        ...

    @classmethod
    def together(cls, parts: Sequence[Any]) -> Self:
        """Return the images of all parts as one."""
        ...

    def split(self, sizes: list[int]) -> Sequence[Self]:
        """Return parts with these numbers of images, which add up to all."""
        ...


@dataclass(frozen=True)
class Pixels:
    """A site's decoded images on the device that trains."""

    pixels: Tensor
    """(N, C, H, W) uint8."""
    labels: Tensor
    """As :attr:`Samples.labels`."""

    @classmethod
    def of(cls, images: Images, device: torch.device) -> "Pixels":
        """Return a site's images on ``device``; on the CPU they share the memory of ``images``."""
        # torch needs writable memory. Only read-only memory, as of a mapped file, is copied here.
        writable = np.require(images.pixels, requirements="W")
        pixels = torch.from_numpy(writable).permute(0, 3, 1, 2)
        return cls(pixels.to(device), torch.tensor(images.labels, device=device))

    @classmethod
    def together(cls, parts: Sequence["Pixels"]) -> "Pixels":
        """Return the images of all parts as one, without a copy if one part has all of them."""
        nonempty_parts = [part for part in parts if len(part)]
        if len(nonempty_parts) == 1:
            return nonempty_parts[0]
        pixels = torch.cat([part.pixels for part in parts])
        labels = torch.cat([part.labels for part in parts])
        return cls(pixels, labels)

    def split(self, sizes: list[int]) -> list["Pixels"]:
        """Return parts with these numbers of images, which add up to all and are not copied."""
        pixels = self.pixels.split(sizes)
        labels = self.labels.split(sizes)
        return [
            Pixels(part_pixels, part_labels)
            for part_pixels, part_labels in zip(pixels, labels, strict=True)
        ]

    def __len__(self) -> int:
        return len(self.pixels)

    def take(self, index: Tensor) -> Tensor:
        """Return the indexed images as float32 in [0, 1], channels last."""
        chosen = self.pixels[index.to(self.pixels.device)].to(torch.float32).div_(255)
        return chosen.contiguous(memory_format=torch.channels_last)

    def originals(self, index: Tensor) -> Tensor:
        """Return the indexed images, from which views are made."""
        return self.take(index)


class RoundBatches:
    """The batches of one phase of a site's round, one for each step.

    The images are drawn as in FedVC, without replacement while they last. Where the settings give
    no number of images, a site goes through all that it has, and repeats the smaller of its two
    kinds in new orders. No batch is smaller than the settings say, unless the site has fewer
    images.

    The peers are frozen for the round. Their predictions on the weak views can therefore be
    computed for many steps at once, with the same results as one step at a time.

    Args:
        labelled: the site's labelled images; if None or empty, batches have none.
        unlabelled: the site's unlabelled images; if None or empty, batches have none.
        peers: networks in evaluation mode.
        settings: batch size and images per round.
        draws: makes the generators of random numbers.
        stream: the purpose of the draws, (site, round, ...). Equal purposes give equal batches.
        views: makes the weak and the strong views of images.
        uses: which views the objective wants, and which kind of images sets the pace.
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
        uses: Uses = _WITH_STRONG_VIEWS,
    ) -> None:
        # Images are falsy if there are none of them.
        self._labelled = labelled if labelled else None
        self._unlabelled = unlabelled if unlabelled else None
        self._peers = peers
        self._batch = settings.batch
        self._views = views
        self._has_strong_views = uses.second_view != "none"
        self._labelled_without_views = uses.labelled_view == "none"
        drawn_from = DrawnFrom(
            labelled=len(labelled) if labelled else 0,
            unlabelled=len(unlabelled) if unlabelled else 0,
        )
        self.images = phase_images(settings, uses, drawn_from)
        """Number of images of each kind in the phase."""
        self._sizes = batch_sizes(self.images, settings.batch)
        self._draws = draws
        self._stream = stream

    def __len__(self) -> int:
        return len(self._sizes)

    def __iter__(self) -> Iterator[Batch]:
        generators = {
            name: self._draws.torch_generator(*self._stream, name) for name in _DRAW_NAMES
        }
        labelled_order = self._order(self._labelled, generators["labelled"])
        unlabelled_order = self._order(self._unlabelled, generators["unlabelled"])
        steps_at_once = max(1, _CHUNK_IMAGES // self._batch)
        end = 0
        for first_step in range(0, len(self._sizes), steps_at_once):
            sizes = self._sizes[first_step : first_step + steps_at_once]
            start = end
            end = start + sum(sizes)
            window = slice(start, end)
            fields: dict[str, Tensor] = {}
            if self._labelled:
                index = labelled_order[window]
                fields |= self._labelled_fields(self._labelled, index, generators)
            if self._unlabelled:
                index = unlabelled_order[window]
                fields |= self._unlabelled_fields(self._unlabelled, index, generators)
            yield from _batches(fields, sizes)

    def _order(self, samples: Samples | None, generator: torch.Generator) -> Tensor:
        """Return the indices of the phase's images of one kind, in the order of their steps."""
        if not samples:
            return torch.empty(0)
        return virtual_client(len(samples), self.images, generator)

    def _labelled_fields(
        self, samples: Samples, index: Tensor, generators: _Generators
    ) -> dict[str, Tensor]:
        labels = samples.labels[index.to(samples.labels.device)]
        if self._labelled_without_views:
            return {"labelled": samples.take(index), "labels": labels}
        views = self._views.weak(samples.originals(index), generators["weak labelled"])
        return {"labelled": views, "labels": labels}

    def _unlabelled_fields(
        self, samples: Samples, index: Tensor, generators: _Generators
    ) -> dict[str, Tensor]:
        originals = samples.originals(index)
        fields = {
            "weak": self._views.weak(originals, generators["weak"]),
            "which": index.to(samples.labels.device),
        }
        if self._has_strong_views:
            fields["strong"] = self._views.strong(originals, generators["strong"])
        if self._peers:
            outputs = kind_of_labels(samples.labels).outputs
            fields["peers"] = predictions(self._peers, fields["weak"], outputs)
        return fields


def _batches(fields: dict[str, Tensor], sizes: list[int]) -> Iterator[Batch]:
    """Yield batches of these sizes from fields of :class:`Batch` that span all their images."""
    split_fields = []
    for name, tensor in fields.items():
        # Peers' predictions are (P, N, K). In all other fields the images are the first dimension.
        images_dimension = 1 if name == "peers" else 0
        split_fields.append(tensor.split(sizes, dim=images_dimension))
    for tensors in zip(*split_fields, strict=True):
        yield Batch(**dict(zip(fields, tensors, strict=True)))


@torch.no_grad()
def predictions(nets: Sequence[nn.Module], images: Tensor, outputs: Outputs = SOFTMAX) -> Tensor:
    """Return the probabilities (P, N, K), float32, of frozen networks.

    Args:
        nets: P >= 1 networks in evaluation mode.
        images: (N, C, H, W), N >= 1.
        outputs: how logits become probabilities.
    """
    parts = images.split(FORWARD_BATCH[images.device.type])
    probabilities = []
    with torch.autocast(images.device.type, torch.bfloat16, enabled=has_bfloat16(images.device)):
        for net in nets:
            logits = torch.cat([net(part) for part in parts]).float()
            probabilities.append(outputs.probabilities(logits))
        return torch.stack(probabilities)

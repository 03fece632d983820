"""A site's images as tensors on the device that trains."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import torch

from fedward.methods.class_weights import class_weights
from fedward.sites import Images, SiteData
from fedward.sites.labels import class_counts
from fedward.training.batches import Pixels, Samples


class DeviceData:
    """The parts of a site's data on one device. A part is copied there at its first use, unless it
    is ``copied``.

    The part ``all`` is the ``whole``. The labels of one object never change: :meth:`relabelled`
    returns another. ``features``: what stands for the images, of
    :func:`fedward.training.features.stored_features`.
    """

    def __init__(
        self,
        data: SiteData,
        device: torch.device,
        whole: Sequence[str] = ("labelled", "unlabelled"),
        copied: Mapping[str, Samples] | None = None,
        features: Callable[[SiteData], Callable[[Images], Samples]] | None = None,
    ) -> None:
        self.data = data
        self._device = device
        self._whole = whole
        self._features = features
        self._parts = dict(copied or {})

    @cached_property
    def of(self) -> Callable[[Images], Samples]:
        """What gives some of the images as the part that trains takes them."""
        return (
            self._features(self.data)
            if self._features
            else lambda images: Pixels.of(images, self._device)
        )

    def __getitem__(self, part: str) -> Samples:
        """Return ``labelled``, ``unlabelled``, ``all``, ``val`` or ``test``."""
        if part == "all" and part not in self._parts:
            sizes = [len(self[name]) for name in self._whole]
            parts = [self[name] for name in self._whole]
            whole = type(parts[0]).together(parts)
            self._parts |= {
                "all": whole,
                **dict(zip(self._whole, whole.split(sizes), strict=True)),
            }  # kept once
        elif part not in self._parts:
            images = getattr(self.data, part)
            refused = self.data.refused
            if part == "unlabelled" and refused:
                images = images.named([name for name in images.ids if name not in refused])
            self._parts[part] = self.of(images)
        return self._parts[part]

    @cached_property
    def class_weights(self) -> torch.Tensor:
        """(K,) float32 weights of the supervised loss by the labels, as ``methods.fedavg`` computes
        them.
        """
        return class_weights(self.class_counts).to(self._device)

    @cached_property
    def class_counts(self) -> torch.Tensor:
        """(K,) int64 on the CPU: labelled images that show each class."""
        return torch.from_numpy(class_counts(self.data.labelled.labels, len(self.data.classes)))

    def relabelled(self, data: SiteData) -> "DeviceData":
        """Return the tensors of the same images with other labels; validation and test images are
        not copied again.
        """
        held_out = {name: part for name, part in self._parts.items() if name in ("val", "test")}
        other = DeviceData(data, self._device, self._whole, held_out, self._features)
        other.of = self.of
        return other

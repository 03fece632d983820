"""A site's images as tensors on the device that trains."""

from collections.abc import Mapping, Sequence
from functools import cached_property

import torch

from fedward.methods.fedavg import class_weights
from fedward.sites import SiteData
from fedward.training.batches import Pixels


class DeviceData:
    """The parts of a site's data on one device. A part is copied there at its first use, unless it is ``copied``.

    The part ``all`` is the ``whole``. The labels of one object never change: :meth:`relabelled` returns another.
    """

    def __init__(
        self,
        data: SiteData,
        device: torch.device,
        whole: Sequence[str] = ("labelled", "unlabelled"),
        copied: Mapping[str, Pixels] | None = None,
    ) -> None:
        self.data, self._device, self._whole = data, device, whole
        self._parts = dict(copied or {})

    def __getitem__(self, part: str) -> Pixels:
        """Return ``labelled``, ``unlabelled``, ``all``, ``val`` or ``test``."""
        if part == "all" and part not in self._parts:
            sizes = [len(self[name]) for name in self._whole]
            whole = Pixels.together([self[name] for name in self._whole])
            self._parts |= {"all": whole, **dict(zip(self._whole, whole.split(sizes), strict=True))}  # kept once
        elif part not in self._parts:
            self._parts[part] = Pixels.of(getattr(self.data, part), self._device)
        return self._parts[part]

    @cached_property
    def class_weights(self) -> torch.Tensor:
        """(K,) float32 weights of the supervised loss by the labels, as ``methods.fedavg`` computes them."""
        return class_weights(self.class_counts).to(self._device)

    @cached_property
    def class_counts(self) -> torch.Tensor:
        """(K,) int64 on the CPU: labelled images of each class."""
        return torch.bincount(torch.tensor(self.data.labelled.labels), minlength=len(self.data.classes))

    def relabelled(self, data: SiteData) -> "DeviceData":
        """Return the tensors of the same images with other labels; validation and test images are not copied again."""
        held_out = {name: part for name, part in self._parts.items() if name in ("val", "test")}
        return DeviceData(data, self._device, self._whole, held_out)

"""A site's images as tensors on the device that trains."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import torch

from fedward.labels import class_counts
from fedward.sites import Images, SiteData
from fedward.training.batches import Pixels, Samples
from fedward.training.features import Encoder


class DeviceData:
    """The parts of a site's data on one device: labelled, unlabelled, validation and test images.

    A part is copied to the device when it is first used. The labels of one object never change:
    :meth:`relabelled` returns another object.

    Args:
        data: the site's data.
        device: where its images are used.
        whole: the parts that ``all`` consists of.
        copied: parts that are on the device already, by name.
        encoder: makes the features that the network takes in place of images; None where it takes
            images.
    """

    def __init__(
        self,
        data: SiteData,
        device: torch.device,
        whole: Sequence[str] = ("labelled", "unlabelled"),
        copied: Mapping[str, Samples] | None = None,
        encoder: Encoder | None = None,
    ) -> None:
        self.data = data
        self._device = device
        self._whole = whole
        self._encoder = encoder
        self._parts = dict(copied or {})

    @cached_property
    def to_samples(self) -> Callable[[Images], Samples]:
        """Turns some of the site's images into what the network takes."""
        if self._encoder:
            return self._encoder.table(self.data)
        return self._to_pixels

    def __getitem__(self, part: str) -> Samples:
        """Return ``labelled``, ``unlabelled``, ``all``, ``val`` or ``test``."""
        if part not in self._parts:
            if part == "all":
                self._put_together()
            else:
                self._parts[part] = self.to_samples(self._images(part))
        return self._parts[part]

    @cached_property
    def class_counts(self) -> torch.Tensor:
        """(K,) int64 on the CPU: labelled images that show each class."""
        return torch.from_numpy(class_counts(self.data.labelled.labels, len(self.data.classes)))

    def relabelled(self, data: SiteData) -> "DeviceData":
        """Return the same images with other labels; held-out images are not copied again."""
        held_out = {name: part for name, part in self._parts.items() if name in ("val", "test")}
        other = DeviceData(data, self._device, self._whole, held_out, self._encoder)
        if self._encoder:
            # They are looked up by image, whatever its label. Pixels would keep these images alive.
            other.to_samples = self.to_samples
        return other

    def _to_pixels(self, images: Images) -> Pixels:
        return Pixels.of(images, self._device)

    def _images(self, part: str) -> Images:
        """Return the images of a part, without unlabelled ones that an annotator refused."""
        images: Images = getattr(self.data, part)
        refused = self.data.refused
        if part == "unlabelled" and refused:
            return images.named([name for name in images.ids if name not in refused])
        return images

    def _put_together(self) -> None:
        """Make the part ``all``, and turn the parts in it into views of it.

        So each image is on the device once.
        """
        parts = [self[name] for name in self._whole]
        whole = type(parts[0]).together(parts)
        self._parts["all"] = whole
        split = whole.split([len(part) for part in parts])
        self._parts.update(zip(self._whole, split, strict=True))

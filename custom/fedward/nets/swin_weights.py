"""ImageNet weights for a Swin encoder of Swin-T's size.

timm's normalisation of images is folded into the encoder's first layer.
"""

import torch
from torch import Tensor, nn

from fedward.errors import ConfigError
from fedward.nets.backbone import create

TIMM = "swin_tiny_patch4_window7_224"
_WEIGHT = "patch_embed.proj.weight"
_BIAS = "patch_embed.proj.bias"


def load_imagenet(encoder: nn.Module, name: str, channels: int) -> None:
    """Give an encoder the weights of timm's Swin-T.

    On images in [0, 1] it then has timm's features, up to rounding. timm's network takes colours
    that are normalised by ImageNet's mean and deviation; ours takes ``2 x - 1``. The difference is
    moved into the convolution of the patches, which has no padding. A grey image counts as a
    coloured one with three equal channels. The global random generator is left as it was.

    Args:
        encoder: a :class:`~fedward.nets.masked_swin.SwinEncoder` of the preset ``swin_224``.
        name: the network's name, for errors.
        channels: of the images, 1 or 3.

    Raises:
        ConfigError: timm finds no weights, or weights that do not fit the encoder.
    """
    with torch.random.fork_rng(devices=[]):
        net = create(name, TIMM, 0, 3, from_timm=True)
    mean = torch.tensor(net.default_cfg["mean"], dtype=torch.float64)
    std = torch.tensor(net.default_cfg["std"], dtype=torch.float64)
    state = dict(net.state_dict())
    state[_WEIGHT], state[_BIAS] = _folded(state[_WEIGHT], state[_BIAS], mean, std)
    if channels == 1:
        state[_WEIGHT] = state[_WEIGHT].sum(dim=1, keepdim=True)
    try:
        encoder.load_state_dict(state)
    except RuntimeError as error:
        raise ConfigError(
            f"net {name}",
            "Use a version of timm that fedward was tested with, or set pretrained=false.",
            expected=f"the tensors of timm's {TIMM}, all of them",
            found=" ".join(str(error).split()),
        ) from error


def _folded(weight: Tensor, bias: Tensor, mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
    """Return a convolution of ``y = 2 x - 1`` that equals one of ``(x - mean) / std``.

    ``(x - m) / s = y / (2 s) + (1/2 - m) / s``, channel by channel, computed in float64.

    Args:
        weight: (D, 3, p, p).
        bias: (D,).
        mean: (3,).
        std: (3,).
    """
    weight_64 = weight.double()
    offset = (weight_64.sum(dim=(2, 3)) * (0.5 - mean) / std).sum(dim=1)
    folded = weight_64 / (2 * std).view(1, -1, 1, 1)
    return folded.to(weight), (bias.double() + offset).to(bias)

"""ImageNet weights for a Swin encoder of Swin-T's sizes, with timm's normalisation folded into its
first layer.
"""

import torch
from torch import Tensor, nn

from fedward.errors import ConfigError
from fedward.nets.backbone import create

TIMM = "swin_tiny_patch4_window7_224"
_WEIGHT = "patch_embed.proj.weight"
_BIAS = "patch_embed.proj.bias"


def load_imagenet(encoder: nn.Module, name: str, channels: int) -> None:
    """Give an encoder the weights of timm's Swin-T: on images in [0, 1] it then has timm's
    features, up to rounding.

    timm's takes colours less ImageNet's mean, by their deviation; ours takes ``2 x - 1``. The
    difference is moved into the patches' convolution, which pads nothing. A grey image is a
    coloured one with three equal channels. The global random generator is left as it was.

    The encoder is a :class:`~fedward.nets.masked_swin.SwinEncoder` of the preset ``swin_224``;
    channels are 1 or 3.

    Raises ConfigError: timm finds no weights, or others than the encoder has.
    """
    with torch.random.fork_rng(devices=[]):
        net = create(name, TIMM, 0, 3, from_timm=True)
    mean, std = (torch.tensor(net.default_cfg[key], dtype=torch.float64) for key in ("mean", "std"))
    state = dict(net.state_dict())
    state[_WEIGHT], state[_BIAS] = _folded(state[_WEIGHT], state[_BIAS], mean, std)
    if channels == 1:
        state[_WEIGHT] = state[_WEIGHT].sum(dim=1, keepdim=True)
    try:
        encoder.load_state_dict(state)
    except RuntimeError as error:
        expected = f"the tensors of timm's {TIMM}, all of them"
        found = " ".join(str(error).split())
        remedy = "Use a version of timm that fedward was tested with, or set pretrained=false."
        raise ConfigError(f"net {name}", expected=expected, found=found, remedy=remedy) from error


def _folded(weight: Tensor, bias: Tensor, mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
    """Return weight (D, 3, p, p) and bias (D,) for ``y = 2 x - 1`` of a convolution for ``(x -
    mean) / std``.

    ``(x - m) / s = y / (2 s) + (1/2 - m) / s``, channel by channel; computed in float64.
    """
    wide = weight.double()
    shifted = bias.double() + (wide.sum(dim=(2, 3)) * (0.5 - mean) / std).sum(dim=1)
    return (wide / (2 * std).view(1, -1, 1, 1)).to(weight), shifted.to(bias)

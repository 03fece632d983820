"""One function from a name to a network, with equal weights for equal seeds."""

from collections.abc import Callable
from typing import cast

import torch
from torch import nn

from fedward.errors import ConfigError
from fedward.nets.trainable import ALL, trainable_part
from fedward.nets.weights import WeightsFile, load_file
from fedward.registry import NETWORKS
from fedward.seeds import derive

Network = Callable[[int, int], nn.Module]
"""Makes a network from (classes, channels): images (N, channels, H, W) in [0, 1] to logits (N,
classes). Its attribute ``classifier`` is the layer that turns features into logits."""

MONAI = "monai:"
"""How names of MONAI's networks begin."""

_WITH_WEIGHTS = ("swin_224", "masked_swin_224")
"""Those whose encoder can start from ImageNet weights."""


def build(
    name: str,
    classes: int,
    channels: int = 3,
    pretrained: bool | WeightsFile = False,
    seed: int = 0,
    extend: Callable[[nn.Module], None] | None = None,
    trainable: str = ALL,
) -> nn.Module:
    """Return a freshly initialised network that takes images in [0, 1] and returns logits.

    Pretrained or not, a name always gives the same state-dict keys and the same input
    normalisation. Equal arguments give equal weights, a frozen base included.

    Args:
        name: ``small_cnn``, ``small_cnn_gn``; ``swin_N`` for images of N pixels, N one of 28, 32,
            64 and 224, or ``masked_swin_N``, which can also fill in hidden parts of its images;
            ``monai:NAME`` of a class in ``monai.networks.nets``; one of an installed package; or
            any name timm lists.
        classes, channels: number of logits, at least 1; 1 or 3.
        pretrained: start from other weights with a new classifier. True: ImageNet's.
            ``tf_efficientnet_lite0`` to ``lite2`` take them from installed packages
            (:data:`fedward.nets.backbone.LITE`), other timm names and the encoder of ``swin_224``
            and ``masked_swin_224`` from timm's own cache or hub. The other networks of this package
            have none. A file: those in it (:func:`fedward.nets.weights.load_file`).
        seed: of the random initial weights; torch's global generator is left as it was.
        extend: adds modules of a method to the network, with initial weights of the same seed.
        trainable: which part of it trains, besides what ``extend`` adds: ``all``; else see
            :func:`fedward.nets.trainable.trainable_part`.

    Returns:
        A :data:`Network`'s module, on the CPU, in training mode; a
        :class:`~fedward.nets.trainable.TrainablePart` of one where not all of it trains.

    Raises ConfigError: unknown name; weights asked for that do not exist or cannot be had here; no
    such part.
    """
    # CPU only: torch.manual_seed would also reseed every CUDA device, which fork_rng(devices=[])
    # does not restore.
    with torch.random.fork_rng(devices=[]):
        # A Swin and a masked one start alike: what their runs differ in is then what was
        # pre-trained.
        torch.default_generator.manual_seed(derive(seed, "net", name.removeprefix("masked_")))
        net = _network(name, classes, channels, pretrained is True)
        if not isinstance(pretrained, bool):
            load_file(net, name, pretrained)
        own = dict(net.named_children())
        if extend is not None:
            extend(net)
        added = [path for path, _ in net.named_children() if path not in own]
        return net if trainable == ALL else trainable_part(net, name, trainable, added)


def _network(name: str, classes: int, channels: int, pretrained: bool) -> nn.Module:
    if name not in NETWORKS and not name.startswith(MONAI):
        from fedward.nets import backbone  # here, because it imports timm

        return backbone.build(
            name, classes, channels, pretrained, (*NETWORKS.names(), f"{MONAI}NAME")
        )
    if pretrained and name not in _WITH_WEIGHTS:
        remedy = f"There are none for it; {', '.join(_WITH_WEIGHTS)} and tf_efficientnet_lite0 to lite2 have some."
        raise ConfigError(
            f"net {name}", expected="pretrained = false", found="pretrained = true", remedy=remedy
        )
    if name.startswith(MONAI):
        from fedward.nets import monai_classifier  # here, because it imports MONAI

        return monai_classifier.build(name.removeprefix(MONAI), classes, channels)
    net = NETWORKS[name](classes, channels)
    if pretrained:
        from fedward.nets.swin_weights import load_imagenet  # here, because it imports timm

        load_imagenet(cast(nn.Module, net.encoder), name, channels)
    return net


def require_logits(net: nn.Module, name: str, classes: int, channels: int, size: int) -> None:
    """Raise ConfigError unless a network turns black images of a job's size into finite logits, a
    row for each.

    The network is left as it was, in training mode.
    """
    expected = f"logits (2, {classes}) of images (2, {channels}, {size}, {size})"
    remedy = "Choose a classifier of 2D images that takes data.image_size, or another size."
    if not isinstance(getattr(net, "classifier", None), nn.Module):
        found = "none: the layer that turns features into logits is missing"
        raise ConfigError(
            f"net {name}", expected="an attribute classifier", found=found, remedy=remedy
        )
    try:
        with torch.no_grad():
            logits = net.eval()(
                torch.zeros(2, channels, size, size, device=next(net.parameters()).device)
            )
    except Exception as error:  # whatever a network of another package raises
        raise ConfigError(
            f"net {name}", expected=expected, found=f"{error!r:.300}", remedy=remedy
        ) from error
    finally:
        net.train()
    shape = (
        tuple(logits.shape) if isinstance(logits, torch.Tensor) else f"a {type(logits).__name__}"
    )
    if shape != (2, classes):
        raise ConfigError(f"net {name}", expected=expected, found=f"{shape}", remedy=remedy)
    if not bool(logits.isfinite().all()):
        raise ConfigError(
            f"net {name}", expected=f"finite {expected}", found="NaN or infinity", remedy=remedy
        )

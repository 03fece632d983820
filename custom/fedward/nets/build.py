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
"""Makes a network from (classes, channels).

The network takes images (N, channels, H, W) in [0, 1] and returns logits (N, classes). Its
attribute ``classifier`` is the layer that turns features into logits. A true
``treats_images_alone`` says that the logits of an image depend neither on the other images of a
batch nor on the mode, as they do with BatchNorm or dropout.
"""

MONAI = "monai:"
"""Prefix of the names of MONAI's networks."""

_WITH_WEIGHTS = ("swin_224", "masked_swin_224")
"""Networks of this package whose encoder can start from ImageNet weights."""


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
        classes: number of logits, at least 1.
        channels: 1 or 3.
        pretrained: start from other weights, with a new classifier. True: ImageNet's.
            ``tf_efficientnet_lite0`` to ``lite2`` take them from installed packages
            (:data:`fedward.nets.backbone.LITE`), other timm names and the encoder of ``swin_224``
            and ``masked_swin_224`` from timm's own cache or hub. The other networks of this package
            have none. A file: the weights in it (:func:`fedward.nets.weights.load_file`).
        seed: of the random initial weights. torch's global generator is left as it was.
        extend: adds a method's modules to the network. Their initial weights have the same seed.
        trainable: which part of the network trains besides what ``extend`` adds: ``all``, or one
            of those of :func:`fedward.nets.trainable.trainable_part`.

    Returns:
        The network, on the CPU, in training mode. If not all of it trains, it is a
        :class:`~fedward.nets.trainable.TrainablePart`.

    Raises:
        ConfigError: the name is unknown; its weights do not exist or cannot be had on this machine;
            or it has no such part.
    """
    # The CPU's generator alone: torch.manual_seed would also seed every GPU's, which
    # fork_rng(devices=[]) does not restore.
    with torch.random.fork_rng(devices=[]):
        # A Swin and a masked Swin start with equal weights, so that their runs differ by the
        # pre-training alone.
        torch.default_generator.manual_seed(derive(seed, "net", name.removeprefix("masked_")))
        net = _network(name, classes, channels, pretrained is True)
        if not isinstance(pretrained, bool):
            load_file(net, name, pretrained)
        before = dict(net.named_children())
        if extend is not None:
            extend(net)
        added = [path for path, _ in net.named_children() if path not in before]
        if trainable == ALL:
            return net
        return trainable_part(net, name, trainable, added)


def _network(name: str, classes: int, channels: int, pretrained: bool) -> nn.Module:
    # The modules that need timm or MONAI are imported here, because either takes seconds.
    if name not in NETWORKS and not name.startswith(MONAI):
        from fedward.nets import backbone

        names = (*NETWORKS.names(), f"{MONAI}NAME")
        return backbone.build(name, classes, channels, pretrained, names)
    if pretrained and name not in _WITH_WEIGHTS:
        raise ConfigError(
            f"net {name}",
            f"There are no weights for it; {', '.join(_WITH_WEIGHTS)} and tf_efficientnet_lite0 to "
            "lite2 have some.",
            expected="pretrained = false",
            found="pretrained = true",
        )
    if name.startswith(MONAI):
        from fedward.nets import monai_classifier

        return monai_classifier.build(name.removeprefix(MONAI), classes, channels)
    net = NETWORKS[name](classes, channels)
    if pretrained:
        from fedward.nets.swin_weights import load_imagenet

        load_imagenet(cast(nn.Module, net.encoder), name, channels)
    return net


def require_logits(net: nn.Module, name: str, classes: int, channels: int, size: int) -> None:
    """Check that a network turns images of a job's size into finite logits, a row for each.

    The network is left as it was, in training mode.

    Args:
        net: the network, tried on black images.
        name: its name, for errors.
        classes: K, the number of logits.
        channels: of the images.
        size: height and width of the images in pixels.

    Raises:
        ConfigError: it does not.
    """
    where = f"net {name}"
    remedy = "Choose a classifier of 2D images that takes data.image_size, or another size."
    if not isinstance(getattr(net, "classifier", None), nn.Module):
        raise ConfigError(
            f"{where} has no attribute classifier, the layer that turns features into logits",
            remedy,
        )
    expected = f"logits (2, {classes}) of images (2, {channels}, {size}, {size})"
    try:
        logits = _logits_of_black_images(net, channels, size)
    # A network of another package may raise anything.
    except Exception as error:
        raise ConfigError(where, remedy, expected=expected, found=f"{error!r:.300}") from error
    if not isinstance(logits, torch.Tensor):
        raise ConfigError(where, remedy, expected=expected, found=f"a {type(logits).__name__}")
    if logits.shape != (2, classes):
        raise ConfigError(where, remedy, expected=expected, found=f"{tuple(logits.shape)}")
    if not bool(logits.isfinite().all()):
        raise ConfigError(where, remedy, expected=f"finite {expected}", found="NaN or infinity")


@torch.no_grad()
def _logits_of_black_images(net: nn.Module, channels: int, size: int) -> object:
    """Return what a network makes of two black images (2, channels, size, size)."""
    device = next(net.parameters()).device
    try:
        return net.eval()(torch.zeros(2, channels, size, size, device=device))
    finally:
        net.train()


def classifier_tensors(net: nn.Module) -> set[str]:
    """Return the names of the parameters that turn features into logits."""
    # Networks keep their classifier under different names, so it is found by identity.
    classifier: nn.Module = net.classifier  # type: ignore[assignment]
    parameters = {id(parameter) for parameter in classifier.parameters()}
    return {name for name, parameter in net.named_parameters() if id(parameter) in parameters}

"""What many tests start from: a tiny experiment on synthetic images, and a small network."""

from typing import Any

from torch import Tensor, nn

from fedward.config import DataSpec, Experiment, SyntheticData
from fedward.methods import settings_type
from fedward.nets import build

_OPTIONS = {"warm_up": 1, "committee": 2, "threshold": 0.0, "query_every": 1, "steps": 1}
_OPTIONS |= {"largest_uncertainty": 1.0, "ramp_up": 1, "helper_every": 1}
_OPTIONS |= {"pretraining_rounds": 1, "pretraining_warm_up": 0, "queue": 16}
"""Of the methods that have them."""
_MASKED = {"net": "masked_swin_28", "data": DataSpec(image_size=28)}
"""For the method that wants such a network, which takes images of one size."""
_VIRTUAL_CLIENTS = {"participants": 2, "images_per_round": 16, "learning_rate": 1e-3}
_PASSES = {"images_at_most": 16}
"""Of the methods in which every site passes through its own images."""


def tiny(method: str = "fedperl", **changes: Any) -> Experiment:
    """Return three rounds of two steps on a few synthetic images, with the method's ``options``."""
    fields = settings_type(method).model_fields
    options: dict[str, Any] = {"rounds": 3, "batch": 8}
    options |= _PASSES if fields["images_per_round"].default is None else _VIRTUAL_CLIENTS
    options = {"batch": 8} if method in ("oneshot", "survey") else options
    options |= {name: value for name, value in _OPTIONS.items() if name in fields}
    base: dict[str, Any] = {
        "method": method,
        "data": DataSpec(image_size=16),
        "synthetic": SyntheticData(images=40, labelled=0.5),
        "seed": 3,
        **{"selffed": _MASKED, "oneshot": {"trainable": "head"}}.get(method, {}),
    }
    return Experiment(**{**base, **changes, "options": {**options, **changes.get("options", {})}})


def clinical(method: str = "fedavg", **changes: Any) -> Experiment:
    """Return such an experiment that a site's default policy allows, for sites with own data."""
    passes = settings_type(method).model_fields["images_per_round"].default is None
    allowed = {"images_at_most": None} if passes else {"images_per_round": 32}
    options = {
        "participants": None,
        "clip_gradient": 100.0,
        **allowed,
        **changes.pop("options", {}),
    }
    return tiny(
        method,
        **{"synthetic": None, "minimum_replies": 3, "timeout": 60, **changes, "options": options},
    )


class Folded(nn.Module):
    """A reshape as in the attention of many of timm's networks: it fails on an empty batch."""

    def forward(self, images: Tensor) -> Tensor:
        """Return the input as it is, with its gradient."""
        return images.reshape(len(images), 2, -1).reshape(images.shape)


def batch_norm_net(seed: int, classes: int = 8) -> nn.Module:
    """Return a small CNN with BatchNorm, whose running statistics a careless pass would move."""
    net = build("small_cnn_gn", classes, seed=seed)
    for block in net.features:
        if isinstance(block, nn.Sequential):
            block[1] = nn.BatchNorm2d(block[1].num_channels)
    return net

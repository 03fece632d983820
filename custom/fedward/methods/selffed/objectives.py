"""What is trained under SelfFed: a masked autoencoder without labels, and a contrastive network
beside the classifier.

Khowaja et al., arXiv 2307.01514, Sec. III-C and III-D.
"""

import copy
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from fedward.errors import ConfigError
from fedward.methods.local import (
    Batch,
    Losses,
    Objective,
    RoundInputs,
    Stateless,
    Uses,
    strong_pass,
)
from fedward.methods.mean_teacher import ema
from fedward.methods.selffed.contrast import enqueue, info_nce
from fedward.methods.selffed.masking import (
    denormalise_units,
    mask_units,
    masked_loss,
    normalise_units,
)
from fedward.methods.selffed.settings import SelfFedSettings
from fedward.methods.workflow import State

if TYPE_CHECKING:
    from fedward.nets.masked_swin import MaskedSwin

TARGET = "target"
QUEUE = "queue"
"""Roles in a memory: the target network, and ``{"keys": (Q, D), "images": (Q, 1)}``, oldest first:
what each is of.
"""
MASKED_NETS = (
    "masked_swin_28",
    "masked_swin_32",
    "masked_swin_32_patch4",
    "masked_swin_64",
    "masked_swin_224",
)
HIDDEN = 0.5
"""Grey of a hidden unit in a picture."""
PROJECTION = 128
"""D: length of a projection, as MoCo's."""


def add_projection(net: nn.Module) -> None:
    """Give a network the head FC of its contrastive loss: linear, ReLU, linear. Its logits do not
    change.

    Raises ConfigError for a network that cannot fill in hidden parts of images.
    """
    if not hasattr(net, "reconstruct"):
        expected = f"a network that can fill in hidden parts of images: {', '.join(MASKED_NETS)}"
        remedy = "Set net to the one for the job's image_size."
        raise ConfigError(
            "method selffed", expected=expected, found=f"a {type(net).__name__}", remedy=remedy
        )
    width = cast("MaskedSwin", net).classifier.in_features
    net.add_module(
        "projection",
        nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, PROJECTION)),
    )


class MaskedModelling(Stateless):
    """Phase 1: predict hidden units of all images of the site, labelled or not, by eq. (3).

    Masks are drawn anew for each image and step. Pixels to be predicted are relative to their own
    unit, as in Fed-MAE.
    """

    uses = Uses(labelled=False, unlabelled="all")

    def __init__(self, settings: SelfFedSettings) -> None:
        self._ratio = settings.mask_ratio

    def losses(
        self, net: nn.Module, batch: Batch, inputs: RoundInputs, state: None = None
    ) -> Losses:
        """Return ``L_MAE`` of weak views."""
        images = batch.weak
        masked = cast("MaskedSwin", net)
        if images is None:
            return Losses({})
        grid = masked.preset.grid
        mask = mask_units(len(images), grid, self._ratio, inputs.generator).to(images.device)
        loss = masked_loss(masked.reconstruct(images, mask), normalise_units(images, grid), mask)
        return Losses({"loss_reconstruction": loss})


@torch.no_grad()
def reconstructions(
    net: nn.Module, images: Tensor, ratio: float, generator: torch.Generator
) -> dict[str, Tensor]:
    """Return pictures of what a network makes of hidden units: ``original``, ``masked`` and
    ``reconstruction``.

    What is predicted is relative to a unit's mean and deviation: those of the true unit are put
    back. Visible units are shown as they are.

    Args:
        net: a masked network in evaluation mode.
        images: (N, C, H, W) float32 in [0, 1], on the network's device, as are the pictures
        returned. ratio, generator: share of each image that is hidden, in [0, 1], and the CPU's
        generator of the masks.
    """
    masked = cast("MaskedSwin", net)
    grid = masked.preset.grid
    mask = mask_units(len(images), grid, ratio, generator).to(images.device)
    predicted = denormalise_units(masked.reconstruct(images, mask), images, grid).clamp(0, 1)
    hidden = (
        mask.repeat_interleave(masked.preset.unit, dim=1)
        .repeat_interleave(masked.preset.unit, dim=2)
        .unsqueeze(1)
    )
    return {
        "original": images,
        "masked": torch.where(hidden, HIDDEN, images),
        "reconstruction": torch.where(hidden, predicted, images),
    }


@dataclass(frozen=True)
class Contrasting:
    """What the contrastive network carries from step to step. Modules are changed in place."""

    online: nn.Module
    target: nn.Module
    queue: State
    """``{"keys": (Q, D), "images": (Q, 1)}`` on the CPU, oldest first: what each is of."""


class Contrastive(Objective[Contrasting]):
    """The contrastive network: a strong view finds the weak view of the same image among earlier
    images, by eq. (5).

    The target network, which sees the weak views, follows after every step by eq. (4); then the
    step's keys join the queue. Both go on from round to round, in the memory of the server, or of a
    site, which never sends them. The target starts as a copy of the network it is first given.

    Deviates: the paper does not say how its two views are made.
    """

    uses = Uses(labelled=False, unlabelled="all", second_view="strong")

    def __init__(self, settings: SelfFedSettings) -> None:
        self._settings = settings

    def init(self, net: nn.Module, inputs: RoundInputs) -> Contrasting:
        """Take target and queue from the memory, or make them."""
        memory = inputs.memory
        mean = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        encoder = net.get_submodule("encoder")
        projection = net.get_submodule("projection")
        online = nn.Sequential(OrderedDict(encoder=encoder, mean=mean, projection=projection))
        target = copy.deepcopy(online).requires_grad_(False).eval()
        if TARGET in memory:
            target.load_state_dict(memory[TARGET])
        empty = {"keys": torch.empty(0, PROJECTION), "images": torch.empty(0, 1, dtype=torch.int64)}
        return Contrasting(online, target, memory.get(QUEUE, empty))

    def losses(
        self, net: nn.Module, batch: Batch, inputs: RoundInputs, state: Contrasting
    ) -> Losses:
        """Return ``L_NCE``; 0 in the very first step, whose queue is empty."""
        if batch.weak is None or batch.strong is None or batch.which is None:
            return Losses({})
        with torch.no_grad():
            keys = state.target(batch.weak)
            images = batch.which.unsqueeze(1)
        earlier = {name: tensor.to(keys.device) for name, tensor in state.queue.items()}
        own = images == earlier["images"].T
        online = strong_pass(state.online, batch.strong, self._settings)
        loss = info_nce(online, keys, earlier["keys"], self._settings.temperature, own)
        return Losses({"loss_contrastive": loss}, found={"keys": keys, "images": images})

    def after_step(
        self, net: nn.Module, batch: Batch, losses: Losses, state: Contrasting
    ) -> Contrasting:
        """Let target and queue follow."""
        ema(state.target, state.online, self._settings.target_decay)
        size = self._settings.queue
        queue = {name: enqueue(state.queue[name], new, size) for name, new in losses.found.items()}
        return replace(state, queue=queue)

    def remember(self, state: Contrasting) -> Mapping[str, Mapping[str, Tensor]]:
        """Return target and queue."""
        return {TARGET: state.target.state_dict(), QUEUE: state.queue}

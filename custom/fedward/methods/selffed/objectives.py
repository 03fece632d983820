"""The objectives of SelfFed: a masked autoencoder without labels, and a contrastive network.

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
from fedward.model_state import State

if TYPE_CHECKING:
    from fedward.nets.masked_swin import MaskedSwin

TARGET = "target"
"""Role of the target network in a memory."""
QUEUE = "queue"
"""Role of the queue in a memory: ``{"keys": (Q, D), "images": (Q, 1)}``, oldest first.

``images`` holds the number of the image of which each key is.
"""
MASKED_NETS = (
    "masked_swin_28",
    "masked_swin_32",
    "masked_swin_32_patch4",
    "masked_swin_64",
    "masked_swin_224",
)
"""Networks that can fill in hidden parts of images, by name."""
HIDDEN = 0.5
"""Grey of a hidden unit in a picture."""
PROJECTION = 128
"""D: length of a projection, as in MoCo."""


def add_projection(net: nn.Module) -> None:
    """Give a network the head FC of its contrastive loss: linear, ReLU, linear.

    Its logits do not change.

    Raises ConfigError: the network cannot fill in hidden parts of images.
    """
    if not hasattr(net, "reconstruct"):
        raise ConfigError(
            "method selffed",
            "Set net to the one for the job's image_size.",
            expected=f"a network that can fill in hidden parts of images: {', '.join(MASKED_NETS)}",
            found=f"a {type(net).__name__}",
        )
    width = cast("MaskedSwin", net).classifier.in_features
    projection = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, PROJECTION))
    net.add_module("projection", projection)


class MaskedModelling(Stateless):
    """Phase 1: predict hidden units of all images of the site, labelled or not, by eq. (3).

    Masks are drawn for each image and step. The pixels to be predicted are relative to their own
    unit, as in Fed-MAE, unless the setting ``predicted_pixels`` asks for raw ones.
    """

    uses = Uses(labelled=False, unlabelled="all")

    def __init__(self, settings: SelfFedSettings) -> None:
        self._ratio = settings.mask_ratio
        self._relative = settings.predicted_pixels == "normalised"

    def losses(
        self, net: nn.Module, batch: Batch, inputs: RoundInputs, state: None = None
    ) -> Losses:
        """Return ``L_MAE`` of the weak views; nothing without images."""
        images = batch.weak
        if images is None:
            return Losses({})
        masked_net = cast("MaskedSwin", net)
        grid = masked_net.preset.grid
        mask = mask_units(len(images), grid, self._ratio, inputs.generator).to(images.device)
        prediction = masked_net.reconstruct(images, mask)  # (B, C, H, W)
        target = normalise_units(images, grid) if self._relative else images
        loss = masked_loss(prediction, target, mask)
        return Losses({"loss_reconstruction": loss})


@torch.no_grad()
def reconstructions(
    net: nn.Module, images: Tensor, settings: SelfFedSettings, generator: torch.Generator
) -> dict[str, Tensor]:
    """Return pictures of what a network makes of hidden units.

    A normalised prediction is relative to the mean and deviation of its unit; those of the true
    unit are put back. A raw one is shown as it is, and so are visible units.

    Args:
        net: a masked network in evaluation mode.
        images: (N, C, H, W) float32 in [0, 1], on the network's device.
        settings: of the run, which say how much is hidden and what is predicted.
        generator: on the CPU, draws the masks.

    Returns:
        ``original``, ``masked`` and ``reconstruction``, each like ``images``.
    """
    masked_net = cast("MaskedSwin", net)
    grid = masked_net.preset.grid
    unit = masked_net.preset.unit  # pixels along the side of a unit
    # (N, g, g)
    mask = mask_units(len(images), grid, settings.mask_ratio, generator).to(images.device)
    predicted = masked_net.reconstruct(images, mask)
    if settings.predicted_pixels == "normalised":
        predicted = denormalise_units(predicted, images, grid)
    predicted = predicted.float().clamp(0, 1)
    hidden = mask.repeat_interleave(unit, dim=1).repeat_interleave(unit, dim=2)  # (N, H, W)
    hidden = hidden.unsqueeze(1)  # (N, 1, H, W)
    return {
        "original": images,
        "masked": torch.where(hidden, HIDDEN, images),
        "reconstruction": torch.where(hidden, predicted, images),
    }


@dataclass(frozen=True)
class Contrasting:
    """What the contrastive network carries from step to step."""

    online: nn.Module
    """Encoder, mean over the map, and projection of the network that trains; (B, C, H, W) to
    (B, D)."""
    target: nn.Module
    """A slow copy of ``online``, changed in place after each step."""
    queue: State
    """``{"keys": (Q, D), "images": (Q, 1)}`` on the CPU, oldest first; see :data:`QUEUE`."""


class Contrastive(Objective[Contrasting]):
    """The contrastive network: a strong view finds the weak view of its image by eq. (5).

    The target network, which sees the weak views, follows after every step by eq. (4). Then the
    keys of the step join the queue. Target and queue last from round to round, in the memory of the
    server, or of a site, which never sends them. The target starts as a copy of the network it is
    first given.

    Deviates: the paper does not say how its two views are made.
    """

    uses = Uses(labelled=False, unlabelled="all", second_view="strong")

    def __init__(self, settings: SelfFedSettings) -> None:
        self._settings = settings

    def init(self, net: nn.Module, inputs: RoundInputs) -> Contrasting:
        """Take target and queue from the memory, or make them."""
        online = nn.Sequential(
            OrderedDict(
                encoder=net.get_submodule("encoder"),
                mean=nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
                projection=net.get_submodule("projection"),
            )
        )
        target = copy.deepcopy(online).requires_grad_(False).eval()
        if TARGET in inputs.memory:
            target.load_state_dict(inputs.memory[TARGET])
        empty_queue = {
            "keys": torch.empty(0, PROJECTION),
            "images": torch.empty(0, 1, dtype=torch.int64),
        }
        return Contrasting(online, target, inputs.memory.get(QUEUE, empty_queue))

    def losses(
        self, net: nn.Module, batch: Batch, inputs: RoundInputs, state: Contrasting
    ) -> Losses:
        """Return ``L_NCE``; it is 0 in the very first step, whose queue is empty."""
        if batch.weak is None or batch.strong is None or batch.which is None:
            return Losses({})
        with torch.no_grad():
            keys = state.target(batch.weak)  # (B, D)
        images = batch.which.unsqueeze(1)  # (B, 1)
        queue = {name: tensor.to(keys.device) for name, tensor in state.queue.items()}
        own = images == queue["images"].T  # (B, Q)
        queries = strong_pass(state.online, batch.strong, self._settings)  # (B, D)
        loss = info_nce(queries, keys, queue["keys"], self._settings.temperature, own)
        return Losses({"loss_contrastive": loss}, carried={"keys": keys, "images": images})

    def after_step(
        self, net: nn.Module, batch: Batch, losses: Losses, state: Contrasting
    ) -> Contrasting:
        """Move the target towards the online network, and add the keys of the step to the queue."""
        ema(state.target, state.online, self._settings.target_decay)
        queue = {
            name: enqueue(state.queue[name], new, self._settings.queue)
            for name, new in losses.carried.items()
        }
        return replace(state, queue=queue)

    def remember(self, state: Contrasting) -> Mapping[str, Mapping[str, Tensor]]:
        """Return target and queue."""
        return {TARGET: state.target.state_dict(), QUEUE: state.queue}

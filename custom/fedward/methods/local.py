"""What a method's local half sees at a site: phases, batches, a phase's inputs, and losses."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedward.methods.outputs import SOFTMAX, Outputs
from fedward.methods.settings import Settings


@dataclass(frozen=True)
class Uses:
    """Which of a site's training images an objective looks at."""

    labelled: bool = True
    """Whether it looks at labelled images, with their labels."""
    labelled_view: Literal["weak", "none"] = "weak"
    """View of the labelled images; ``none``: the images as they are."""
    unlabelled: Literal["none", "unlabelled", "all"] = "none"
    """Images seen without labels; ``all``: the labelled images too, without their labels."""
    second_view: Literal["none", "weak", "strong"] = "none"
    """Second view of the images seen without labels, besides a weak one."""
    pace: Literal["all", "labelled"] = "all"
    """Images that set the number of steps: the more numerous of the two kinds, or the labelled."""


@dataclass(frozen=True)
class Batch:
    """The images of one step, on the device that trains.

    Images are float32 (B, C, H, W) in [0, 1]; where only the head of a network trains, they are
    features (B, D). A field is None where the site has no such images, or the objective asks for no
    such views.
    """

    labelled: Tensor | None = None
    """Weak views of labelled images, α(x), or the images themselves, as the objective asks."""
    labels: Tensor | None = None
    """(B,) int64; in a multi-label job (B, K) of 0 and 1."""
    weak: Tensor | None = None
    """Weak views of unlabelled images, α(u)."""
    strong: Tensor | None = None
    """Second views of the same images: strong ones, A(u), or weak ones of another draw.

    Where views are stored as features, two draws may choose the same one of a few.
    """
    peers: Tensor | None = None
    """(P, B, K) probabilities of the peers on ``weak``, without gradient; None without peers."""
    which: Tensor | None = None
    """(B,) int64: a number for each unlabelled image, the same in all rounds of a run, until labels
    are bought or images refused."""


@dataclass(frozen=True)
class RoundInputs:
    """What stays fixed during one phase of a site's round."""

    class_weights: Tensor
    """(K,) weights of the supervised cross-entropy."""
    steps_before: int = 0
    """Optimiser steps of earlier rounds, as if the site had taken part in each of them."""
    memory: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)
    """Models that the site keeps for itself between rounds, by role, in its own folder."""
    generator: torch.Generator = field(default_factory=torch.Generator)
    """CPU generator of everything that the objective itself draws in this phase."""
    outputs: Outputs = SOFTMAX
    """What the logits of the network mean."""
    smallest_batch: int = 1
    """Least number of kept pseudo-labels in a step that learns from nothing else."""


@dataclass(frozen=True)
class Losses:
    """Named scalars of one step."""

    terms: dict[str, Tensor]
    """Name -> (), with gradient. Their sum is minimised; without terms no step is taken."""
    logs: dict[str, Tensor] = field(default_factory=dict)
    """Name -> (), values that are only reported."""
    learns: bool | Tensor = True
    """Whether the terms can move a parameter; a tensor (), bool, where that depends on the step.

    If they cannot, the optimiser takes no step, because momentum and weight decay would still move
    the network, and :meth:`Objective.after_step` is not called. So an objective whose later steps
    need it, as a contrastive one that fills its queue, says true all the same."""
    carried: dict[str, Tensor] = field(default_factory=dict)
    """Further values, for :meth:`Objective.after_step` or whoever watches the training."""


CarriedT = TypeVar("CarriedT")
"""What an objective carries from step to step of a phase."""


class Objective(Protocol[CarriedT]):
    """The local objective of a method.

    It holds settings only. What changes during a phase is its state, which each method gets as an
    argument and returns.
    """

    uses: Uses = Uses()
    """The images that it looks at."""

    def init(self, net: nn.Module, inputs: RoundInputs) -> CarriedT:
        """Return the state before the first step of a phase."""
        ...

    def losses(self, net: nn.Module, batch: Batch, inputs: RoundInputs, state: CarriedT) -> Losses:
        """Return the losses of one step; ``net`` is in training mode before and after."""
        ...

    def after_step(self, net: nn.Module, batch: Batch, losses: Losses, state: CarriedT) -> CarriedT:
        """Return the state after an optimiser step with these losses; by default unchanged."""
        return state

    def remember(self, state: CarriedT) -> Mapping[str, Mapping[str, Tensor]]:
        """Return the models, by role, that the site keeps for later phases; by default none."""
        return {}


class Stateless(Objective[None]):
    """An objective that carries nothing from step to step."""

    def init(self, net: nn.Module, inputs: RoundInputs) -> None:
        """Return no state."""


class Measurement:
    """What a site computes from its images in one pass, without a loss or an optimiser."""

    uses: Uses = Uses()
    """The images that it looks at."""

    def measure(self, net: nn.Module, batches: Iterable[Batch]) -> None:
        """Store what is measured over all batches in tensors of ``net``."""
        raise NotImplementedError


@dataclass(frozen=True)
class Phase:
    """One part of a site's round: what is minimised, and how fast. It has its own optimiser."""

    objective: Objective[Any] | Measurement
    """What is minimised, or measured in place of training."""
    learning_rate: float
    """Step size after ``round_warm_up``, above 0; 0 for a measurement."""
    stream: tuple[str, ...] = ()
    """Sets the phase's random draws apart from those of the other phases of a round."""


def logits_and_features(net: nn.Module, images: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logits (N, K) of ``net`` and the inputs (N, D) of its classifier.

    Both have gradients.
    """
    features: list[Tensor] = []
    classifier: nn.Module = net.classifier  # type: ignore[assignment]
    # The network returns its logits only, so that a hook keeps what its classifier is given.
    handle = classifier.register_forward_pre_hook(lambda module, inputs: features.append(inputs[0]))
    try:
        logits: Tensor = net(images)
    finally:
        handle.remove()
    return logits, features[0]


@contextmanager
def evaluation_mode(net: nn.Module) -> Iterator[None]:
    """Put a network that trains into evaluation mode inside the block, with gradients as before.

    Dropout is off, and BatchNorm uses its running statistics without changing them.
    """
    net.eval()
    try:
        yield
    finally:
        net.train()


def batch_norms(net: nn.Module) -> list[_BatchNorm]:
    """Return the layers of a network that normalise by the statistics of a batch."""
    return [module for module in net.modules() if isinstance(module, _BatchNorm)]


@contextmanager
def statistics_kept(net: nn.Module) -> Iterator[None]:
    """Keep BatchNorm's running statistics inside the block; batches are normalised by their own."""
    tracking = [norm for norm in batch_norms(net) if norm.track_running_stats]
    for norm in tracking:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm in tracking:
            norm.track_running_stats = True


def statistics_of_strong_views(net: nn.Module, settings: Settings) -> AbstractContextManager[None]:
    """Return a block for the pass of strong views, as the settings say.

    In it they move BatchNorm's running statistics, or leave them as they are.
    """
    return statistics_kept(net) if settings.batch_statistics == "weak_views" else nullcontext()


def strong_pass(net: nn.Module, images: Tensor, settings: Settings) -> Tensor:
    """Return the logits (N, K) of strong views (N, C, H, W).

    They move BatchNorm's running statistics only where the settings say that all views do.
    """
    with statistics_of_strong_views(net, settings):
        logits: Tensor = net(images)
    return logits

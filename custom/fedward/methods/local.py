"""What a method's local half sees at a site: phases of training, one batch, the phase's inputs, and
its losses.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedward.methods.outputs import SOFTMAX, Outputs
from fedward.methods.settings import Settings


@dataclass(frozen=True)
class Uses:
    """Which of a site's training images an objective looks at."""

    labelled: bool = True
    """Labelled images, with their labels."""
    labelled_view: Literal["weak", "none"] = "weak"
    """What is made of them: weak views, or nothing, so that they are seen as they are."""
    unlabelled: Literal["none", "unlabelled", "all"] = "none"
    """Images without labels; ``all``: the labelled ones too, their labels unseen."""
    second_view: Literal["none", "weak", "strong"] = "none"
    """What else is made of them besides a weak view: a strong one, or another weak one."""
    pace: Literal["all", "labelled"] = "all"
    """Which images a site that passes through what it has counts: the more numerous kind, or the
    labelled ones.
    """


@dataclass(frozen=True)
class Batch:
    """One step's images, float32 (B, C, H, W) in [0, 1], on the device that trains; None where a
    site has none.
    """

    labelled: Tensor | None = None
    """Weak views of labelled images, alpha(x)."""
    labels: Tensor | None = None
    """(B,) int64; in a multi-label job (B, K) of 0 and 1."""
    weak: Tensor | None = None
    """Weak views of unlabelled images, alpha(u)."""
    strong: Tensor | None = None
    """Second views of the same images: strong, A(u), or weak again, of another draw."""
    peers: Tensor | None = None
    """(P, B, K) the peers' probabilities on ``weak``, without gradient; None when the site has no
    peers.
    """
    which: Tensor | None = None
    """(B,) int64: a number for each unlabelled image, the same in all rounds of a run."""


LogitRule: TypeAlias = Callable[[Tensor], Tensor]
"""Logits (N, K) of a network to those that a loss sees."""


def unchanged(logits: Tensor) -> Tensor:
    """Return the logits as they are."""
    return logits


@dataclass(frozen=True)
class RoundInputs:
    """What stays fixed during one phase of a site's round."""

    class_weights: Tensor
    """(K,) weights of the supervised cross-entropy."""
    steps_before: int = 0
    """Optimiser steps that earlier rounds of this phase took, as if the site had been there in each
    of them.
    """
    memory: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)
    """Models that the site has kept for itself between rounds, by role. They stay in its own
    folder.
    """
    generator: torch.Generator = field(default_factory=torch.Generator)
    """On the CPU: what the objective itself draws at random in this phase."""
    class_counts: Tensor | None = None
    """(K,) labelled images of each class at the site; None: of none."""
    seen_by_losses: LogitRule = unchanged
    """What losses against labels and pseudo-labels see; see :mod:`fedward.methods.missing_classes`.
    """
    outputs: Outputs = SOFTMAX
    """What the logits of the network mean."""
    smallest_batch: int = 1
    """Images that pseudo-labels must be kept of, where a site learns from nothing else in a step.
    """


@dataclass(frozen=True)
class Losses:
    """Named scalars of one step."""

    terms: dict[str, Tensor]
    """Name -> (), with gradient: their sum is minimised. Without any, as for an empty batch, no
    step is taken.
    """
    logs: dict[str, Tensor] = field(default_factory=dict)
    """Name -> (): only reported."""
    learns: bool | Tensor = True
    """Whether the terms can move a parameter; a tensor (), bool, where that depends on the step's
    values. Else no step of the optimiser is taken, as momentum and weight decay would move the
    net."""
    found: dict[str, Tensor] = field(default_factory=dict)
    """What else :meth:`Objective.after_batch` and ``after_step`` need of this step; it goes nowhere
    else.
    """


C = TypeVar("C")
"""What an objective carries from step to step of a phase."""


class Objective(Protocol[C]):
    """The local objective of a method. It holds settings only; what changes in a phase is its
    state, handed on.
    """

    uses: Uses = Uses()
    """Which images it looks at."""

    def init(self, net: nn.Module, inputs: RoundInputs) -> C:
        """Return the state before the first step of a phase."""
        ...

    def losses(self, net: nn.Module, batch: Batch, inputs: RoundInputs, state: C) -> Losses:
        """Return the losses of one step; ``net`` is in training mode before and after."""
        ...

    def after_batch(self, losses: Losses, state: C) -> C:
        """Return the state after a batch with these losses, whether a step follows or not; here the
        same.
        """
        return state

    def after_step(self, net: nn.Module, batch: Batch, losses: Losses, state: C) -> C:
        """Return the state after an optimiser step by these losses; here nothing follows it."""
        return state

    def remember(self, state: C) -> Mapping[str, Mapping[str, Tensor]]:
        """Return the models, by role, that are the memory of the next phase; here none."""
        return {}


class Stateless(Objective[None]):
    """An objective that carries nothing from step to step."""

    def init(self, net: nn.Module, inputs: RoundInputs) -> None:
        """Return no state."""


class Measurement:
    """What a site computes of its images in one pass, in place of training: no loss, no optimiser."""

    uses: Uses = Uses()
    """Which images it looks at."""

    def measure(self, net: nn.Module, batches: Iterable[Batch]) -> None:
        """Change tensors of ``net`` by what all batches hold."""
        raise NotImplementedError


@dataclass(frozen=True)
class Phase:
    """One stretch of a site's round: what is minimised, and how fast. Each has an optimiser of its
    own.
    """

    objective: Objective[Any] | Measurement
    """What is minimised, or measured in place of training."""
    learning_rate: float
    """Step size of this round, above 0, once ``round_warm_up`` is over; 0 of a measurement."""
    stream: tuple[str, ...] = ()
    """Further purpose of its random draws, where a round has several phases."""


def logits_and_features(net: nn.Module, images: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logits (N, K) of ``net`` and what its classifier received, (N, D), both with
    gradient.
    """
    received: list[Tensor] = []
    classifier: nn.Module = net.classifier  # type: ignore[assignment]
    handle = classifier.register_forward_pre_hook(lambda module, inputs: received.append(inputs[0]))
    try:
        logits: Tensor = net(images)
    finally:
        handle.remove()
    return logits, received[0]


class _Answered(nn.Module):
    """A network that has seen some batches already: it hands out their logits."""

    def __init__(self, net: nn.Module, batches: list[Tensor]) -> None:
        super().__init__()
        self.net = net
        self._batches = batches
        logits: Tensor = net(torch.cat(batches))
        self._logits: Sequence[Tensor] = logits.split([len(batch) for batch in batches])

    def forward(self, images: Tensor) -> Tensor:
        for batch, logits in zip(self._batches, self._logits, strict=True):
            if images is batch:
                return logits
        answer: Tensor = self.net(images)
        return answer


def in_one_pass(net: nn.Module, *batches: Tensor | None) -> nn.Module:
    """Return ``net``, or one that answers as it does and has computed these batches together, which
    takes less time.

    The latter where the network says that it treats every image alone, in training as in
    evaluation: its class has an attribute ``per_image`` that is true. BatchNorm and dropout do not.
    Losses and gradients differ by rounding.

    Args:
        net: (N, C, H, W) to (N, K).
        batches: those that are to have gradients, of one size of images; None where there is no
            such batch.
    """
    present = [batch for batch in batches if batch is not None]
    return _Answered(net, present) if len(present) > 1 and getattr(net, "per_image", False) else net


@contextmanager
def evaluation_mode(net: nn.Module) -> Iterator[None]:
    """Freeze BatchNorm and dropout of a network that trains: buffers do not change, gradients flow."""
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
    """Leave BatchNorm's running statistics alone; what trains is normalised by its batch all the
    same.
    """
    tracking = [norm for norm in batch_norms(net) if norm.track_running_stats]
    for norm in tracking:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm in tracking:
            norm.track_running_stats = True


def strong_pass(net: nn.Module, images: Tensor, settings: Settings) -> Tensor:
    """Return ``net(images)`` of strong views, which move BatchNorm's statistics only if all views
    are to.
    """
    with statistics_kept(net) if settings.batch_statistics == "weak_views" else nullcontext():
        logits: Tensor = net(images)
        return logits


def probabilities_in_evaluation_mode(
    net: nn.Module, images: Tensor, outputs: Outputs = SOFTMAX
) -> Tensor:
    """Return the probabilities (N, K) of a network's logits in :func:`evaluation_mode`.

    Pseudo-labels come from the model as it would answer at the bedside, not from one batch's
    statistics.
    """
    with evaluation_mode(net):
        return outputs.probabilities(net(images))

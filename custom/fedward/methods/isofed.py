"""IsoFed: sites with and without labels are never averaged with each other.

Saha, Mishra, Noble: *Rethinking semi-supervised federated learning: how to co-train fully-labeled
and fully-unlabeled client imaging data*, MICCAI 2023. In every round the unlabelled sites train
first, by mean teacher, and are averaged among themselves; the labelled sites start from their
average, train with their labels, and are averaged among themselves (Sec. 2.4). Before either, a
site adapts what it received to its own images by information maximisation (Sec. 2.3).
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fedward.errors import ConfigError
from fedward.methods.algorithm import Algorithm
from fedward.methods.distances import images_of_group
from fedward.methods.groups import (
    LABELLED,
    UNLABELLED,
    UNSUPERVISED,
    GroupedState,
    Groups,
    ModelOf,
    by_distance,
)
from fedward.methods.local import Batch, Losses, Phase, RoundInputs, Stateless, Uses
from fedward.methods.mean_teacher import (
    MeanTeacher,
    MeanTeacherSettings,
    phases_by_group,
)
from fedward.methods.settings import Positive, StepSize
from fedward.methods.workflow import Federation, Rounds

_SMALLEST = 1e-5
"""Probabilities are clamped to this value in logarithms, as in SHOT.

The slope of the entropy at 0 is infinite."""


def information_maximisation(p: Tensor) -> Tensor:
    """Return the loss that makes each prediction sure, and all predictions together diverse.

    ``L_IM = (1/N) Σ_n H(p_n) - H(p̄)`` with ``p̄ = (1/N) Σ_n p_n`` and ``H(p) = -Σ_c p_c log p_c``.
    Source: Saha et al., MICCAI 2023, eq. (4); Liang et al., ICML 2020 (SHOT), eq. (4)-(5).

    Args:
        p: (N, K) floating point probabilities, rows sum to 1, N and K >= 1.

    Returns:
        Scalar with gradient: minus the mutual information of image and class, in [-log K, 0] up to
        the clamping of probabilities below 1e-5. It is smallest for sure predictions that are
        spread evenly over the classes.

    Raises ConfigError: not two-dimensional, or empty.

    Edge cases: N = 1, or equal rows: 0 with a gradient of 0, because one image says nothing about
    the diversity. a probability of 0 or 1: finite value and gradient. NaN: NaN, so that a broken
    network is noticed.

    Deviates: eq. (4) prints "N is the number of classes". The mean over classes would be constant,
    and the entropy alone would collapse to one class. N counts images here.
    """
    if p.dim() != 2 or not p.numel():
        raise ConfigError(
            "isofed.information_maximisation",
            "Pass one batch's softmax.",
            expected="probabilities (images, classes), at least one of each",
            found=f"{tuple(p.shape)}",
        )
    return _entropy(p).mean() - _entropy(p.mean(dim=0))


def _entropy(p: Tensor) -> Tensor:
    return -(p * p.clamp_min(_SMALLEST).log()).sum(dim=-1)


class InformationMaximisation(Stateless):
    """Adapts a received model to a site's own images, without their labels."""

    uses = Uses(labelled=False, unlabelled="all")

    def losses(
        self, net: nn.Module, batch: Batch, inputs: RoundInputs, state: None = None
    ) -> Losses:
        """Return ``L_IM`` on the weak views; nothing without images."""
        if batch.weak is None:
            return Losses({})
        probabilities = torch.softmax(net(batch.weak).float(), dim=1)
        return Losses({"loss_information": information_maximisation(probabilities)})


class IsoFedSettings(MeanTeacherSettings):
    """IsoFed's choices."""

    adapt: bool = True
    """Client-adaptive pre-training by information maximisation, in both groups.

    False: the paper's "IsoFed w/o PT"."""
    adaptation_rate: Positive = 0.1
    """Learning rate of the pre-training, as a share of the rate of the training that follows.

    Not in the paper; SHOT's share for a backbone."""

    @property
    def step_sizes(self) -> Sequence[StepSize]:
        """As of :class:`~fedward.methods.settings.Settings`."""
        training = super().step_sizes
        if not self.adapt:
            return training
        rate = self.adaptation_rate * max(step.largest for step in training)
        return [*training, StepSize("adaptation_rate", rate, self.optimizer)]


class IsoFed(Algorithm[GroupedState]):
    """Isolated aggregation of the two groups in turn (Sec. 2.4, Fig. 2).

    Fewer replies than asked for: see :class:`~fedward.methods.groups.Groups`, and

    - no unlabelled site replies, or there is none: the labelled sites start from the global model
    - no labelled site replies: the model stays, because a mean of unlabelled sites is never the
      global model
    """

    settings_type = IsoFedSettings
    state_type = GroupedState

    def __init__(self, settings: IsoFedSettings) -> None:
        self.settings = settings
        self.weight = images_of_group
        losses = frozenset({"loss_supervised", "loss_consistency", "loss_information"})
        self.requirements = by_distance(settings, losses, exchanges=2)
        self._groups = Groups(settings)

    def phases(self, task: str, round_: int, labelled: int) -> Sequence[Phase]:
        """Return the adaptation, where the warm-up is over, and the training.

        A mean teacher starts from the adapted model, as its student does.
        """
        settings = self.settings
        training = phases_by_group(settings, task, round_, labelled, MeanTeacher(settings))
        if not training or not settings.adapt or round_ <= settings.warm_up:
            return training
        rate = settings.adaptation_rate * training[0].learning_rate
        return [Phase(InformationMaximisation(), rate, stream=("adaptation",)), *training]

    def rounds(self, state: GroupedState, federation: Federation) -> Rounds:
        """Go through rounds in which the groups train in turn."""
        return self._groups.rounds(state, federation, self._in_turn)

    def _in_turn(self, state: GroupedState, federation: Federation) -> ModelOf:
        """Train the unlabelled group, then the labelled group from its average (Sec. 2.4)."""
        groups = self._groups
        tasks = dict.fromkeys(groups.draw(state, federation, without=LABELLED), UNSUPERVISED)
        updates = yield from groups.ask(state, state.model, tasks, part=0)
        start = groups.average(updates, state, federation, UNLABELLED, part=0)
        return (yield from groups.supervised_round(state, federation, start, part=1))

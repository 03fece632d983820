"""IsoFed: sites with and without labels are never averaged with each other.

Saha, Mishra, Noble: *Rethinking semi-supervised federated learning: how to co-train fully-labeled
and fully-unlabeled client imaging data*, MICCAI 2023. In every round the unlabelled sites train
first, by mean teacher, and are averaged among themselves; the labelled sites start from their
average, train with their labels, and are averaged among themselves (Sec. 2.3). Before either, a
site adapts what it received to its own images by information maximisation (Sec. 2.4).
"""

from collections.abc import Mapping, Sequence

import torch
from pydantic import model_validator
from torch import Tensor, nn

from fedward.errors import ConfigError
from fedward.methods.algorithm import Algorithm
from fedward.methods.groups import (
    LABELLED,
    UNLABELLED,
    UNSUPERVISED,
    GroupedState,
    Groups,
    RoundPart,
    group_requirements,
)
from fedward.methods.local import Batch, Losses, Phase, RoundInputs, Stateless, Uses
from fedward.methods.mean_teacher import (
    MeanTeacher,
    MeanTeacherSettings,
    phases_by_group,
)
from fedward.methods.schedule import rate_of_round
from fedward.methods.settings import NeededSetting, Positive, StepSize
from fedward.methods.site_weights import images_of_group
from fedward.methods.workflow import Federation, Rounds

_SMALLEST_PROBABILITY = 1e-5
"""Smaller probabilities are raised to this value in logarithms. SHOT adds it to all of them.

Without either, the slope of the entropy at 0 would be infinite."""


def information_maximisation(p: Tensor) -> Tensor:
    """Return the loss that makes each prediction confident, and all predictions together diverse.

    ``L_IM = (1/N) Σ_n H(p_n) - H(p̄)`` with ``p̄ = (1/N) Σ_n p_n`` and ``H(p) = -Σ_c p_c log p_c``.
    Source: Saha et al., MICCAI 2023, eq. (4); Liang et al., ICML 2020 (SHOT), eq. (4)-(5).

    Args:
        p: (N, K) floating point probabilities, rows sum to 1, N and K >= 1.

    Returns:
        Scalar with gradient: minus the mutual information of image and class, in [-log K, 0] up to
        the clamping of probabilities below 1e-5. It is smallest for confident predictions that are
        spread evenly over the classes.

    Raises ConfigError: ``p`` is not two-dimensional, or is empty.

    Edge cases: For N = 1, or equal rows, the loss and its gradient are 0, because one image says
    nothing about the diversity. At a probability of 0 or 1 loss and gradient are finite. NaN gives
    NaN, so that a broken network is noticed.

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
    return -(p * p.clamp_min(_SMALLEST_PROBABILITY).log()).sum(dim=-1)


class InformationMaximisation(Stateless):
    """Adapts a received model to a site's own images, without their labels."""

    uses = Uses(labelled=False, unlabelled="all")

    def losses(
        self, net: nn.Module, batch: Batch, inputs: RoundInputs, state: None = None
    ) -> Losses:
        """Return ``L_IM`` on the weak views; no loss without images, no step with one image."""
        if batch.weak is None:
            return Losses({})
        probabilities = torch.softmax(net(batch.weak).float(), dim=1)
        loss = information_maximisation(probabilities)
        return Losses({"loss_information": loss}, learns=len(batch.weak) > 1)


class IsoFedSettings(MeanTeacherSettings):
    """Settings of IsoFed."""

    adapt: bool = True
    """Client-adaptive pre-training by information maximisation, in both groups.

    False: the paper's "IsoFed w/o PT"."""
    adaptation_rate: Positive = 0.1
    """Learning rate of the pre-training at all sites, as a share of ``learning_rate``.

    The paper does not give it; SHOT uses this share for a backbone. The rate of sites without
    labels does not count: with Adam it stands for the weight of their consistency loss as well,
    which this loss does not have."""

    @property
    def step_sizes(self) -> Sequence[StepSize]:
        """Step sizes of training, and of the pre-training where the job has one."""
        training = super().step_sizes
        if not self.adapt:
            return training
        rate = self.adaptation_rate * self.learning_rate
        return [*training, StepSize("adaptation_rate", rate, self.optimizer)]

    @property
    def without_effect(self) -> Mapping[str, NeededSetting | None]:
        """See :attr:`fedward.methods.settings.Settings.without_effect`."""
        needed = dict(super().without_effect)
        if not self.adapt:
            needed["adaptation_rate"] = NeededSetting("adapt", True)
        return needed

    @model_validator(mode="after")
    def _adaptation_needs_two_images(self) -> "IsoFedSettings":
        if self.adapt and self.batch == 1:
            raise ValueError(
                "batch=1 leaves nothing to adapt by, because one image says nothing about how "
                "diverse predictions are: use batch=2 or more, or set adapt=false"
            )
        return self


class IsoFed(Algorithm[GroupedState]):
    """The two groups train in turn, and each is averaged on its own (Sec. 2.3, Fig. 2).

    What happens with fewer replies than asked for is as in :class:`~fedward.methods.groups.Groups`,
    and:

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
        self.requirements = group_requirements(settings, losses, exchanges=2)
        self._groups = Groups(settings)

    def phases(self, task: str, round_: int, labelled: int) -> Sequence[Phase]:
        """Return the training, and before it the adaptation once the warm-up is over.

        A mean teacher starts from the adapted model, as its student does.
        """
        settings = self.settings
        training = phases_by_group(settings, task, round_, labelled, MeanTeacher(settings))
        if not training or not settings.adapt or round_ <= settings.warm_up:
            return training
        largest = settings.adaptation_rate * settings.learning_rate
        rate = rate_of_round(largest, round_, settings)
        return [Phase(InformationMaximisation(), rate, stream=("adaptation",)), *training]

    def rounds(self, state: GroupedState, federation: Federation) -> Rounds:
        """Run rounds in which the groups train in turn."""
        return self._groups.rounds(state, federation, self._in_turn)

    def _in_turn(self, state: GroupedState, federation: Federation) -> RoundPart:
        """Train the unlabelled group, then the labelled group from its average (Sec. 2.3)."""
        groups = self._groups
        sites = groups.draw(state, federation, without=LABELLED)
        tasks = dict.fromkeys(sites, UNSUPERVISED)
        updates = yield from groups.ask(state, state.model, tasks, part=0)
        start = groups.average(updates, state, federation, UNLABELLED, part=0)
        return (yield from groups.supervised_round(state, federation, start, part=1))

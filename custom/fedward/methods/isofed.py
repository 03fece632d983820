"""IsoFed: sites with and without labels are never averaged with each other.

Saha, Mishra, Noble: *Rethinking semi-supervised federated learning: how to co-train fully-labeled and fully-unlabeled
client imaging data*, MICCAI 2023. In every round the unlabelled sites train first, by mean teacher, and are averaged
among themselves; the labelled sites start from their average, train with their labels, and are averaged among
themselves (Sec. 2.4). Before either, a site adapts what it received to its own images by information maximisation
(Sec. 2.3). The baseline MT+wFedAvg averages all of them at once.
"""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from fedward.errors import ConfigError
from fedward.methods.local import Batch, Losses, Objective, Phase, RoundInputs, Uses
from fedward.methods.mean_teacher import MeanTeacher, MeanTeacherSettings, ema, sharpen
from fedward.methods.settings import Positive
from fedward.methods.wfedavg import (
    LABELLED,
    SUPERVISED,
    UNLABELLED,
    UNSUPERVISED,
    GroupedState,
    ModelOf,
    WFedAvg,
    distance_weights,
    model_distance,
)
from fedward.methods.workflow import Federation, Reply

__all__ = ["distance_weights", "ema", "information_maximisation", "model_distance", "sharpen"]

_SMALLEST = 1e-5
"""Probabilities below this count as this in a logarithm, as in SHOT: an entropy's slope at 0 is infinite."""


def information_maximisation(p: Tensor) -> Tensor:
    """Return the loss that makes single predictions sure and all of them together diverse.

    ``L_IM = (1/N) Σ_n H(p_n) - H(p̄)`` with ``p̄ = (1/N) Σ_n p_n`` and ``H(p) = -Σ_c p_c log p_c``.

    Source: Saha et al., MICCAI 2023, eq. (4); Liang et al., ICML 2020 (SHOT), eq. (4)-(5).

    Args:
        p: (N, K) floating point probabilities, rows sum to 1, N and K >= 1.

    Returns:
        Scalar with gradient, minus the mutual information of image and class, in [-log K, 0] up to the clamping of
        probabilities below 1e-5; smallest for sure predictions spread evenly over the classes.

    Raises:
        ConfigError: not two-dimensional, or empty.

    Edge cases:
        =======================  ========================================================
        N = 1, equal rows        0 with a gradient of 0: one image says nothing of others
        a probability of 0 or 1  finite value and gradient
        NaN                      the loss is NaN: a broken net must be noticed
        =======================  ========================================================

    Deviates: eq. (4) prints "N is the number of classes"; the mean over classes is constant, its gradient 0, and only
    the entropy would be left, whose minimum is the collapse the term is there to prevent. N counts images.
    """
    if p.dim() != 2 or not p.numel():
        raise ConfigError(
            "isofed.information_maximisation",
            expected="probabilities (images, classes), at least one of each",
            found=f"{tuple(p.shape)}",
            remedy="Pass softmax outputs of one batch.",
        )
    return _entropy(p).mean() - _entropy(p.mean(dim=0))


def _entropy(p: Tensor) -> Tensor:
    return -(p * p.clamp_min(_SMALLEST).log()).sum(dim=-1)


class InformationMaximisation(Objective):
    """Adapts a received model to a site's own images, without their labels."""

    uses = Uses(labelled=False, unlabelled="all")

    def losses(self, net: nn.Module, batch: Batch, inputs: RoundInputs) -> Losses:
        """Return ``L_IM`` on the weak views; nothing without images."""
        if batch.weak is None:
            return Losses({})
        return Losses({"loss_information": information_maximisation(torch.softmax(net(batch.weak).float(), dim=1))})


def untaught(tasks: Mapping[str, str], replies: Iterable[Reply], groups: Mapping[str, str]) -> bool:
    """Return whether sites that have labels, or may have, were asked and none of them replied.

    The others alone must not make the next model then. ``groups``: as they are known after the replies.
    """
    asked = any(task == SUPERVISED and groups.get(site) != UNLABELLED for site, task in tasks.items())
    return asked and not any(reply.labelled for reply in replies)


class MTWFedAvg(WFedAvg):
    """MT+wFedAvg: all sites train from the global model and are averaged together; without labels by mean teacher."""

    settings_type = MeanTeacherSettings
    settings: MeanTeacherSettings

    def unsupervised_phases(self, round_: int) -> Sequence[Phase]:
        """Return the mean teacher."""
        return [Phase(self.teacher(), self.settings.unlabelled_learning_rate)]

    def teacher(self) -> MeanTeacher:
        """Return the objective of a site without labels; its teacher starts anew in each round."""
        return MeanTeacher(self.settings)

    def tasks(self, state: GroupedState, sites: Sequence[str]) -> dict[str, str]:
        """Return each site's task by its group; a site that never answered is asked as if it had labels."""
        return {site: UNSUPERVISED if state.groups.get(site) == UNLABELLED else SUPERVISED for site in sites}

    def one_round(self, state: GroupedState, federation: Federation) -> ModelOf:
        """Return the average of all sites that were drawn; labelled ones need not be among them."""
        tasks = self.tasks(state, self.draw(state, federation))
        replies = yield from self.ask(state, state.model, tasks, 0)
        if untaught(tasks, replies, state.groups):
            return state.model
        return self.average(replies, state, federation, "all", 0)


class IsoFedSettings(MeanTeacherSettings):
    """IsoFed's choices."""

    adapt: bool = True
    """Client-adaptive pre-training by information maximisation, in both groups; false is "IsoFed w/o PT"."""
    adaptation_rate: Positive = 0.1
    """Its learning rate, as a share of that of the training which follows. Not in the paper; SHOT's for a backbone."""


class IsoFed(MTWFedAvg):
    """Isolated aggregation in turn (Sec. 2.4, Fig. 2).

    With fewer replies than asked for: as WFedAvg, and

    ===========================  ========================================================================
    no unlabelled site replies   the labelled sites start from the global model
    no unlabelled site at all    the first half of the round is left out
    no labelled site replies     the model stays: what unlabelled sites sent is never the federation's
    ===========================  ========================================================================
    """

    settings_type = IsoFedSettings
    settings: IsoFedSettings

    @property
    def exchanges(self) -> int:
        """The unlabelled group, then the labelled one."""
        return 2

    def supervised_phases(self, round_: int) -> Sequence[Phase]:
        """Return adaptation, then cross-entropy; cross-entropy alone during the warm-up."""
        return [*self._adaptation(round_, self.settings.learning_rate), *super().supervised_phases(round_)]

    def unsupervised_phases(self, round_: int) -> Sequence[Phase]:
        """Return adaptation, then the mean teacher, which starts from the adapted net, as the student does."""
        rate = self.settings.unlabelled_learning_rate
        return [*self._adaptation(round_, rate), *super().unsupervised_phases(round_)]

    def _adaptation(self, round_: int, rate: float) -> list[Phase]:
        if not self.settings.adapt or round_ <= self.settings.warm_up:
            return []
        return [Phase(InformationMaximisation(), self.settings.adaptation_rate * rate, ("adaptation",))]

    def one_round(self, state: GroupedState, federation: Federation) -> ModelOf:
        """Saha et al., MICCAI 2023, Sec. 2.4: the unlabelled group, then the labelled one from its average."""
        tasks = dict.fromkeys(self.draw(state, federation, LABELLED), UNSUPERVISED)
        replies = yield from self.ask(state, state.model, tasks, 0)
        start = self.average(replies, state, federation, UNLABELLED, 0)
        return (yield from self.supervised_round(state, federation, start, 1))

"""The mean teacher of a site without labels: a slow copy of the net labels what the net has to
learn.

Tarvainen and Valpola: *Mean teachers are better role models*, NeurIPS 2017, in the form of RSCFed
(Liang et al., CVPR 2022) and IsoFed (Saha et al., MICCAI 2023, Sec. 2.2).
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from fedward.errors import ConfigError
from fedward.methods.groups import SUPERVISED, WFedAvgSettings
from fedward.methods.local import Batch, Losses, Objective, Phase, RoundInputs, Uses, strong_pass
from fedward.methods.schedule import rate_of_round
from fedward.methods.settings import Positive, Share, StepSize
from fedward.methods.supervised import Supervised

TEACHER = "teacher"
"""Role of the teacher in a site's memory."""


@torch.no_grad()
def sharpen(p: Tensor, temperature: float) -> Tensor:
    """Raise probabilities to a power, so that each row leans towards its largest class.

    ``p̂_i = p_i^(1/τ) / Σ_j p_j^(1/τ)``.
    Source: Saha et al., MICCAI 2023 (IsoFed), Sec. 2.2; τ = 0.5 as in RSCFed's code.

    Args:
        p: (N, K) floating point in [0, 1], rows that sum to a positive number.
        temperature: τ > 0; below 1 sharpens, above 1 flattens, 1 normalises only.

    Returns:
        (N, K) in the dtype of ``p``, rows sum to 1, the order of the classes in a row is kept. No
        gradient.

    Raises ConfigError: not two-dimensional, no class, or a temperature that is not positive and
    finite.

    Edge cases: a class of 0: stays 0. small temperature: tends to one-hot; computed in log space,
    so nothing under- or overflows. a row of zeros, NaN: NaN: a broken net must be noticed. N = 0:
    empty.

    Deviates: the paper says the temperature "is increased" to reduce entropy; only τ < 1 does that.
    """
    if p.dim() != 2 or not p.shape[1] or not 0 < temperature < float("inf"):
        expected = "probabilities (images, classes), a temperature > 0"
        found = f"{tuple(p.shape)}, {temperature}"
        raise ConfigError(
            "mean_teacher.sharpen", expected=expected, found=found, remedy="Pass softmax outputs."
        )
    logarithms = p.log()
    return torch.softmax((logarithms - logarithms.amax(dim=1, keepdim=True)) / temperature, dim=1)


@torch.no_grad()
def ema(teacher: nn.Module, student: nn.Module, decay: float) -> None:
    """Move a teacher a little towards its student.

    ``w_t <- a w_t + (1 - a) w_s`` for every parameter; buffers (BatchNorm's statistics) are copied.
    Source: Saha et al., MICCAI 2023, eq. (1); RSCFed's code.

    Args:
        teacher: changed in place.
        student: a module of the same architecture on the same device.
        decay: a in [0, 1]: 1 leaves the parameters, 0 copies the student.

    Raises ConfigError: a decay out of range, or modules that do not match.

    Deviates: eq. (1) prints α on the student; with its α = 0.999 the teacher would be the student,
    one step late.
    """
    mine = list[Tensor](teacher.parameters())
    theirs = list[Tensor](student.parameters())
    buffers = list(zip_longest(teacher.buffers(), student.buffers()))
    pairs = [*zip_longest(mine, theirs), *buffers]
    alike = all(
        one is not None and other is not None and one.shape == other.shape for one, other in pairs
    )
    if not 0 <= decay <= 1 or not alike:
        expected = "a decay in [0, 1], modules of one architecture"
        remedy = "Make the teacher a copy of the student."
        found = f"decay {decay}, modules that {'match' if alike else 'do not match'}"
        raise ConfigError("mean_teacher.ema", expected=expected, found=found, remedy=remedy)
    torch._foreach_lerp_(mine, theirs, 1 - decay)
    for old, new in buffers:
        old.copy_(new)


class MeanTeacherSettings(WFedAvgSettings):
    """What a site without labels does; values of RSCFed's code, which IsoFed says it follows."""

    unlabelled_learning_rate: Positive = 0.021
    """RSCFed: 0.021."""
    unlabelled_weight: float = Field(0.02, ge=0.0)
    """lambda_u: weight of the distance to the teacher. RSCFed: 0.02."""
    temperature: Positive = 0.5
    """tau of :func:`sharpen`. RSCFed: 0.5."""
    ema_decay: Share = 0.999
    """Largest a of :func:`ema`; a = min(1 - 1/(s + 1), this) at step s. RSCFed: 0.999."""

    @property
    def step_sizes(self) -> Sequence[StepSize]:
        """As of :class:`~fedward.methods.settings.Settings`."""
        rate = self.unlabelled_learning_rate
        return [*super().step_sizes, StepSize("unlabelled_learning_rate", rate, self.optimizer)]

    @property
    def loss_weights(self) -> Mapping[str, float]:
        """As of :class:`~fedward.methods.settings.Settings`."""
        return {**super().loss_weights, "unlabelled_weight": self.unlabelled_weight}


@dataclass(frozen=True)
class Teaching:
    """What a mean teacher carries from step to step."""

    teacher: nn.Module
    """Changed in place."""
    step: int


class MeanTeacher(Objective[Teaching]):
    """Squared distance of the student on strong views to the sharpened teacher on weak views.

    ``L_u = λ_u (1/B) Σ_x ‖p̂_t(α(x)) - p_s(A(x))‖²``, the teacher following after every step.
    Source: Saha et al., MICCAI 2023, Sec. 2.2; RSCFed's code (sum over classes, mean over the
    batch).

    The step s, on which the teacher's decay depends, counts from the first round as if the site had
    taken part in all, which needs no memory. s is 1 at the first step; RSCFed's counter is 0 there,
    so that its first step makes the teacher the student.

    Args:
        settings: temperature, decay, weight.
        lasting: the teacher outlives the round, in the site's memory, and sees weak views as the
            student does, both as in RSCFed's code; else it starts each round from the model
            received, as in IsoFed.
    """

    def __init__(self, settings: MeanTeacherSettings, lasting: bool = False) -> None:
        self.settings = settings
        self.lasting = lasting
        self.uses = Uses(
            labelled=False, unlabelled="unlabelled", second_view="weak" if lasting else "strong"
        )

    def init(self, net: nn.Module, inputs: RoundInputs) -> Teaching:
        """Make the teacher: a copy of the net, or the one this site remembers."""
        teacher = copy.deepcopy(net).requires_grad_(False).eval()
        if self.lasting and TEACHER in inputs.memory:
            teacher.load_state_dict(inputs.memory[TEACHER])
        return Teaching(teacher, inputs.steps_before)

    def losses(self, net: nn.Module, batch: Batch, inputs: RoundInputs, state: Teaching) -> Losses:
        """Return ``L_u``; nothing without unlabelled images."""
        if batch.weak is None or batch.strong is None:
            return Losses({})
        with torch.no_grad():
            target = sharpen(
                torch.softmax(state.teacher(batch.weak).float(), dim=1), self.settings.temperature
            )
        logits = (
            net(batch.strong) if self.lasting else strong_pass(net, batch.strong, self.settings)
        )
        distance = (torch.softmax(logits.float(), dim=1) - target).square().sum(dim=1).mean()
        weight = self.settings.unlabelled_weight
        return Losses({"loss_consistency": weight * distance}, learns=weight > 0)

    def after_step(self, net: nn.Module, batch: Batch, losses: Losses, state: Teaching) -> Teaching:
        """Let the teacher follow."""
        step = state.step + 1
        ema(state.teacher, net, min(1 - 1 / (step + 1), self.settings.ema_decay))
        return Teaching(state.teacher, step)

    def remember(self, state: Teaching) -> Mapping[str, Mapping[str, Tensor]]:
        """Return the teacher, where it outlives the round."""
        return {TEACHER: state.teacher.state_dict()} if self.lasting else {}


def phases_by_group(
    settings: MeanTeacherSettings, task: str, round_: int, labelled: int, unlabelled: Objective[Any]
) -> Sequence[Phase]:
    """Return cross-entropy for a site with labels, ``unlabelled`` for one without; nothing for the
    others' task.
    """
    if (task == SUPERVISED) != (labelled > 0):
        return []
    if labelled:
        return [Phase(Supervised(), rate_of_round(settings.learning_rate, round_, settings))]
    return [Phase(unlabelled, rate_of_round(settings.unlabelled_learning_rate, round_, settings))]

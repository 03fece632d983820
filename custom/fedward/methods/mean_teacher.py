"""Mean teacher of a site without labels: a slowly moving copy of the network gives its targets.

Tarvainen and Valpola: *Mean teachers are better role models*, NeurIPS 2017, in the form of RSCFed
(Liang et al., CVPR 2022) and IsoFed (Saha et al., MICCAI 2023, Sec. 2.2).
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from fedward.errors import ConfigError
from fedward.methods.groups import SUPERVISED, GroupSettings
from fedward.methods.local import Batch, Losses, Objective, Phase, RoundInputs, Uses, strong_pass
from fedward.methods.schedule import rate_of_round
from fedward.methods.settings import Positive, StepSize, UnitInterval
from fedward.methods.supervised import Supervised

TEACHER = "teacher"
"""Role of the teacher in a site's memory."""


@torch.no_grad()
def sharpen(p: Tensor, temperature: float) -> Tensor:
    """Raise probabilities to a power, so that each row moves towards its most probable class.

    ``p̂_i = p_i^(1/τ) / Σ_j p_j^(1/τ)``.
    Source: Saha et al., MICCAI 2023 (IsoFed), Sec. 2.2; τ = 0.5 as in RSCFed's code.

    Args:
        p: (N, K) floating point in [0, 1], rows that sum to a positive number.
        temperature: τ > 0; below 1 sharpens, above 1 flattens, 1 normalises only.

    Returns:
        (N, K) in the dtype of ``p``, rows sum to 1, the order of the classes in a row is kept. No
        gradient.

    Raises ConfigError: ``p`` is not two-dimensional or has no class.

    Edge cases: A probability of 0 stays 0. With a small temperature the rows tend to one-hot; they
    are computed in log space, so that nothing under- or overflows. A row of zeros or with NaN
    becomes NaN, so that a broken network is noticed. For N = 0 the result is empty.

    Deviates: the paper says the temperature "is increased" to reduce entropy; only τ < 1 does that.
    """
    if p.dim() != 2 or not p.shape[1]:
        raise ConfigError(
            "mean_teacher.sharpen",
            "Pass softmax outputs.",
            expected="probabilities (images, classes)",
            found=f"{tuple(p.shape)}",
        )
    logarithms = p.log()
    largest = logarithms.amax(dim=1, keepdim=True)
    return torch.softmax((logarithms - largest) / temperature, dim=1)


@torch.no_grad()
def ema(teacher: nn.Module, student: nn.Module, decay: float) -> None:
    """Move a teacher a little towards its student.

    ``w_t <- a w_t + (1 - a) w_s`` for every parameter; buffers (BatchNorm's statistics) are copied.
    Source: Saha et al., MICCAI 2023, eq. (1); RSCFed's code.

    Args:
        teacher: changed in place.
        student: a module of the same architecture on the same device.
        decay: a in [0, 1]: 1 keeps the teacher's parameters, 0 copies the student's.

    Raises ConfigError: modules that do not match.

    Deviates: eq. (1) prints α as the factor of the student. With its α = 0.999 the teacher would be
    almost the student itself.
    """
    parameters: list[Tensor] = list(teacher.parameters())
    student_parameters: list[Tensor] = list(student.parameters())
    buffers = list(teacher.buffers())
    student_buffers = list(student.buffers())
    shapes = [tensor.shape for tensor in (*parameters, *buffers)]
    student_shapes = [tensor.shape for tensor in (*student_parameters, *student_buffers)]
    # The shapes alone would not tell a parameter from a buffer.
    counts_match = len(parameters) == len(student_parameters)
    if not counts_match or shapes != student_shapes:
        raise ConfigError(
            "mean_teacher.ema: teacher and student are not of one architecture",
            "Make the teacher a copy of the student.",
        )
    # One call for all parameters is several times faster than one for each.
    torch._foreach_lerp_(parameters, student_parameters, 1 - decay)
    for buffer, student_buffer in zip(buffers, student_buffers, strict=True):
        buffer.copy_(student_buffer)


class MeanTeacherSettings(GroupSettings):
    """Settings of a mean teacher. The defaults are those of RSCFed's code, which IsoFed follows."""

    unlabelled_learning_rate: Positive = 0.021
    """Largest step size of sites without labels. RSCFed: 0.021."""
    unlabelled_weight: float = Field(0.02, ge=0.0)
    """λ_u: weight of the distance to the teacher. RSCFed: 0.02."""
    temperature: Positive = 0.5
    """τ of :func:`sharpen`. RSCFed: 0.5."""
    ema_decay: UnitInterval = 0.999
    """Largest decay a of :func:`ema`; at step s it is min(1 - 1/(s + 1), this). RSCFed: 0.999."""

    @property
    def step_sizes(self) -> Sequence[StepSize]:
        """Step sizes of sites with labels, and of sites without."""
        rate = self.unlabelled_learning_rate
        return [*super().step_sizes, StepSize("unlabelled_learning_rate", rate, self.optimizer)]

    @property
    def loss_weights(self) -> Mapping[str, float]:
        """See :attr:`fedward.methods.settings.Settings.loss_weights`."""
        return {**super().loss_weights, "unlabelled_weight": self.unlabelled_weight}

    @model_validator(mode="after")
    def _has_rounds_without_labels(self) -> "MeanTeacherSettings":
        if self.warm_up >= self.rounds:
            raise ValueError(
                f"warm_up={self.warm_up} leaves none of {self.rounds} rounds to sites without "
                "labels: lower warm_up, or raise rounds"
            )
        return self


@dataclass(frozen=True)
class TeacherState:
    """What a mean teacher carries from step to step."""

    teacher: nn.Module
    """The teacher, which is changed in place."""
    step: int
    """Number of steps before the next one, counted from the first round."""


class MeanTeacher(Objective[TeacherState]):
    """Squared distance of the student on strong views to the sharpened teacher on weak views.

    ``L_u = λ_u (1/B) Σ_x ‖p̂_t(α(x)) - p_s(A(x))‖²``. After every step the teacher
    follows the student.
    Source: Saha et al., MICCAI 2023, Sec. 2.2; RSCFed's code (sum over classes, mean over the
    batch).

    The teacher's decay depends on the step s, which counts from the first round as if the site had
    taken part in every round, so that no counter must be kept. s is 1 at the first step. RSCFed's
    counter is 0 there, so that its first step copies the student to the teacher.

    Args:
        settings: the job's settings, with the temperature, the decay and the weight of the loss.
        lasting: whether the site remembers its teacher from round to round, and the student sees
            weak views as the teacher does, both as in RSCFed's code. Otherwise the teacher starts
            each round from the model received, and the student sees strong views, as in IsoFed.
    """

    def __init__(self, settings: MeanTeacherSettings, lasting: bool = False) -> None:
        self.settings = settings
        self.lasting = lasting
        self.uses = Uses(
            labelled=False, unlabelled="unlabelled", second_view="weak" if lasting else "strong"
        )

    def init(self, net: nn.Module, inputs: RoundInputs) -> TeacherState:
        """Return the teacher: a copy of the network, or the one that this site remembers."""
        teacher = copy.deepcopy(net).requires_grad_(False).eval()
        if self.lasting and TEACHER in inputs.memory:
            teacher.load_state_dict(inputs.memory[TEACHER])
        return TeacherState(teacher, inputs.steps_before)

    def losses(
        self, net: nn.Module, batch: Batch, inputs: RoundInputs, state: TeacherState
    ) -> Losses:
        """Return ``L_u``; no loss without unlabelled images."""
        if batch.weak is None or batch.strong is None:
            return Losses({})
        with torch.no_grad():
            predicted = torch.softmax(state.teacher(batch.weak).float(), dim=1)
            target = sharpen(predicted, self.settings.temperature)
        logits = self._student_logits(net, batch.strong)
        distance = (torch.softmax(logits.float(), dim=1) - target).square().sum(dim=1).mean()
        weight = self.settings.unlabelled_weight
        return Losses({"loss_consistency": weight * distance}, learns=weight > 0)

    def _student_logits(self, net: nn.Module, second_view: Tensor) -> Tensor:
        # A lasting teacher's student sees a second weak view, which needs no special pass.
        if self.lasting:
            logits: Tensor = net(second_view)
            return logits
        return strong_pass(net, second_view, self.settings)

    def after_step(
        self, net: nn.Module, batch: Batch, losses: Losses, state: TeacherState
    ) -> TeacherState:
        """Move the teacher towards the network."""
        step = state.step + 1
        decay = min(1 - 1 / (step + 1), self.settings.ema_decay)
        ema(state.teacher, net, decay)
        return TeacherState(state.teacher, step)

    def remember(self, state: TeacherState) -> Mapping[str, Mapping[str, Tensor]]:
        """Return the teacher if it lasts, otherwise nothing."""
        if not self.lasting:
            return {}
        return {TEACHER: state.teacher.state_dict()}


def phases_by_group(
    settings: MeanTeacherSettings, task: str, round_: int, labelled: int, unlabelled: Objective[Any]
) -> Sequence[Phase]:
    """Return the phase of a site by its group: with labels or without.

    Args:
        settings: the job's settings, with the learning rates of both groups.
        task: the task of sites with labels, or that of sites without. A site of the other group
            declines, and has no phase.
        round_: number of the round, from 1.
        labelled: number of the site's labelled images.
        unlabelled: objective of a site without labels; the other group minimises cross-entropy.
    """
    task_needs_labels = task == SUPERVISED
    has_labels = labelled > 0
    if task_needs_labels != has_labels:
        return []
    if has_labels:
        rate = rate_of_round(settings.learning_rate, round_, settings)
        return [Phase(Supervised(), rate)]
    rate = rate_of_round(settings.unlabelled_learning_rate, round_, settings)
    return [Phase(unlabelled, rate)]

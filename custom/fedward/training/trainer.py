"""One phase of a site's local training, run by MONAI's trainer for every method."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor, nn

from fedward.errors import DivergedTrainingError, WorkError
from fedward.methods.local import (
    Batch,
    Losses,
    Measurement,
    Objective,
    Phase,
    RoundInputs,
)
from fedward.methods.schedule import warm_up_factor
from fedward.methods.settings import Settings
from fedward.speed.monai_trainer import load_trainer
from fedward.training.batches import RoundBatches
from fedward.training.machine import has_bfloat16
from fedward.training.optimizers import optimizer_of

if TYPE_CHECKING:
    from ignite.engine import Engine

Trainer = load_trainer()
"""The class ``monai.engines.Trainer``."""

LossesOf: TypeAlias = Callable[[nn.Module], Losses]
"""Computes the losses of one batch with the network that it is given."""
SharedLosses: TypeAlias = Callable[[LossesOf], Losses]
"""Computes losses with a network that several processes share."""


@dataclass(frozen=True)
class Trained:
    """What one phase of training returns besides the trained network."""

    steps: int
    """Optimiser steps: the number of batches that had something to learn from. In a phase that
    only measures: the number of batches."""
    means: dict[str, float]
    """Means over all batches of the loss, of its terms and of the objective's logs, by name."""
    memory: Mapping[str, Mapping[str, Tensor]]
    """Models that the site keeps for its next round, by role."""


def train(
    net: nn.Module,
    batches: RoundBatches | Sequence[Batch],
    phase: Phase,
    inputs: RoundInputs,
    settings: Settings,
    *,
    device: torch.device,
    aborted: Callable[[], bool],
    shared: SharedLosses | None = None,
) -> Trained:
    """Train ``net`` in place for one phase of a federated round.

    Every phase has a new optimiser, as in FedPerl's rounds. The learning rate rises over its first
    steps. Forward passes run in bfloat16 on a GPU that computes in it, elsewhere in float32: an
    older GPU would need float16 and a scaled loss.

    The objective says when a batch has nothing to learn from, such as one without labelled images,
    kept pseudo-labels or peers. Such a batch makes no step, because Adam would move the
    parameters by its momentum alone. BatchNorm's statistics still follow its images.

    A phase that measures goes through the batches once. Each batch counts as a step, and there are
    no losses.

    Args:
        net: the network, on ``device``.
        batches: the batches, each of which makes at most one step.
        phase: what is minimised, and how fast.
        inputs: what stays fixed during the phase.
        settings: the method's settings.
        device: where to train.
        aborted: called before every step, and before a measurement; True ends the training.
        shared: where several processes train together, computes the losses with all of them, by
            :func:`~fedward.training.distributed.sharing.parallel` of ``net``.

    Raises:
        WorkError: the run was aborted, or BatchNorm cannot normalise a batch of one image.
        DivergedTrainingError: the loss is no longer finite.
    """
    objective = phase.objective
    if isinstance(objective, Measurement):
        _refuse_aborted(aborted)
        objective.measure(net, batches)
        return Trained(len(batches), {}, {})
    net.train()
    steps = _Steps(
        net,
        objective,
        inputs,
        settings,
        learning_rate=phase.learning_rate,
        batches=len(batches),
        device=device,
        aborted=aborted,
        shared=shared,
    )
    trainer = Trainer(
        device=device,
        max_epochs=1,
        data_loader=batches,
        epoch_length=len(batches),
        prepare_batch=_unchanged,
        iteration_update=steps.take,
    )
    # ignite logs every exception before it raises it, and would break up the console's table.
    trainer.logger.setLevel(logging.CRITICAL)
    trainer.run()
    return steps.result()


def _refuse_aborted(aborted: Callable[[], bool]) -> None:
    """Raise WorkError if the run was aborted."""
    if aborted():
        raise WorkError("Training stopped: the run was aborted")


@dataclass
class _Steps:
    """The steps of one phase, and what is carried from each to the next.

    The fields are arguments of :func:`train`, besides ``batches``, the number of batches.
    """

    net: nn.Module
    objective: Objective[Any]
    inputs: RoundInputs
    settings: Settings
    learning_rate: float
    batches: int
    device: torch.device
    aborted: Callable[[], bool]
    shared: SharedLosses | None

    def __post_init__(self) -> None:
        self.state = self.objective.init(self.net, self.inputs)
        self.optimizer = optimizer_of(self.net, self.settings, self.learning_rate)
        self.steps_taken = 0
        # On the device, so that no step waits for a copy to the CPU.
        self.sums: dict[str, Tensor] = {}

    def take(self, engine: "Engine", batch: Batch) -> None:
        """Take one step, or none if the batch has nothing to learn from.

        MONAI's trainer calls this for every batch.
        """
        _refuse_aborted(self.aborted)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=has_bfloat16(self.device)):
            losses = self._compute(
                lambda net: self.objective.losses(net, batch, self.inputs, self.state)
            )
            total = torch.zeros((), device=self.device)
            if losses.terms:
                total = torch.stack(list(losses.terms.values())).sum()
        self._add_to_sums({"loss": total, **losses.terms, **losses.logs})
        if losses.terms and losses.learns:
            self._step(total)
            self.state = self.objective.after_step(self.net, batch, losses, self.state)

    def result(self) -> Trained:
        """Return what the phase gave; raise DivergedTrainingError if a mean is not finite."""
        means = {name: float(total) / self.batches for name, total in self.sums.items()}
        if not all(math.isfinite(mean) for mean in means.values()):
            raise DivergedTrainingError(
                f"Training diverged: its mean losses are {means}",
                f"Lower the learning rate, here {self.learning_rate:.3g}, or set clip_gradient.",
            )
        return Trained(self.steps_taken, means, self.objective.remember(self.state))

    def _compute(self, losses_of: LossesOf) -> Losses:
        try:
            if self.shared is None:
                return losses_of(self.net)
            return self.shared(losses_of)
        except ValueError as error:
            # Of a single image whose map is one pixel, torch's BatchNorm has no deviation.
            if "more than 1 value per channel" not in str(error):
                raise
            raise WorkError(
                "Training stopped: BatchNorm cannot normalise a batch of one small image",
                "Give it more images of each kind, or choose a larger batch, larger images, or a "
                "network without BatchNorm.",
            ) from error

    def _add_to_sums(self, values: Mapping[str, Tensor]) -> None:
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + value.detach().float()

    def _step(self, loss: Tensor) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        warm_up = warm_up_factor(self.steps_taken, self.batches, self.settings.round_warm_up)
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate * warm_up
        if self.settings.clip_gradient is not None:
            nn.utils.clip_grad_norm_(self.net.parameters(), self.settings.clip_gradient)
        self.optimizer.step()
        self.steps_taken += 1


def _unchanged(batch: Batch, *_: object) -> Batch:
    """Return the batch. MONAI's default would take it apart into an image and a label."""
    return batch

"""One phase of a site's local training, on MONAI's trainer, for every method."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fedward.errors import WorkError
from fedward.methods.local import Batch, Losses, Measurement, Phase, RoundInputs
from fedward.methods.schedule import warm_up_factor
from fedward.methods.settings import Settings
from fedward.training.batches import RoundBatches
from fedward.training.freed_memory import keep_freed_memory
from fedward.training.machine import has_bfloat16
from fedward.training.monai_trainer import Trainer
from fedward.training.optimizers import optimizer_of


@dataclass(frozen=True)
class Trained:
    """What one phase of training gives besides the trained network."""

    steps: int
    """Optimiser steps: batches that had something to learn from."""
    means: dict[str, float]
    """Mean over all batches of the loss, its terms and what else was to be reported."""
    memory: Mapping[str, Mapping[str, Tensor]]
    """Models that the site is to keep, by role."""


def train(
    net: nn.Module,
    batches: RoundBatches | Sequence[Batch],
    phase: Phase,
    inputs: RoundInputs,
    settings: Settings,
    *,
    device: torch.device,
    aborted: Callable[[], bool],
    shared: Callable[[Callable[[nn.Module], Losses]], Losses] | None = None,
) -> Trained:
    """Train ``net`` in place for one phase of a federated round and return the means of its losses.

    A phase that measures goes once through the batches, each of which counts as a step, and has no
    losses.

    The optimiser starts anew, as in FedPerl's rounds, and its learning rate rises over its first
    steps. The forward passes run in bfloat16 on a GPU that has it, elsewhere in float32: an older
    GPU would need float16 and a scaled loss. A batch with nothing to learn from, as the objective
    says (no labelled images, no pseudo-label kept, no peers), changes no parameter and is no step:
    Adam would else move by momentum. BatchNorm's statistics follow its images all the same, as far
    as the settings let them.

    Args:
        net: on ``device``.
        batches: one for each step at most.
        phase, inputs, settings: what is minimised, what stays fixed, and how.
        device: where to train.
        aborted: asked before every step; True ends the training.
        shared: of several processes, :func:`~fedward.training.distributed.sharing.parallel` of
            ``net``.

    Raises WorkError: aborted, or the loss is no longer finite.
    """
    objective = phase.objective
    parameters = list(net.parameters())
    if isinstance(objective, Measurement):
        objective.measure(net, batches)
        return Trained(len(batches), {}, {})
    keep_freed_memory()
    net.train()
    state = objective.init(net, inputs)
    optimizer = optimizer_of(net, settings, phase.learning_rate)
    sums = dict[str, Tensor]()
    steps = 0  # the sums stay on the device, so that no step waits for one

    compute = shared or (lambda losses_of: losses_of(net))

    def step(engine: Any, batch: Batch) -> None:
        nonlocal steps, state
        if aborted():
            raise WorkError(
                "training",
                expected="to finish the round",
                found="an abort",
                remedy="The run was stopped.",
            )
        with torch.autocast(device.type, torch.bfloat16, enabled=has_bfloat16(device)):
            losses = compute(lambda trained: objective.losses(trained, batch, inputs, state))
            total = (
                torch.stack(list(losses.terms.values())).sum()
                if losses.terms
                else torch.zeros((), device=device)
            )
        for name, value in {"loss": total, **losses.terms, **losses.logs}.items():
            sums[name] = sums.get(name, 0.0) + value.detach().float()
        state = objective.after_batch(losses, state)
        if not losses.terms or not losses.learns:
            return
        optimizer.zero_grad(set_to_none=True)
        total.backward()
        for group in optimizer.param_groups:
            group["lr"] = phase.learning_rate * warm_up_factor(
                steps, len(batches), settings.round_warm_up
            )
        if settings.clip_gradient is not None:
            nn.utils.clip_grad_norm_(parameters, settings.clip_gradient)
        optimizer.step()
        steps += 1
        state = objective.after_step(net, batch, losses, state)

    epoch: dict[str, Any] = {"max_epochs": 1, "data_loader": batches, "epoch_length": len(batches)}
    trainer = Trainer(
        device=device, **epoch, prepare_batch=lambda batch, *_: batch, iteration_update=step
    )
    trainer.logger.setLevel(
        logging.CRITICAL
    )  # its lines would bury the table; what it raises says what was wrong
    trainer.run()
    means = {name: float(total) / len(batches) for name, total in sums.items()}
    if not all(map(math.isfinite, means.values())):
        remedy = f"Lower the learning rate, {phase.learning_rate:.3g} here, or set clip_gradient."
        raise WorkError("training", expected="a finite loss", found=f"{means}", remedy=remedy)
    return Trained(steps, means, objective.remember(state))

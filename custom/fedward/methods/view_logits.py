"""What a network says of the views of one batch."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedward.methods.local import Batch, batch_norms, evaluation_mode, strong_pass
from fedward.methods.settings import Settings


@dataclass(frozen=True)
class ViewLogits:
    """Logits (B, K) of a network on the views of one batch; None where the batch has no such view.

    All have gradients, except those of the weak views where nothing is learned from them.
    """

    labelled: Tensor | None
    """Of the labelled images."""
    strong: Tensor | None
    """Of the strong views."""
    weak: Tensor | None
    """Of the weak views of the same unlabelled images."""


def view_logits(
    net: nn.Module,
    batch: Batch,
    settings: Settings,
    learns_from_weak: bool,
    weak_in_training_mode: bool = False,
) -> ViewLogits:
    """Return the logits of the labelled, strong and weak views of a batch.

    A network whose attribute ``treats_images_alone`` is true computes all views that have a
    gradient in one pass. Separate passes take 1.10 times as long in the job ``fedperl``.
    Losses and gradients differ from those of separate passes by rounding.

    Args:
        net: (N, C, H, W) to (N, K), in training mode.
        batch: a step's images. Weak and strong views come together; if one of them is missing, only
            labelled images are looked at.
        settings: ``batch_statistics`` says whether strong views move BatchNorm's statistics.
        learns_from_weak: whether the logits of the weak views have a gradient.
        weak_in_training_mode: whether BatchNorm normalises weak views by the batch, and dropout
            acts on them. By default they are seen in :func:`evaluation_mode`: pseudo-labels come
            from the model as it would be used on patients, which does not depend on the statistics
            of one batch.
    """
    if batch.weak is None or batch.strong is None:
        labelled = None if batch.labelled is None else net(batch.labelled)
        return ViewLogits(labelled, None, None)
    # BatchNorm may have replaced another layer of a network whose class makes the promise.
    if getattr(net, "treats_images_alone", False) and not batch_norms(net):
        return _in_one_pass(net, batch.labelled, batch.strong, batch.weak, learns_from_weak)

    labelled = None if batch.labelled is None else net(batch.labelled)
    # Strong views before weak ones: the gradient of BatchNorm in evaluation mode reads the running
    # statistics when it is taken, so no training pass may move them after the weak views.
    strong = strong_pass(net, batch.strong, settings)
    with torch.set_grad_enabled(learns_from_weak):
        if weak_in_training_mode:
            weak = net(batch.weak)
        else:
            with evaluation_mode(net):
                weak = net(batch.weak)
    return ViewLogits(labelled, strong, weak)


def _in_one_pass(
    net: nn.Module, labelled: Tensor | None, strong: Tensor, weak: Tensor, learns_from_weak: bool
) -> ViewLogits:
    """Return the logits of a network for which the mode and the other images make no difference."""
    views = [strong]
    if labelled is not None:
        views.append(labelled)
    if learns_from_weak:
        views.append(weak)
    parts = list(net(torch.cat(views)).split([len(view) for view in views]))

    logits_strong = parts.pop(0)
    logits_labelled = parts.pop(0) if labelled is not None else None
    if learns_from_weak:
        logits_weak = parts.pop(0)
    else:
        with torch.no_grad():
            logits_weak = net(weak)
    return ViewLogits(logits_labelled, logits_strong, logits_weak)

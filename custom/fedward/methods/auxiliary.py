"""Training the two auxiliary classifiers of MCDAL beside a network.

Cho, Kim, Jung, Kweon: *MCDAL: maximum classifier discrepancy for active learning*, arXiv
2107.11049. The equations are in :mod:`fedward.methods.samplers.mcdal`.
"""

import torch
from torch import nn

from fedward.methods.local import (
    Batch,
    Losses,
    Objective,
    RoundInputs,
    Uses,
    evaluation_mode,
    logits_and_features,
)
from fedward.methods.samplers.mcdal import AuxiliaryHeads, discrepancy, heads_loss
from fedward.methods.settings import Settings
from fedward.methods.supervised import Supervised

HEADS = "auxiliary"
"""What a network calls them."""


def add_heads(net: nn.Module) -> None:
    """Give a network two further classifiers of its features. Its own output does not change."""
    classifier: nn.Linear = net.classifier  # type: ignore[assignment]
    net.add_module(HEADS, AuxiliaryHeads(classifier.in_features, classifier.out_features))


def heads_of(net: nn.Module) -> AuxiliaryHeads:
    """Return what :func:`add_heads` added."""
    heads: AuxiliaryHeads = net.get_submodule(HEADS)  # type: ignore[assignment]
    return heads


class SupervisedWithHeads(Objective[torch.optim.Optimizer]):
    """Cross-entropy of the network and, after each of its steps, two steps of the heads, whose
    optimiser is its state.

    The first minimises ``heads_loss``, the second ``heads_loss - discrepancy``, the discrepancy of
    unlabelled images, without which it is left out. They see the features of evaluation mode, as
    when images are chosen.

    Deviates: the authors' features are of training mode, so that unlabelled images move BatchNorm's
    statistics.
    """

    uses = Uses(unlabelled="unlabelled", pace="labelled")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def init(self, net: nn.Module, inputs: RoundInputs) -> torch.optim.Optimizer:
        """Return the heads' own optimiser."""
        choice = self._settings
        parameters = heads_of(net).parameters()
        return torch.optim.Adam(
            parameters, lr=choice.learning_rate, weight_decay=choice.weight_decay
        )

    def losses(
        self, net: nn.Module, batch: Batch, inputs: RoundInputs, state: torch.optim.Optimizer
    ) -> Losses:
        """Return the losses of the network; none of them is of the heads."""
        return Supervised().losses(net, batch, inputs)

    def after_step(
        self, net: nn.Module, batch: Batch, losses: Losses, state: torch.optim.Optimizer
    ) -> torch.optim.Optimizer:
        """Train the heads on the same batch."""
        labelled = batch.labelled
        labels = batch.labels
        hidden = batch.weak
        if labelled is None or labels is None:
            return state
        with torch.no_grad(), evaluation_mode(net):
            logits, features = logits_and_features(
                net, labelled if hidden is None else torch.cat([labelled, hidden])
            )
        known = len(labels)
        for part_ways in (False, True) if hidden is not None else (False,):
            first, second = heads_of(net)(features)
            loss = heads_loss(first[:known], second[:known], labels)
            if part_ways:
                loss = loss - discrepancy(first[known:], second[known:], logits[known:])
            state.zero_grad(set_to_none=True)
            loss.backward()
            if self._settings.clip_gradient is not None:
                nn.utils.clip_grad_norm_(heads_of(net).parameters(), self._settings.clip_gradient)
            state.step()
        return state

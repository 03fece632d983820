"""Training of MCDAL's two auxiliary classifiers beside a network.

Cho, Kim, Jung, Kweon: *MCDAL: maximum classifier discrepancy for active learning*, arXiv
2107.11049. The equations are in :mod:`fedward.methods.samplers.mcdal`.
"""

import torch
from torch import Tensor, nn

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
"""Name of the auxiliary classifiers in a network."""


def add_heads(net: nn.Module) -> None:
    """Add two more classifiers of a network's features. Its own output does not change."""
    classifier: nn.Linear = net.classifier  # type: ignore[assignment]
    net.add_module(HEADS, AuxiliaryHeads(classifier.in_features, classifier.out_features))


def heads_of(net: nn.Module) -> AuxiliaryHeads:
    """Return the classifiers that :func:`add_heads` added to a network."""
    heads: AuxiliaryHeads = net.get_submodule(HEADS)  # type: ignore[assignment]
    return heads


class SupervisedWithHeads(Objective[torch.optim.Optimizer]):
    """Cross-entropy of the network and, after each of its steps, two steps of the heads.

    The first step minimises ``heads_loss``. The second minimises ``heads_loss - discrepancy`` with
    the discrepancy of unlabelled images; it is omitted where the batch has none. The heads see
    features of evaluation mode, as they do when images are chosen. The state is their optimiser.

    Deviates: the authors' features are of training mode, so that unlabelled images move BatchNorm's
    statistics.
    """

    uses = Uses(unlabelled="unlabelled", pace="labelled")

    def __init__(self, settings: Settings, learning_rate: float) -> None:
        self._weight_decay = settings.weight_decay
        self._clip_gradient = settings.clip_gradient
        self._learning_rate = learning_rate

    def init(self, net: nn.Module, inputs: RoundInputs) -> torch.optim.Optimizer:
        """Return the heads' own optimiser."""
        parameters = heads_of(net).parameters()
        return torch.optim.Adam(parameters, lr=self._learning_rate, weight_decay=self._weight_decay)

    def losses(
        self, net: nn.Module, batch: Batch, inputs: RoundInputs, state: torch.optim.Optimizer
    ) -> Losses:
        """Return the losses of the network, without those of the heads."""
        return Supervised().losses(net, batch, inputs)

    def after_step(
        self, net: nn.Module, batch: Batch, losses: Losses, state: torch.optim.Optimizer
    ) -> torch.optim.Optimizer:
        """Train the heads on the same batch."""
        labels = batch.labels
        if batch.labelled is None or labels is None:
            return state
        heads = heads_of(net)
        images = batch.labelled
        if batch.weak is not None:
            images = torch.cat([batch.labelled, batch.weak])
        with torch.no_grad(), evaluation_mode(net):
            logits, features = logits_and_features(net, images)

        count = len(labels)
        first, second = heads(features)
        self._step(heads, heads_loss(first[:count], second[:count], labels), state)
        if batch.weak is not None:
            first, second = heads(features)
            loss = heads_loss(first[:count], second[:count], labels)
            apart = discrepancy(first[count:], second[count:], logits[count:])
            self._step(heads, loss - apart, state)
        return state

    def _step(self, heads: AuxiliaryHeads, loss: Tensor, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if self._clip_gradient is not None:
            nn.utils.clip_grad_norm_(heads.parameters(), self._clip_gradient)
        optimizer.step()

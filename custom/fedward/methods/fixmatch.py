"""FixMatch: a confident prediction on a weak view becomes the label of a strong view.

Sohn, Berthelot, Li, Zhang, Carlini, Cubuk, Kurakin, Zhang, Raffel: *FixMatch: simplifying
semi-supervised learning with consistency and confidence*, NeurIPS 2020, eq. (4), by default
averaged over the kept images as in FedPerl (Bdair, Navab, Albarqouni, MELBA 2022, eq. (2)).

Its equations, and other ways to make pseudo-labels, are in :mod:`fedward.methods.pseudo_labels`.
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from fedward.methods.local import (
    Batch,
    Losses,
    Objective,
    RoundInputs,
    Uses,
    in_one_pass,
    probabilities_in_evaluation_mode,
    strong_pass,
)
from fedward.methods.outputs import SIGMOID, SOFTMAX, Outputs
from fedward.methods.pseudo_labels import Labeller, PerClass, PseudoLabels, Statistics, labeller_of
from fedward.methods.pseudo_labels.labeller import pseudo_label, pseudo_label_loss
from fedward.methods.pseudo_labels.settings import FixMatchSettings
from fedward.methods.supervised import Supervised

__all__ = ["FixMatchObjective", "FixMatchSettings", "pseudo_label", "pseudo_label_loss"]

NOTHING: Statistics = {}
"""Statistics of a labeller that has none."""


class FixMatchObjective(Objective[Statistics]):
    """L_sup + beta L_u, on labelled images, unlabelled images, or both."""

    uses = Uses(unlabelled="unlabelled", second_view="strong")

    def __init__(self, settings: FixMatchSettings) -> None:
        self.settings = settings
        self.labeller = labeller_of(
            settings.pseudo_labels, settings.threshold, settings.fairness_weight
        )
        self._labellers: dict[Outputs, Labeller] = {
            SOFTMAX: self.labeller,
            SIGMOID: PerClass(settings.threshold),
        }
        self.uses = replace(self.uses, received=self.labeller.received)

    def init(self, net: nn.Module, inputs: RoundInputs) -> Statistics:
        """Return what the labeller knows before the first batch."""
        return self._labeller(inputs).init(inputs)

    def losses(
        self, net: nn.Module, batch: Batch, inputs: RoundInputs, state: Statistics = NOTHING
    ) -> Losses:
        """Return the terms of Bdair et al., MELBA 2022, eq. (2); ``kept`` is the share of
        pseudo-labels used.
        """
        follows = self.follows(batch.peers)
        net = in_one_pass(net, batch.labelled, batch.strong, batch.weak if follows else None)
        supervised = Supervised().losses(net, batch, inputs).terms
        if batch.weak is None or batch.strong is None:
            return Losses(supervised, learns=bool(supervised))
        # Strong views first: the gradient of BatchNorm in evaluation mode reads the running
        # statistics when it is taken, so no training pass may move them after the weak views.
        logits = strong_pass(net, batch.strong, self.settings)
        weight = self.settings.unlabelled_weight
        local, teaching = self.teach(net, batch.weak, batch.peers, inputs)
        found = self.label(local.detach(), batch, state, inputs)
        pseudo = self._labeller(inputs).loss(
            inputs.seen_by_losses(logits), found, self.settings.pseudo_label_mean
        )
        kept = found.keep if found.keep.dim() == 1 else found.keep.any(dim=1)
        enough = kept.sum() >= (1 if supervised else inputs.smallest_batch)
        pseudo = torch.where(enough, pseudo, 0.0)
        terms = {**supervised, "loss_pseudo": weight * pseudo, **teaching}
        learns = bool(supervised) or follows or (weight > 0 and enough)
        after = {"labels": found.labels, "keep": found.keep, **found.statistics}
        return Losses(terms, {"kept": found.keep.float().mean()}, learns, after)

    def after_batch(self, losses: Losses, state: Statistics) -> Statistics:
        """Return what the labeller knows now; nothing new without unlabelled images."""
        return {name: losses.found.get(name, value) for name, value in state.items()}

    def remember(self, state: Statistics) -> Mapping[str, Statistics]:
        """Return what the labeller wants to know in the next round."""
        return self.labeller.remember(state)

    def follows(self, peers: Tensor | None) -> bool:
        """Return whether the net learns from its weak views, too; here they only make labels."""
        return False

    def teach(
        self, net: nn.Module, weak: Tensor, peers: Tensor | None, inputs: RoundInputs
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the net's probabilities (B, K) of the weak views, and further loss terms; here
        none.
        """
        with torch.no_grad():
            return probabilities_in_evaluation_mode(net, weak, inputs.outputs), {}

    def label(
        self, local: Tensor, batch: Batch, known: Statistics, inputs: RoundInputs
    ) -> PseudoLabels:
        """Return the pseudo-labels of a batch by the net's probabilities; here the net teaches
        itself.
        """
        return self._labeller(inputs).label(local, batch.received, known)

    def _labeller(self, inputs: RoundInputs) -> Labeller:
        return self._labellers[inputs.outputs]

"""FixMatch: a confident prediction on a weak view becomes the label of a strong view.

Sohn, Berthelot, Li, Zhang, Carlini, Cubuk, Kurakin, Zhang, Raffel: *FixMatch: simplifying
semi-supervised learning with consistency and confidence*, NeurIPS 2020, eq. (4), by default
averaged over the kept images as in FedPerl (Bdair, Navab, Albarqouni, MELBA 2022, eq. (2)).

Its equations, and other ways to make pseudo-labels, are in :mod:`fedward.methods.pseudo_labels`.
"""

from typing import Any

import torch
from torch import Tensor, nn

from fedward.methods.local import (
    Batch,
    Losses,
    Objective,
    RoundInputs,
    Stateless,
    Uses,
)
from fedward.methods.outputs import SIGMOID, SOFTMAX, Outputs
from fedward.methods.proximal import LOSS, with_proximal_term
from fedward.methods.pseudo_labels import labeller_of
from fedward.methods.pseudo_labels.labeller import Labeller, PseudoLabels
from fedward.methods.pseudo_labels.per_class import PerClass
from fedward.methods.pseudo_labels.settings import FixMatchSettings
from fedward.methods.supervised import supervised_loss
from fedward.methods.view_logits import view_logits


def fixmatch(settings: FixMatchSettings) -> Objective[Any]:
    """Return FixMatch with the proximal term that the settings ask for."""
    return with_proximal_term(FixMatchObjective(settings), settings.proximal_weight)


def fixmatch_losses(settings: FixMatchSettings) -> frozenset[str]:
    """Return the names of the loss terms of :func:`fixmatch` at a site."""
    names = {"loss_pseudo"}
    if not settings.server_labels:
        names.add("loss_supervised")
    if settings.proximal_weight:
        names.add(LOSS)
    return frozenset(names)


class FixMatchObjective(Stateless):
    """``L_sup + β L_u``, on labelled images, unlabelled images, or both.

    :class:`~fedward.methods.fedperl.pseudo_labels.FedPerlObjective` overrides :meth:`follows`,
    :meth:`peer_losses` and :meth:`label`.
    """

    uses = Uses(unlabelled="unlabelled", second_view="strong")
    labels_in_training_mode: bool = False
    """Whether pseudo-labels come from the network in training mode."""

    def __init__(self, settings: FixMatchSettings) -> None:
        self.settings = settings
        self._labellers: dict[Outputs, Labeller] = {
            SOFTMAX: labeller_of(settings),
            SIGMOID: PerClass(settings.threshold),
        }

    def losses(
        self, net: nn.Module, batch: Batch, inputs: RoundInputs, state: None = None
    ) -> Losses:
        """Return the terms of Bdair et al., MELBA 2022, eq. (2).

        ``kept`` among the logs is the share of the pseudo-labels that the loss sees.
        """
        follows = self.follows(batch.peers)
        logits = view_logits(
            net,
            batch,
            self.settings,
            learns_from_weak=follows,
            weak_in_training_mode=self.labels_in_training_mode,
        )
        supervised = {}
        if logits.labelled is not None and batch.labels is not None:
            supervised["loss_supervised"] = supervised_loss(logits.labelled, batch.labels, inputs)
        if logits.weak is None or logits.strong is None:
            return Losses(supervised, learns=bool(supervised))
        # In float32: a threshold is compared with more digits than autocast keeps of a sigmoid.
        local = inputs.outputs.probabilities(logits.weak.float())  # (B, K)
        pseudo_labels = self.label(local.detach(), batch, inputs)
        loss_pseudo = self._labeller(inputs).loss(
            logits.strong, pseudo_labels, self.settings.pseudo_label_mean
        )

        # If a site learns from pseudo-labels alone, too few kept images would show in the update.
        confident = pseudo_labels.keep
        kept_images = confident if confident.dim() == 1 else confident.any(dim=1)  # (B,)
        fewest = 1 if supervised else inputs.smallest_batch
        enough = kept_images.sum() >= fewest
        keep = confident & enough
        loss_pseudo = torch.where(enough, loss_pseudo, 0.0)

        weight = self.settings.unlabelled_weight
        return Losses(
            terms={
                **supervised,
                "loss_pseudo": weight * loss_pseudo,
                **self.peer_losses(local, batch.peers),
            },
            logs={"kept": keep.float().mean()},
            learns=bool(supervised) or follows or (weight > 0 and enough),
            carried={"labels": pseudo_labels.labels, "keep": keep},
        )

    def follows(self, peers: Tensor | None) -> bool:
        """Return whether a gradient flows through the weak views; here they only make labels."""
        return False

    def peer_losses(self, local: Tensor, peers: Tensor | None) -> dict[str, Tensor]:
        """Return the loss terms between the network and its peers; here it has none.

        Args:
            local: (B, K) the network's probabilities of the weak views; with gradient where
                :meth:`follows` is true.
            peers: (P, B, K) those of the peers; None without peers.
        """
        return {}

    def label(self, local: Tensor, batch: Batch, inputs: RoundInputs) -> PseudoLabels:
        """Return the pseudo-labels of a batch.

        Args:
            local: (B, K) the network's probabilities of the weak views, without gradient. Here they
                are all that labels are made of.
            batch: with the peers' probabilities, which a method may use.
            inputs: what stays fixed during the phase.
        """
        return self._labeller(inputs).label(local)

    def _labeller(self, inputs: RoundInputs) -> Labeller:
        return self._labellers[inputs.outputs]

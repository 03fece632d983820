"""FedPerl at a site: labels made together with its peers.

Bdair et al., MELBA 2022, eq. (5), (7) and (8).
"""

import torch
from torch import Tensor

from fedward.errors import ConfigError
from fedward.methods.fedperl.settings import FedPerlSettings
from fedward.methods.fixmatch import FixMatchObjective
from fedward.methods.local import Batch, RoundInputs
from fedward.methods.pseudo_labels.labeller import PseudoLabels
from fedward.methods.pseudo_labels.threshold import Fixed


def committee_mean(local: Tensor, peers: Tensor) -> Tensor:
    """Return the mean prediction of a site and its peers, of which pseudo-labels are made.

    ``q_i = (p_loc,i + Σ_t p_t,i) / (P + 1)``.

    Source: Bdair et al., MELBA 2022, eq. (5), and eq. (7) with one anonymous peer; the division by
    P + 1 is that of the authors' code.

    Args:
        local: p_loc (N, K) floating point in [0, 1], the site's own probabilities on the weak view.
        peers: p_t (P, N, K) floating point in [0, 1], those of the P >= 0 peer models received.

    Returns:
        q (N, K) in [0, 1].

    Raises ConfigError: the shapes do not match.

    Edge cases: P = 0: ``local``. Peers equal to local: ``local`` up to rounding. NaN in any p: NaN,
    which no labeller keeps, because a broken peer cannot label.
    """
    _require_matching("fedperl.committee_mean", local, peers)
    return torch.cat([local.unsqueeze(0), peers]).mean(dim=0)


def consistency(local: Tensor, peers: Tensor) -> Tensor:
    """Return the mean squared distance between the site's predictions and its peers'.

    ``L_con = (1/P) Σ_t MSE(p_t, p_loc)``, with the mean over images and classes.

    Source: Bdair et al., MELBA 2022, eq. (8).

    Args:
        local: p_loc (N, K) floating point, the site's probabilities on the weak view, with
            gradient.
        peers: p_t (P, N, K) floating point, P >= 0.

    Returns:
        Scalar, in [0, 1] for probabilities. The gradient reaches ``local`` only, never ``peers``.

    Raises ConfigError: the shapes do not match.

    Edge cases: P = 0, or N = 0: 0 with a gradient of 0. Peers equal to local: 0. NaN or infinity:
    the loss is not finite, because a broken network must be noticed.

    Deviates: eq. (8) prints the squared norm, which is K times as much, and the image without a
    view; mean and weak view are those of the authors' code. That code detaches both sides, so that
    the term never trains the network, and skips it where no pseudo-label is kept. Eq. (8) is
    minimised over the local weights, which is done here, on every image.
    """
    _require_matching("fedperl.consistency", local, peers)
    return (local - peers.detach()).square().sum() / max(peers.numel(), 1)


class FedPerlObjective(FixMatchObjective):
    """``L_sup + β L_pl + γ L_con``; without peers exactly FixMatch."""

    settings: FedPerlSettings

    def __init__(self, settings: FedPerlSettings) -> None:
        super().__init__(settings)
        self.labels_in_training_mode = settings.batch_statistics_for_labels

    def peer_losses(self, local: Tensor, peers: Tensor | None) -> dict[str, Tensor]:
        """Return the distance to the peers (eq. (8))."""
        if peers is None:
            return {}
        weight = self.settings.consistency_weight
        return {"loss_consistency": weight * consistency(local, peers)}

    def label(self, local: Tensor, batch: Batch, inputs: RoundInputs) -> PseudoLabels:
        """Label together with the peers (eq. (5), (7)).

        The labeller is given the mean over the site and its peers.

        Deviates: as printed, eq. (5) and (7) compare the sum of P + 1 probabilities with τ, which
        ``combine=sum`` does. Its maximum over K classes is at least (P + 1) / K, so that it nearly
        always exceeds τ = 0.6.
        """
        settings = self.settings
        peers = batch.peers
        if peers is None:
            peers = local.new_empty((0, *local.shape))
        mean = committee_mean(local, peers)
        if settings.combine == "sum":
            # The sum reaches τ where the mean reaches τ / (P + 1).
            return Fixed(settings.threshold / (len(peers) + 1)).label(mean)
        return super().label(mean, batch, inputs)

    def follows(self, peers: Tensor | None) -> bool:
        """Return whether the loss keeps the site's predictions close to those of peers."""
        return peers is not None and self.settings.consistency_weight > 0


def _require_matching(where: str, local: Tensor, peers: Tensor) -> None:
    """Raise ConfigError unless the probabilities are of the same images and classes."""
    if local.dim() != 2 or peers.shape[1:] != local.shape:
        raise ConfigError(
            where,
            "Predict the same images with all models.",
            expected="probabilities (N, K) and peers (P, N, K)",
            found=f"{tuple(local.shape)} and {tuple(peers.shape)}",
        )

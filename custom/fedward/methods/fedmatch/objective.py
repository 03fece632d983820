"""FedMatch at a site: labels train σ, unlabelled images train ψ."""

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from fedward.errors import ConfigError
from fedward.methods.fedmatch.decomposition import psi_of, shared_with_psi, theta_of
from fedward.methods.fedmatch.settings import FedMatchSettings
from fedward.methods.local import (
    Batch,
    Losses,
    Objective,
    RoundInputs,
    Uses,
    evaluation_mode,
    statistics_of_strong_views,
)
from fedward.methods.pseudo_labels.labeller import mean_of_kept, pseudo_label_loss
from fedward.methods.pseudo_labels.threshold import pseudo_label
from fedward.methods.supervised import Supervised


def agreement(local: Tensor, helpers: Tensor) -> Tensor:
    """Return the class of each image that gets the most votes of the site and its helpers.

    ``ŷ = argmax_c [1(p_loc) + Σ_j 1(p_j)]_c``, where 1(p) is one-hot at the largest entry of p.
    Source: Jeong et al., ICLR 2021.

    Args:
        local: p_loc (N, K), the site's own probabilities.
        helpers: p_j (P, N, K), P >= 0.

    Returns:
        (N,) int64.

    Raises ConfigError: the shapes do not match.

    Edge cases: P = 0: the site's own label.

    Deviates: of tied classes the one with the largest mean probability wins. In the released code
    the one with the lowest index wins, so that a single helper can only lower the index.
    """
    if local.dim() != 2 or helpers.dim() != 3 or helpers.shape[1:] != local.shape:
        raise ConfigError(
            "fedmatch.agreement",
            "Predict the same images with all models.",
            expected="probabilities (N, K) and helpers (P, N, K)",
            found=f"{tuple(local.shape)} and {tuple(helpers.shape)}",
        )
    voters = torch.cat([local.unsqueeze(0), helpers])  # (P + 1, N, K)
    votes = F.one_hot(voters.argmax(dim=2), local.shape[1]).sum(dim=0)  # (N, K)
    # Half a mean probability is less than one vote, so that it only breaks ties.
    return (votes + voters.mean(dim=0) / 2).argmax(dim=1)


def inter_client_consistency(logits: Tensor, helpers: Tensor, keep: Tensor) -> Tensor:
    """Return the mean KL divergence of a site's predictions from its helpers', on kept images.

    ``(1 / |S|) Σ_{i in S} (1 / P) Σ_j KL(p_j,i ‖ p_i)`` with ``p = softmax z`` over the kept images
    S; 0 where S is empty.
    Source: Jeong et al., ICLR 2021. Images below the threshold are left out, as in the released
    code.

    Args:
        logits: z (N, K) of the site's network, with gradient.
        helpers: p_j (P, N, K), P >= 1. They get no gradient.
        keep: (N,) bool.

    Returns:
        Scalar >= 0. The gradient of an image that is not kept is exactly 0.
    """
    fixed = helpers.detach()
    # Masked first, because a factor of 0 would not remove a NaN from the gradient.
    kept_logits = logits.masked_fill(~keep.unsqueeze(1), 0.0)
    log_local = torch.log_softmax(kept_logits, dim=1)
    divergences = torch.special.xlogy(fixed, fixed) - fixed * log_local  # (P, N, K)
    return mean_of_kept(divergences.sum(dim=2).mean(dim=0), keep, "kept")


def disjoint_penalty(
    theta: Tensor, psi: Tensor, l1_weight: float, l2_weight: float
) -> tuple[Tensor, Tensor]:
    """Return the two terms that keep ψ sparse and close to σ, for one tensor of a network.

    ``λ_L1 ‖ψ‖₁`` and ``λ_L2 ‖σ* - ψ‖²`` with ``σ* = θ - ψ`` fixed.
    Source: Jeong et al., ICLR 2021, with labels at the clients.

    Args:
        theta: θ, any shape.
        psi: ψ, of the same shape.
        l1_weight: λ_L1.
        l2_weight: λ_L2.

    Returns:
        Two scalars, whose gradients reach ψ alone.
    """
    sigma = (theta - psi).detach()
    return l1_weight * psi.abs().sum(), l2_weight * (sigma - psi).square().sum()


class FedMatchObjective(Objective[list[Tensor]]):
    """``L_s(σ)`` on labelled images, and ``L_u(ψ)`` on unlabelled ones, in one step.

    ``L_u = λ_i L_i + λ_a L_a + λ_L1 ‖ψ‖₁ + λ_L2 ‖σ - ψ‖²``. The gradient of L_s moves θ with ψ
    fixed, and so moves σ. That of L_u moves ψ, and :meth:`after_step` adds the change of ψ to θ, so
    that σ stays. The state that is carried from step to step is a copy of ψ before the step.
    Source: Jeong et al., ICLR 2021.

    A site without labels trains ψ alone, as all sites do where the server has the labels.

    Edge cases: without unlabelled images only σ is trained. If fewer images are confident than the
    site's smallest batch, none of them counts, and a site without labels takes no step, in which ψ
    would only be drawn to σ. Neither does it where both losses of confident images weigh 0.

    Deviates: the released code takes a step of σ and then one of ψ, whose loss is computed with the
    new σ.
    """

    uses = Uses(unlabelled="unlabelled", second_view="strong")

    def __init__(self, settings: FedMatchSettings) -> None:
        self._settings = settings

    def init(self, net: nn.Module, inputs: RoundInputs) -> list[Tensor]:
        """Return a copy of ψ."""
        return [psi.detach().clone() for psi in psi_of(net).values()]

    def losses(
        self, net: nn.Module, batch: Batch, inputs: RoundInputs, state: list[Tensor]
    ) -> Losses:
        """Return the terms of both losses; the logged ``kept`` is the share of confident images."""
        supervised = Supervised().losses(net, batch, inputs).terms
        if batch.weak is None or batch.strong is None:
            return Losses(supervised, learns=bool(supervised))
        settings = self._settings
        theta = theta_of(net)
        psi = psi_of(net)
        shared = shared_with_psi(theta, psi)
        # Strong views first, for the reason that view_logits gives.
        with statistics_of_strong_views(net, settings):
            strong_logits = functional_call(net, shared, (batch.strong,))  # (B, K)
        with evaluation_mode(net):
            logits = functional_call(net, shared, (batch.weak,))  # (B, K)
        local = inputs.outputs.probabilities(logits.detach().float())
        _, keep = pseudo_label(local, settings.threshold)
        # ψ learns from pseudo-labels alone and is sent beside θ. Labelled images in the same step
        # would therefore not hide the few kept images in its update.
        enough = keep.sum() >= inputs.smallest_batch
        keep = keep & enough

        helpers = batch.peers
        if helpers is None:
            helpers = local.new_empty((0, *local.shape))
        labels = agreement(local, helpers)
        pseudo_loss = pseudo_label_loss(strong_logits.float(), labels, keep)
        terms = {**supervised, "loss_pseudo": settings.unlabelled_weight * pseudo_loss}
        if len(helpers):
            divergence = inter_client_consistency(logits.float(), helpers, keep)
            terms["loss_consistency"] = settings.consistency_weight * divergence
        penalties = list[Tensor]()
        for name, tensor in psi.items():
            penalties += disjoint_penalty(
                theta[name], tensor, settings.l1_weight, settings.l2_weight
            )
        terms["loss_disjoint"] = torch.stack(penalties).sum()
        follows = len(helpers) > 0 and settings.consistency_weight > 0
        learns_from_images = settings.unlabelled_weight > 0 or follows
        return Losses(
            terms,
            logs={"kept": keep.float().mean()},
            learns=bool(supervised) or (learns_from_images and enough),
        )

    def after_step(
        self, net: nn.Module, batch: Batch, losses: Losses, state: list[Tensor]
    ) -> list[Tensor]:
        """Add the change of ψ to θ, so that σ is moved by its own gradient alone."""
        with torch.no_grad():
            psi = [parameter.detach() for parameter in psi_of(net).values()]
            theta = [parameter.detach() for parameter in theta_of(net).values()]
            torch._foreach_add_(theta, torch._foreach_sub(psi, state))
            return [tensor.clone() for tensor in psi]

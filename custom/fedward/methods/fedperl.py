"""FedPerl: sites that resemble each other teach each other.

Bdair, Navab, Albarqouni: *Semi-supervised federated peer learning for skin lesion classification*, MELBA 2022
(first at MICCAI 2021). The server describes each site's last model by the moments of its tensors (Sec. 2.3.1) and gives
every site the models most similar to its own, averaged into one anonymous peer (Alg. 1, eq. (6)). The site labels its
unlabelled images together with them (eq. (5), (7)) while staying close to their predictions (eq. (8)). Policies that
drop a peer again (Sec. 2.3.5) live in :mod:`fedward.methods.policies`.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from fedward.errors import ConfigError
from fedward.methods import fixmatch
from fedward.methods.aggregation import weighted_average
from fedward.methods.fedavg import FedAvg, FedAvgState, draw_participants
from fedward.methods.fedperl_settings import FedPerlSettings
from fedward.methods.fixmatch import FixMatchObjective
from fedward.methods.local import Objective, probabilities_in_evaluation_mode
from fedward.methods.policies import gated_similarity_policy, gated_validation_policy, validation_policy
from fedward.methods.workflow import Ask, Federation, Rounds, State, Work
from fedward.seeds import torch_generator

__all__ = [
    "anonymise",
    "consistency",
    "gated_similarity_policy",
    "gated_validation_policy",
    "layer_moments",
    "pseudo_label",
    "random_peers",
    "similarity",
    "top_peers",
    "validation_policy",
]


@torch.no_grad()
def layer_moments(state: State) -> Tensor:
    """Describe a model by the mean and the standard deviation of each of its tensors.

    ``F = (μ_1, σ_1, ..., μ_L, σ_L)``.

    Source: Bdair et al., MELBA 2022, Sec. 2.3.1.

    Args:
        state: a state_dict with at least one floating-point tensor that is not empty. Each tensor is read once, one at
            a time, so the state may be read lazily from disk.

    Returns:
        (2L,) float64: mean and biased standard deviation (divided by the number of elements) of the L floating-point
        tensors, by sorted name: the order in which a state happens to list its keys does not matter. BatchNorm
        statistics and the classifier count; integer and empty tensors are left out.

    Raises:
        ConfigError: nothing to describe.

    Edge cases:
        =====================  =====================================================
        one element, constant  standard deviation exactly 0 for one element
        NaN, infinity          propagate; :func:`similarity` refuses them
        =====================  =====================================================

    Deviates: the paper says per layer; the authors' code, followed here, takes every tensor of the state_dict. By
    default it appends the model's accuracy and loss on the server's validation set, which the paper does not mention
    and which would make peer learning depend on labelled data at the server: left out.
    """
    moments: list[Tensor] = []
    for key in sorted(state):
        tensor = state[key]
        if tensor.is_floating_point() and tensor.numel():
            deviation, mean = torch.std_mean(tensor.to(torch.float64), correction=0)
            moments += [mean, deviation]
    if not moments:
        raise ConfigError(
            "fedperl.layer_moments",
            expected="a state with floating-point tensors",
            found=f"{len(state)} tensors, none of them",
            remedy="Describe a model's state_dict.",
        )
    return torch.stack(moments)


@torch.no_grad()
def similarity(moments: Tensor, scale: Literal["minmax", "none"] = "minmax") -> Tensor:
    """Return the cosine similarity of models, from their moments.

    ``ω_mk = F̃_m · F̃_k / (‖F̃_m‖ ‖F̃_k‖)``; with "minmax", ``F̃_mj = (F_mj - min_k F_kj) / (max_k F_kj - min_k F_kj)``,
    or 1 for a feature that is equal in all models.

    Source: Bdair et al., MELBA 2022, Sec. 2.3.1; the scaling is that of the authors' code.

    Args:
        moments: (M, 2L) finite, one row of :func:`layer_moments` for each model, M and 2L >= 1.
        scale: "minmax" scales each feature to [0, 1] over the M models; "none" is the paper's text, where a few large
            BatchNorm variances decide and all similarities are close to 1.

    Returns:
        (M, M) float64, exactly symmetric, exactly 1 on the diagonal, in [0, 1] with "minmax", else in [-1, 1]. Equal
        models are equally similar to any other, to the last bit.

    Raises:
        ConfigError: not two-dimensional, empty, NaN or infinite (the error names the row), or an unknown scale.

    Edge cases:
        =========================  ==========================================================================
        M = 1                      [[1]]
        M = 2                      with "minmax" every feature is 0 or 1 or constant: too coarse for a gate
        equal models               1, also where their rows are all zero
        a row that is all zero     0 to every row that is not; with "minmax" it is the lowest in every feature
        =========================  ==========================================================================
    """
    features = _finite_rows(moments)
    if scale == "minmax":
        low, high = features.amin(dim=0), features.amax(dim=0)
        features = torch.where(high > low, (features - low) / (high - low), 1.0)
    elif scale != "none":
        raise _unknown("fedperl.similarity", '"minmax" or "none"', scale)
    norms = features.norm(dim=1, keepdim=True)
    directions = features / norms.where(norms > 0, 1.0)
    # Row by row: the blocks of a matrix product may round equal pairs differently, and so break ties by chance.
    cosine = torch.stack([(directions * row).sum(dim=1) for row in directions])
    zero = ~features.any(dim=1, keepdim=True)  # without a direction, but equal to each other
    return cosine.clamp(-1.0, 1.0).masked_fill(zero & zero.T, 1.0).fill_diagonal_(1.0)


def top_peers(similarity: Tensor, site: int, committee: int, seen: Collection[int]) -> list[int]:
    """Choose the sites most similar to one site.

    The ``T`` largest ``ω_mk`` over ``k != m`` among the sites that have trained.

    Source: Bdair et al., MELBA 2022, Alg. 1.

    Args:
        similarity: ω (M, M), finite where used.
        site: index m in [0, M).
        committee: T >= 0.
        seen: indices in [0, M) of the sites the server holds a model of, in any order; m itself may be among them.

    Returns:
        At most T distinct indices, never m, by falling similarity and, where equal, by rising index.

    Raises:
        ConfigError: a site outside the matrix, a negative T, a similarity that is NaN or infinite.

    Edge cases:
        ===============================  =====================================================
        fewer than T others seen         all of them
        nobody else seen, or T = 0       none: the site trains without a peer
        the site has not trained yet     its row means nothing: the workflow gives it no peer
        ===============================  =====================================================

    Deviates: in the authors' code unseen sites stay eligible, with similarity 0, and a site that has never trained gets
    random peers.
    """
    candidates = _candidates(site, committee, seen)
    for index in (site, *candidates):
        if index >= len(similarity):
            raise _bad_site("top_peers", index)
    row: list[float] = similarity[site].tolist()
    for index in candidates:
        if not abs(row[index]) < float("inf"):
            raise ConfigError(
                f"fedperl.top_peers, sites {site} and {index}",
                expected="a finite similarity",
                found=f"{row[index]}",
                remedy="Use a matrix that fedperl.similarity returned.",
            )
    return sorted(candidates, key=lambda index: (-row[index], index))[:committee]


def random_peers(site: int, committee: int, seen: Collection[int], generator: torch.Generator) -> list[int]:
    """Choose peers at random: the baseline of :func:`top_peers`.

    Source: Bdair et al., MELBA 2022, the "random peers" row of the results.

    Args:
        site: index m >= 0.
        committee: T >= 0.
        seen: indices of the sites the server holds a model of, in any order; m itself may be among them.
        generator: the only source of chance; one draw of a permutation is taken from it.

    Returns:
        min(T, others seen) distinct indices, never m, uniformly drawn, in the order drawn. Equal generators and
        equal sets give equal peers.

    Raises:
        ConfigError: a negative index or a negative T.

    Deviates: the authors' code draws T of all seen sites, skips the site itself if it was drawn, and so may return
    fewer than T although there are more.
    """
    candidates = _candidates(site, committee, seen)
    order: list[int] = torch.randperm(len(candidates), generator=generator, device=generator.device).tolist()
    return [candidates[position] for position in order[:committee]]


def anonymise(states: Sequence[State]) -> dict[str, Tensor]:
    """Average the peers' models into one, so that no site receives another site's model.

    ``φ_a = (1/|Ω|) Σ_{t in Ω} φ_t``.

    Source: Bdair et al., MELBA 2022, eq. (6), Alg. 1.

    Args:
        states: one or more state_dicts with equal keys, shapes and dtypes, possibly lazy (read tensor by tensor).

    Returns:
        A new state_dict; parameters and BatchNorm statistics averaged, integer tensors those of the first state.

    Raises:
        ConfigError: no state, or states that do not match.

    Edge cases:
        ==============  =====================================================================
        one peer        an exact copy of its model: nothing is anonymous about it
        no peer         refused: where nobody is left, the workflow sends no model
        order           irrelevant up to the last bit, integer tensors excepted
        ==============  =====================================================================

    The average is one of parameters, not of predictions: for a nonlinear net they differ.
    """
    return weighted_average(states, [1.0] * len(states))


def pseudo_label(
    local: Tensor, peers: Tensor, threshold: float, combine: Literal["mean", "sum"] = "mean"
) -> tuple[Tensor, Tensor]:
    """Label images together with the peers, and keep the labels the committee is sure of.

    ``q_i = (p_loc,i + Σ_t p_t,i) / (P + 1)``,  ``ŷ_i = argmax_c q_ic``,  ``keep_i = [max_c q_ic >= τ]``.

    Source: Bdair et al., MELBA 2022, eq. (5), and eq. (7) with one anonymous peer.

    Args:
        local: p_loc (N, K) floating point in [0, 1], the site's own probabilities on the weak view.
        peers: p_t (P, N, K) floating point in [0, 1], those of the P >= 0 peer models received.
        threshold: τ in [0, 1]; up to P + 1 for a sum.
        combine: "mean" compares the mean with τ, as the authors' code does; "sum" the sum, as the paper prints.

    Returns:
        labels (N,) int64 in [0, K), keep (N,) bool, as :func:`fedward.methods.fixmatch.pseudo_label`.

    Raises:
        ConfigError: shapes that do not belong together, a threshold out of range, or an unknown ``combine``.

    Edge cases:
        =======================  ==============================================================
        P = 0                    exactly FixMatch on ``local``
        equal peers and local    "mean" is FixMatch on ``local`` up to rounding
        NaN in any p_i           not kept: a broken peer cannot label
        =======================  ==============================================================

    Deviates: eq. (5) and (7) print the sum of T + 1 probabilities compared with τ. Its maximum is at least (T + 1) / K,
    so that τ = 0.6 would pass nearly always; the authors' code divides by T + 1. The sum stays available.
    """
    _require_peers("fedperl.pseudo_label", local, peers)
    models = len(peers) + 1
    scores = torch.cat([local.unsqueeze(0), peers]).mean(dim=0)
    if combine == "sum":
        return fixmatch.pseudo_label(scores, threshold / models)
    if combine != "mean":
        raise _unknown("fedperl.pseudo_label", '"mean" or "sum"', combine)
    return fixmatch.pseudo_label(scores, threshold)


def consistency(local: Tensor, peers: Tensor) -> Tensor:
    """Return the mean squared distance between the site's predictions and its peers'.

    ``L_con = (1/P) Σ_t MSE(p_t, p_loc)`` with the mean over images and classes.

    Source: Bdair et al., MELBA 2022, eq. (8).

    Args:
        local: p_loc (N, K) floating point, the site's probabilities on the weak view, with gradient.
        peers: p_t (P, N, K) floating point, P >= 0.

    Returns:
        Scalar in [0, 1] for probabilities. The gradient reaches ``local`` only, never ``peers``.

    Raises:
        ConfigError: shapes that do not belong together.

    Edge cases:
        =====================  =================================================
        P = 0, or N = 0        0 with a gradient of 0
        peers equal to local   0
        NaN, infinity          the loss is not finite: a broken net is noticed
        =====================  =================================================

    Deviates: the authors' code detaches both sides, so that the term is logged but never trains the net, and skips it
    where no pseudo label is kept. Eq. (8) is minimised over the local weights, which is done here, on every image.
    """
    _require_peers("fedperl.consistency", local, peers)
    return (local - peers.detach()).square().sum() / max(peers.numel(), 1)


class FedPerlObjective(FixMatchObjective):
    """L_sup + beta L_pl + gamma L_con; without peers exactly FixMatch."""

    settings: FedPerlSettings

    def teach(self, net: nn.Module, weak: Tensor, peers: Tensor | None) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Label together with the peers, and stay close to them (eq. (5), (7), (8))."""
        weighs = self.settings.consistency_weight > 0 and not self.settings.detach_consistency
        follows_peers = peers is not None and weighs  # else the weak views need no backward pass
        with nullcontext() if follows_peers else torch.no_grad():
            if self.settings.batch_statistics_for_labels:
                local = torch.softmax(net(weak), dim=1)
            else:
                local = probabilities_in_evaluation_mode(net, weak)
        committee = peers if peers is not None else local.new_empty((0, *local.shape))
        labels, keep = pseudo_label(local, committee, self.settings.threshold, self.settings.combine)
        if peers is None:
            return labels, keep, {}
        return labels, keep, {"loss_consistency": self.settings.consistency_weight * consistency(local, peers)}


@dataclass
class FedPerlState(FedAvgState):
    """The server's state between two rounds; sites' models themselves are the federation's."""

    moments: Mapping[str, Tensor] = field(default_factory=dict)
    """Layer moments (2L,) of each site's last model; a site is seen once it stands here."""
    accuracy: dict[str, float] = field(default_factory=dict)
    """Accuracy of each site's last model on the server's validation images, if a policy asks for it."""


class FedPerl(FedAvg):
    """Peer learning with or without anonymisation (Alg. 1).

    What happens with fewer replies than asked for: as SSFL; and

    ==============================  =================================================================
    a peer has left                 its last model still teaches: models are the server's
    a site never trained            it gets no peer and is nobody's peer
    one peer left, anonymised       no peer this round, unless ``allow_single_peer``
    a policy leaves none            the site trains without peers, as in SSFL
    ==============================  =================================================================
    """

    settings_type = FedPerlSettings
    state_type = FedPerlState
    settings: FedPerlSettings

    @property
    def wants_validation(self) -> bool:  # type: ignore[override]
        """Whether the server needs validation images of its own."""
        return self.settings.policy in ("validation", "gated_validation")

    @property
    def most_peers(self) -> int:  # type: ignore[override]
        """The committee's mean, or each of its members."""
        return min(1, self.settings.committee) if self.settings.anonymise else self.settings.committee

    @property
    def lone_peers(self) -> str:  # type: ignore[override]
        """Peers that are no mean of two sites or more."""
        if not self.settings.committee:
            return ""
        if not self.settings.anonymise:
            return "anonymise = false"
        return "allow_single_peer = true" if self.settings.allow_single_peer else ""

    @property
    def needs_single_models(self) -> str:
        """Peers are other sites' models, chosen by their similarity."""
        return "peers are made of single sites' models and chosen by them; ssfl is the same without peers"

    def objective(self) -> Objective:
        """Return the local objective."""
        return FedPerlObjective(self.settings)

    def rounds(self, state: FedAvgState, federation: Federation) -> Rounds:
        """Bdair et al., MELBA 2022, Algorithm 1."""
        assert isinstance(state, FedPerlState)
        while state.round < self.settings.rounds:
            round_ = state.round + 1
            sites = draw_participants(federation.sites, self.settings.participants, federation.seed, round_)
            peers, record = self.choose_peers(sites, round_, state, federation)
            # No name for the work: its models, one or more a site, are freed before the next round makes new ones.
            replies = yield Ask(
                round_,
                state.model,
                {site: Work(models=self.peer_models(peers[site], federation)) for site in sites},
                record,
            )
            state.model = self.mean(replies, state.model)
            for reply in replies:
                if not reply.steps:
                    continue
                state.moments = {**state.moments, reply.site: layer_moments(reply.state)}
                if federation.validate is not None:
                    state.accuracy[reply.site] = federation.validate(reply.state)
            state.round = round_

    def choose_peers(
        self, sites: Sequence[str], round_: int, state: FedPerlState, federation: Federation
    ) -> tuple[dict[str, list[str]], dict[str, Any]]:
        """Return each site's peers Omega by name, and a row for the log of peers (none during the warm-up)."""
        seen = sorted(state.moments)
        if round_ <= self.settings.warm_up or not seen:
            return {site: [] for site in sites}, {}
        matrix = similarity(torch.stack([state.moments[name] for name in seen]), self.settings.similarity_scale)
        accuracy = {seen.index(site): value for site, value in state.accuracy.items()}
        chosen: dict[str, list[str]] = {site: [] for site in sites}
        for site in sorted(set(sites) & set(seen)):
            generator = torch_generator(federation.seed, "peers", round_, site)
            peers = self._committee(seen.index(site), matrix, accuracy, generator)
            lone = self.settings.anonymise and len(peers) == 1 and not self.settings.allow_single_peer
            chosen[site] = [] if lone else [seen[peer] for peer in peers]
        row = {
            "sites": seen,
            "similarity": matrix.tolist(),
            "chosen": chosen,
            "anonymised": self.settings.anonymise,
        }
        return chosen, {"peers": row}

    def peer_models(self, peers: Sequence[str], federation: Federation) -> dict[str, State]:
        """Return what is sent: one anonymous model, or each peer's own."""
        models = [federation.models[peer] for peer in peers]
        if models and self.settings.anonymise:
            models = [anonymise(models)]
        return {f"peer{index}": model for index, model in enumerate(models)}

    def _committee(
        self, site: int, matrix: Tensor, accuracy: Mapping[int, float], generator: torch.Generator
    ) -> list[int]:
        choice, everyone = self.settings, range(len(matrix))
        if choice.peers == "random":
            peers = random_peers(site, choice.committee, everyone, generator)
        else:
            peers = top_peers(matrix, site, choice.committee, everyone)
        if choice.policy == "validation":
            return validation_policy(peers, accuracy, site)
        if choice.policy == "gated_validation":
            return gated_validation_policy(peers, accuracy, choice.gate)
        if choice.policy == "gated_similarity":
            # Min-max scaled features of fewer than three sites are 0, 1 or constant: no gate can judge them.
            return gated_similarity_policy(peers, matrix, site, choice.gate) if len(matrix) > 2 else []
        return peers


def _finite_rows(moments: Tensor) -> Tensor:
    """Check the moments and return them as float64."""
    if moments.dim() != 2 or not moments.numel():
        where, found = "fedperl.similarity", f"shape {tuple(moments.shape)}"
    elif broken := (~moments.isfinite().all(dim=1)).nonzero().flatten().tolist():
        where, found = f"fedperl.similarity, row {broken[0]}", "NaN or infinity"
    else:
        return moments.to(torch.float64)
    remedy = "Stack layer_moments of accepted models, one row for each."
    raise ConfigError(where, expected="finite moments (models, features)", found=found, remedy=remedy)


def _candidates(site: int, committee: int, seen: Collection[int]) -> list[int]:
    """Return the other sites seen, in rising order: a set has no order of its own."""
    if committee < 0:
        raise ConfigError(
            f"fedperl, peers of site {site}", expected="a committee >= 0", found=f"{committee}", remedy="Set T."
        )
    for index in (site, *seen):
        if isinstance(index, bool) or index < 0:  # a mask of bools would pass for sites 0 and 1
            raise _bad_site("peers", index)
    return sorted(set(seen) - {site})


def _bad_site(where: str, index: int) -> ConfigError:
    remedy = "Pass the indices of the sites, as they stand in the similarity matrix."
    return ConfigError(f"fedperl.{where}", expected="the index of a site", found=f"{index}", remedy=remedy)


def _unknown(where: str, expected: str, found: str) -> ConfigError:
    return ConfigError(where, expected=expected, found=repr(found), remedy="Choose one of them.")


def _require_peers(where: str, local: Tensor, peers: Tensor) -> None:
    if local.dim() != 2 or peers.shape[1:] != local.shape:
        raise ConfigError(
            where,
            expected="probabilities (N, K) and peers (P, N, K)",
            found=f"{tuple(local.shape)} and {tuple(peers.shape)}",
            remedy="Stack one prediction of the same images for each peer, or an empty (0, N, K).",
        )

"""The choice of peers: other sites whose models help a site, by how similar the models are.

Bdair et al., MELBA 2022, Alg. 1 (FedPerl). FedMatch chooses its helpers in the same way.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from fedward.errors import ConfigError
from fedward.methods.anonymous_peers import PeerRule
from fedward.methods.peer_record import LOGGED_NEIGHBOURS, PeerRecord
from fedward.methods.peer_state import PeerState


@dataclass(frozen=True)
class Candidates:
    """The M sites that have a model, as one of them sees them when its peers are chosen.

    Sites are indices in [0, M), in the order of :attr:`PeerState.seen`.
    """

    name: str
    """Name of the site that peers are chosen for."""
    site: int
    """Its index."""
    similarities: Tensor
    """(M,), how similar its model is to each of the M models."""
    closest: Sequence[int]
    """The other sites most similar to it, in falling order: as many as it may have peers, or more.
    Where there are fewer sites, all of them."""


Similarity: TypeAlias = Callable[[Tensor, Sequence[int]], Tensor]
"""From features (M, F) and the indices of R of these models to their similarities (R, M)."""


def choose_peers(
    sites: Sequence[str],
    state: PeerState,
    similarity: Similarity,
    rule: PeerRule,
    choose: Callable[[Candidates], Sequence[int]],
) -> tuple[dict[str, list[str]], dict[str, Any]]:
    """Return the peers of each participant of a round, and :attr:`Exchange.decisions` about them.

    A site that has no model to compare has no peers.

    Args:
        sites: the participants.
        state: with the features of one site or more.
        similarity: how similar models are, by their features.
        rule: what a site may be sent of its peers' models.
        choose: chooses the peers of one site, by index.
    """
    peers_of_sites: dict[str, list[str]] = {site: [] for site in sites}
    participants = state.indices_of(sites)
    features = state.feature_rows
    similarities = similarity(features, list(participants.values()))  # (R, M)
    record = PeerRecord(state.seen, features.shape[1], rule.anonymise)
    for (name, site), row in zip(participants.items(), similarities, strict=True):
        closest = _closest(row, site, max(rule.most, LOGGED_NEIGHBOURS))
        chosen = choose(Candidates(name, site, row, closest))
        peers_of_sites[name] = rule.allowed([state.seen[peer] for peer in chosen])
        record.add(name, closest, row)
    return peers_of_sites, {"peers": record.row(peers_of_sites)}


def _closest(similarities: Tensor, site: int, count: int) -> list[int]:
    """Return :func:`top_peers` of a site among all other sites, without sorting them all."""
    # One more than ``count``, because the site is in its own row.
    largest_values = similarities.topk(min(count + 1, len(similarities))).values
    # All sites as similar as the last of these are candidates, because ``topk`` breaks ties as it
    # likes, but :func:`top_peers` by index.
    lowest = largest_values[-1]
    candidates = (similarities >= lowest).nonzero().flatten().tolist()
    return top_peers(similarities, site, count, candidates)


def top_peers(similarity: Tensor, site: int, committee: int, seen: Collection[int]) -> list[int]:
    """Choose the sites most similar to one site.

    They have the ``T`` largest ``ω_mk``, ``k != m``, among the sites k that have trained.

    Source: Bdair et al., MELBA 2022, Alg. 1.

    Args:
        similarity: ω_m (M,), the site's similarity to each site, finite for those in ``seen``.
        site: index m in [0, M).
        committee: T >= 0, the number of peers wanted.
        seen: indices in [0, M) of the sites that the server holds a model of; m may be among them.

    Returns:
        At most T distinct indices, never m, by falling similarity and, where equal, by rising
        index.

    Raises ConfigError: a site outside the row, a negative T, a similarity that is NaN or infinite.

    Edge cases: If fewer than T other sites were seen, all of them are returned. If none was seen,
    or T = 0, there is no peer, and the site trains without one.

    Deviates: in the authors' code unseen sites stay eligible, with similarity 0, and a site that
    has never trained gets random peers.
    """
    candidates = _candidates(site, committee, seen)
    largest_index = max([site, *candidates])
    if largest_index >= len(similarity):
        raise _not_a_site(largest_index)
    similarities = similarity[candidates]
    not_finite = (~similarities.isfinite()).nonzero().flatten().tolist()
    if not_finite:
        first = not_finite[0]
        raise ConfigError(
            f"peers, sites {site} and {candidates[first]}",
            "Compare models whose features are finite.",
            expected="a finite similarity",
            found=f"{similarities[first]}",
        )
    # Stable, so that equal similarities stay in the rising order of the candidates.
    order = similarities.argsort(descending=True, stable=True)[:committee]
    return [candidates[position] for position in order.tolist()]


def random_peers(
    site: int, committee: int, seen: Collection[int], generator: torch.Generator
) -> list[int]:
    """Choose peers at random: the baseline of :func:`top_peers`.

    Source: Bdair et al., MELBA 2022, the "random peers" row of the results.

    Args:
        site: index m >= 0.
        committee: T >= 0, the number of peers wanted.
        seen: indices of the sites that the server holds a model of; m may be among them.
        generator: the only source of randomness.

    Returns:
        Distinct indices, never m, drawn uniformly, in the order drawn: T of them, or as many as
        there are other sites in ``seen``.

    Raises ConfigError: a negative index or a negative T.

    Deviates: the authors' code draws T of all seen sites, the site itself among them, and so may
    return fewer than T.
    """
    candidates = _candidates(site, committee, seen)
    order: list[int] = torch.randperm(
        len(candidates), generator=generator, device=generator.device
    ).tolist()
    return [candidates[position] for position in order[:committee]]


def _candidates(site: int, committee: int, seen: Collection[int]) -> list[int]:
    """Return the other sites in ``seen`` in rising order, because ``seen`` may be a set."""
    if committee < 0:
        raise ConfigError(
            f"peers of site {site}",
            "Set T.",
            expected="a committee >= 0",
            found=f"{committee}",
        )
    for index in (site, *seen):
        # A mask of bools would otherwise be read as sites 0 and 1.
        if isinstance(index, bool) or index < 0:
            raise _not_a_site(index)
    return sorted(set(seen) - {site})


def _not_a_site(index: int) -> ConfigError:
    return ConfigError(
        "peers",
        "Pass indices of models with a known similarity.",
        expected="the index of a site",
        found=f"{index}",
    )

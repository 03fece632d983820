"""FedPerl's dynamic policies: which of the chosen peers may teach a site in this round.

Bdair et al., MELBA 2022, Sec. 2.3.5. Each policy filters peers, which are site indices in the order
of choice; it may leave none. The authors' released code holds none of the policies, so these follow
the paper's text.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from torch import Tensor

from fedward.errors import ConfigError

Accuracy: TypeAlias = Mapping[int, float]
"""Accuracy in [0, 1] of each site's last model on the server's validation images, by site index."""


def validation_policy(peers: Sequence[int], accuracy: Accuracy, site: int) -> list[int]:
    """Keep the peers that are at least as accurate as the site itself.

    ``Ω = {n in peers : V_acc(C_n) >= V_acc(C_m)}``.

    Source: Bdair et al., MELBA 2022, Sec. 2.3.5.

    Args:
        peers: indices n of the peers.
        accuracy: V_acc of the site and of all its peers at least.
        site: index m.

    Raises ConfigError: the accuracy of the site or of a peer is missing.

    Edge cases: equal accuracy: kept. NaN of a peer: not kept. NaN of the site: nothing is kept.
    """
    site_accuracy = _accuracy_of(site, accuracy)
    return [peer for peer in peers if _accuracy_of(peer, accuracy) >= site_accuracy]


def gated_validation_policy(
    peers: Sequence[int], accuracy: Accuracy, threshold: float
) -> list[int]:
    """Keep the peers that are accurate enough.

    ``Ω = {n in peers : V_acc(C_n) >= ρ}``.

    Source: Bdair et al., MELBA 2022, Sec. 2.3.5 (ρ of 0.75, 0.85 and 0.95).

    Args:
        peers: indices n of the peers.
        accuracy: V_acc of all peers at least.
        threshold: ρ in [0, 1].

    Raises ConfigError: the accuracy of a peer is missing.

    Edge cases: exactly ρ: kept. NaN: not kept.
    """
    return [peer for peer in peers if _accuracy_of(peer, accuracy) >= threshold]


def gated_similarity_policy(
    peers: Sequence[int], similarity: Tensor, site: int, threshold: float
) -> list[int]:
    """Keep the peers that are similar enough to the site.

    ``Ω = {n in peers : ω_mn >= ρ}``.

    Source: Bdair et al., MELBA 2022, Sec. 2.3.5 (ρ of 0.75, 0.85 and 0.95).

    Args:
        peers: indices n of the peers, in [0, M).
        similarity: ω_m (M,) in [-1, 1], the site's row of
            :func:`fedward.methods.fedperl.similarity.similarity`.
        site: index m in [0, M).
        threshold: ρ in [-1, 1].

    Raises ConfigError: the site or a peer is outside the row.

    Edge cases: exactly ρ: kept. NaN: not kept. Fewer than three sites: min-max scaled similarities
    are degenerate, and the workflow keeps no peer in place of calling this.
    """
    for index in (site, *peers):
        if not 0 <= index < len(similarity):
            raise _unknown_site("gated_similarity_policy", index, f"{len(similarity)} sites")
    return [peer for peer in peers if similarity[peer].item() >= threshold]


def _accuracy_of(index: int, accuracy: Accuracy) -> float:
    if index not in accuracy:
        raise _unknown_site("validation policy", index, f"accuracies of {sorted(accuracy)}")
    return accuracy[index]


def _unknown_site(policy: str, index: int, found: str) -> ConfigError:
    return ConfigError(
        f"fedperl {policy}, site {index}",
        "Filter only peers that the server holds a model of.",
        expected="a known site",
        found=found,
    )

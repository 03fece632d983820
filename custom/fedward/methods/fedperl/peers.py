"""FedPerl's choice of peers (Bdair et al., MELBA 2022, Alg. 1)."""

from collections.abc import Collection

import torch
from torch import Tensor

from fedward.errors import ConfigError


def top_peers(similarity: Tensor, site: int, committee: int, seen: Collection[int]) -> list[int]:
    """Choose the sites most similar to one site.

    They have the ``T`` largest ``ω_mk``, ``k != m``, among the sites k that have trained.

    Source: Bdair et al., MELBA 2022, Alg. 1.

    Args:
        similarity: ω_m (M,), the site's row of :func:`fedward.methods.fedperl.similarity`, finite
            for the sites in ``seen``.
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
        raise _not_a_site("top_peers", largest_index)
    similarities = similarity[candidates]
    not_finite = (~similarities.isfinite()).nonzero().flatten().tolist()
    if not_finite:
        first = not_finite[0]
        raise ConfigError(
            f"fedperl.top_peers, sites {site} and {candidates[first]}",
            "Use a row of fedperl.similarity.",
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
            f"fedperl, peers of site {site}",
            "Set T.",
            expected="a committee >= 0",
            found=f"{committee}",
        )
    for index in (site, *seen):
        # A mask of bools would otherwise be read as sites 0 and 1.
        if isinstance(index, bool) or index < 0:
            raise _not_a_site("peers", index)
    return sorted(set(seen) - {site})


def _not_a_site(function: str, index: int) -> ConfigError:
    return ConfigError(
        f"fedperl.{function}",
        "Pass indices of models with a known similarity.",
        expected="the index of a site",
        found=f"{index}",
    )

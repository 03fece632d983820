"""FedPerl's choice of peers, and what is sent of them (Bdair et al., MELBA 2022, Alg. 1, eq. (6))."""

from collections.abc import Collection, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from fedward.errors import ConfigError
from fedward.methods.aggregation import require_keys, weighted_average
from fedward.methods.workflow import State


def top_peers(similarity: Tensor, site: int, committee: int, seen: Collection[int]) -> list[int]:
    """Choose the sites most similar to one site.

    The ``T`` largest ``ω_mk`` over ``k != m`` among the sites that have trained.

    Source: Bdair et al., MELBA 2022, Alg. 1.

    Args:
        similarity: ω_m (M,), the site's row of :func:`fedward.methods.fedperl.similarity`, finite
            where used.
        site: index m in [0, M).
        committee: T >= 0.
        seen: indices in [0, M) of the sites the server holds a model of; m itself may be among
            them.

    Returns:
        At most T distinct indices, never m, by falling similarity and, where equal, by rising
        index.

    Raises ConfigError: a site outside the row, a negative T, a similarity that is NaN or infinite.

    Edge cases: fewer than T others seen: all of them. nobody else seen, or T = 0: none: the site
    trains without a peer.

    Deviates: in the authors' code unseen sites stay eligible, with similarity 0, and a site that
    has never trained gets random peers.
    """
    candidates = _candidates(site, committee, seen)
    largest = max([site, *candidates])
    if largest >= len(similarity):
        raise _bad_site("top_peers", largest)
    values = similarity[candidates]
    broken = (~values.isfinite()).nonzero().flatten().tolist()
    if broken:
        where = f"fedperl.top_peers, sites {site} and {candidates[broken[0]]}"
        remedy = "Use a row of fedperl.similarity."
        found = f"{values[broken[0]]}"
        raise ConfigError(where, expected="a finite similarity", found=found, remedy=remedy)
    order: list[int] = values.argsort(descending=True, stable=True)[:committee].tolist()
    return [candidates[position] for position in order]


def random_peers(
    site: int, committee: int, seen: Collection[int], generator: torch.Generator
) -> list[int]:
    """Choose peers at random: the baseline of :func:`top_peers`.

    Source: Bdair et al., MELBA 2022, the "random peers" row of the results.

    Args:
        site: index m >= 0.
        committee: T >= 0.
        seen: indices of the sites the server holds a model of; m itself may be among them.
        generator: the only source of chance.

    Returns:
        min(T, others seen) distinct indices, never m, uniformly drawn, in the order drawn.

    Raises ConfigError: a negative index or a negative T.

    Deviates: the authors' code draws T of all seen sites, the site itself among them, and so may
    return fewer than T.
    """
    candidates = _candidates(site, committee, seen)
    order: list[int] = torch.randperm(
        len(candidates), generator=generator, device=generator.device
    ).tolist()
    return [candidates[position] for position in order[:committee]]


class _Mean(Mapping[str, Tensor]):
    """The mean of models, each tensor computed when it is read: one for every site would fill the
    server's memory.
    """

    def __init__(self, states: Sequence[State]) -> None:
        self._states = states

    def __getitem__(self, key: str) -> Tensor:
        return weighted_average(
            [{key: state[key]} for state in self._states], [1.0] * len(self._states)
        )[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._states[0])

    def __len__(self) -> int:
        return len(self._states[0])


def anonymise(states: Sequence[State]) -> State:
    """Average the peers' models into one, so that no site receives another site's model.

    ``φ_a = (1/|Ω|) Σ_{t in Ω} φ_t``.
    Source: Bdair et al., MELBA 2022, eq. (6), Alg. 1.

    Args:
        states: one or more state_dicts with equal keys, shapes and dtypes, possibly lazy (read
            tensor by tensor).

    Returns:
        A state_dict that reads and averages a tensor whenever it is asked for; parameters and
        BatchNorm statistics averaged, integer tensors those of the first state.

    Raises ConfigError: no state, or states with other keys; when a tensor is read, other shapes or
    dtypes.

    Edge cases: one peer: an exact copy of its model: nothing is anonymous about it. no peer:
    refused: where nobody is left, the workflow sends no model. order: irrelevant up to the last
    bit, integer tensors excepted.
    """
    where = "fedperl.anonymise"
    if not states:
        raise ConfigError(
            where, expected="one or more states", found="0 states", remedy="Send no model instead."
        )
    require_keys(where, states)
    return _Mean(states)


def _candidates(site: int, committee: int, seen: Collection[int]) -> list[int]:
    """Return the other sites seen, in rising order: a set has no order of its own."""
    if committee < 0:
        where = f"fedperl, peers of site {site}"
        raise ConfigError(where, expected="a committee >= 0", found=f"{committee}", remedy="Set T.")
    for index in (site, *seen):
        if isinstance(index, bool) or index < 0:  # a mask of bools would pass for sites 0 and 1
            raise _bad_site("peers", index)
    return sorted(set(seen) - {site})


def _bad_site(where: str, index: int) -> ConfigError:
    remedy = "Pass indices of models with a known similarity."
    return ConfigError(
        f"fedperl.{where}", expected="the index of a site", found=f"{index}", remedy=remedy
    )

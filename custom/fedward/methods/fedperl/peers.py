"""FedPerl's choice of peers, and the model that is sent in their place.

Bdair et al., MELBA 2022, Alg. 1, eq. (6).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from fedward.errors import ConfigError
from fedward.methods.averages import weighted_average
from fedward.methods.model_checks import require_keys
from fedward.model_state import State


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


class _MeanOfModels(Mapping[str, Tensor]):
    """The mean of models, each tensor of which is computed when it is read.

    The means of all sites, if computed in advance, would fill the server's memory.
    """

    def __init__(self, states: Sequence[State]) -> None:
        self._states = states

    def __getitem__(self, name: str) -> Tensor:
        # Models of this one tensor, because weighted_average takes models.
        parts = [{name: state[name]} for state in self._states]
        return weighted_average(parts, [1.0] * len(parts))[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._states[0])

    def __len__(self) -> int:
        return len(self._states[0])


def anonymise(states: Sequence[State]) -> State:
    """Average the peers' models into one, so that no site receives another site's model.

    ``φ_a = (1/|Ω|) Σ_{t in Ω} φ_t``.

    Source: Bdair et al., MELBA 2022, eq. (6), Alg. 1.

    Args:
        states: one or more state_dicts with equal keys, shapes and dtypes. They may be lazy, read
            tensor by tensor.

    Returns:
        A state_dict that reads and averages a tensor whenever it is asked for. Parameters and
        BatchNorm statistics are averaged, integer tensors are those of the first state.

    Raises ConfigError: no state, or states with different keys; when a tensor is read, different
    shapes or dtypes.

    Edge cases: For one peer the result is an exact copy of its model, which is not anonymous. No
    peer is an error; where no peer is left, the workflow sends no model. The order of the peers
    may change the last bit of the mean, and decides the integer tensors.
    """
    if not states:
        raise ConfigError(
            "fedperl.anonymise",
            "Send no model instead.",
            expected="one or more states",
            found="0 states",
        )
    require_keys("fedperl.anonymise", states)
    return _MeanOfModels(states)


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

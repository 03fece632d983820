"""Checks of models and weights before they are averaged or compared.

Every error names the function that was called, as ``where``, and the state and key at fault.
"""

import math
from collections.abc import Sequence

from torch import Tensor

from fedward.errors import ConfigError
from fedward.model_state import State


def require_weights(where: str, states: Sequence[State], weights: Sequence[float]) -> None:
    """Raise ConfigError unless there is one usable weight for each of one or more states.

    Each weight must be finite and >= 0; their sum must be finite and above 0.
    """
    remedy = "Average only replies that were accepted, weighted by what they hold."
    if not states or len(states) != len(weights):
        raise ConfigError(
            where,
            remedy,
            expected="one or more states and one weight for each",
            found=f"{len(states)} states and {len(weights)} weights",
        )
    for index, weight in enumerate(weights):
        if not 0 <= weight < math.inf:
            raise ConfigError(
                f"{where}, weight {index}", remedy, expected="finite and >= 0", found=f"{weight}"
            )
    total = sum(weights)
    if not 0 < total < math.inf:
        raise ConfigError(where, remedy, expected="a finite sum of weights > 0", found=f"{total}")


def require_keys(where: str, states: Sequence[State]) -> None:
    """Raise ConfigError unless all states have the keys of the first, in any order."""
    for index, state in enumerate(states):
        differing_keys = set(states[0]).symmetric_difference(state)
        if differing_keys:
            raise _mismatch(
                where,
                index,
                min(differing_keys),
                expected="the keys of state 0",
                found="a missing or an additional key",
            )


def require_like(where: str, first: Tensor, tensor: Tensor, index: int, key: str) -> None:
    """Raise ConfigError unless a tensor has the shape and dtype of the first state's.

    Args:
        where: the function that was called.
        first: the tensor of state 0.
        tensor: the tensor to check.
        index: number of the state that ``tensor`` is of.
        key: name of the tensor in its state.
    """
    if tensor.shape != first.shape or tensor.dtype != first.dtype:
        raise _mismatch(
            where,
            index,
            key,
            expected=f"{first.dtype} of shape {tuple(first.shape)}",
            found=f"{tensor.dtype} of shape {tuple(tensor.shape)}",
        )


def _mismatch(where: str, index: int, key: str, expected: str, found: str) -> ConfigError:
    return ConfigError(
        f"{where}, state {index}, key {key!r}",
        "Average states of one architecture only.",
        expected=expected,
        found=found,
    )

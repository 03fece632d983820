"""What a site is sent of its peers' models: each model, or only their mean.

Peers are the other sites that FedPerl chooses for a site. FedMatch calls them helpers.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from fedward.methods.averages import weighted_average
from fedward.methods.model_checks import require_keys
from fedward.model_state import State


@dataclass(frozen=True)
class PeerRule:
    """What a site may be sent of the models of its peers."""

    most: int
    """Largest number of peers of a site, >= 0."""
    anonymise: bool
    """Whether the mean of the peers' models is sent in place of the models."""

    @property
    def most_models(self) -> int:
        """Largest number of models that a site is sent."""
        return min(1, self.most) if self.anonymise else self.most

    @property
    def lone_peers(self) -> str:
        """The setting that lets a site receive a single site's model; empty if none does."""
        return "anonymise = false" if self.most and not self.anonymise else ""

    def allowed(self, peers: Sequence[str]) -> list[str]:
        """Return the peers given, or an empty list where a single one would not be anonymous."""
        is_lone_peer = self.anonymise and len(peers) == 1
        return [] if is_lone_peer else list(peers)

    def models_sent(self, models: Sequence[State]) -> dict[str, State]:
        """Return the models to send to a site: the mean of its peers' models, or each of them.

        Returns:
            Role -> model, with the roles ``peer0``, ``peer1`` and so on.
        """
        sent = [anonymise(models)] if models and self.anonymise else models
        return {f"peer{number}": model for number, model in enumerate(sent)}


class _MeanOfModels(Mapping[str, Tensor]):
    """The mean of several models, which computes each tensor when it is read.

    The means for all sites, if computed in advance, would fill the server's memory.
    """

    def __init__(self, states: Sequence[State]) -> None:
        self._states = states

    def __getitem__(self, name: str) -> Tensor:
        # weighted_average takes whole models, so that each is reduced to this one tensor.
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
        A state_dict that averages a tensor each time that it is read. Parameters and BatchNorm
        statistics are averaged, and integer tensors are those of the first state.

    Raises ConfigError: states with different keys; or, when a tensor is read, states
    with different shapes or dtypes.

    Edge cases: For one peer the result is an exact copy of its model, which is not anonymous. A
    site without peers must be sent no model instead. The order of the peers
    may change the last bit of the mean, and decides the integer tensors.
    """
    require_keys("anonymise", states)
    return _MeanOfModels(states)

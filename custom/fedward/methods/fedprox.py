"""FedProx: supervised training that stays close to the model that a site received.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: *Federated optimization in heterogeneous networks*,
MLSys 2020.
"""

from collections.abc import Sequence

from pydantic import Field

from fedward.methods.algorithm import Algorithm
from fedward.methods.groups import (
    SUPERVISED,
    GroupedState,
    Groups,
    WFedAvgSettings,
    group_requirements,
)
from fedward.methods.local import Phase
from fedward.methods.proximal import LOSS, Proximal
from fedward.methods.schedule import rate_of_round
from fedward.methods.site_weights import images_of_group
from fedward.methods.supervised import Supervised
from fedward.methods.workflow import Federation, Rounds


class FedProxSettings(WFedAvgSettings):
    """Settings of FedProx. Sites are weighted by their images, as in federated averaging."""

    proximal_weight: float = Field(0.01, ge=0.0)
    """μ, weight of the proximal term. Paper: the best of 0.001, 0.01, 0.1 and 1."""
    distance_scale: float = Field(0.0, ge=0.0)
    """λ_c of :func:`fedward.methods.distances.distance_weights`.

    Paper: 0, as sites are weighted by their images alone."""

    @property
    def pull(self) -> float:
        """μ; see :attr:`fedward.methods.settings.Settings.pull`."""
        return self.proximal_weight


class FedProx(Algorithm[GroupedState]):
    """Federated averaging with a proximal term.

    A site k minimises ``F_k(w) + μ/2 ‖w - w_t‖²``, starting from the global model w_t: its
    cross-entropy and the term of :class:`~fedward.methods.proximal.Proximal`. The server averages
    the sites' models by their images.

    Source: Li et al., MLSys 2020, eq. (2) and Algorithm 2.

    Rounds are those of :class:`~fedward.methods.groups.Groups`, of which only the group with labels
    is ever asked: a site without labels has no F_k. See there for fewer replies than asked for.

    Deviates: the paper also averages the unfinished work of slow sites. Here a site that does not
    finish its round in time counts as failed.
    """

    settings_type = FedProxSettings
    state_type = GroupedState

    def __init__(self, settings: FedProxSettings) -> None:
        self.settings = settings
        self.weight = images_of_group
        losses = frozenset({"loss_supervised", LOSS})
        self.requirements = group_requirements(settings, losses)
        self._groups = Groups(settings)

    def phases(self, task: str, round_: int, labelled: int) -> Sequence[Phase]:
        """Return one phase with the proximal term, or none, as a site without labels declines."""
        if task != SUPERVISED or not labelled:
            return []
        rate = rate_of_round(self.settings.learning_rate, round_, self.settings)
        return [Phase(Proximal(Supervised(), self.settings.proximal_weight), rate)]

    def rounds(self, state: GroupedState, federation: Federation) -> Rounds:
        """Train the labelled sites in every round."""
        return self._groups.rounds(state, federation, self._groups.supervised_round)

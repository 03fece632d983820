"""FedProx: supervised training that stays close to the model that a site received.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: *Federated optimization in heterogeneous networks*,
MLSys 2020.
"""

from pydantic import Field

from fedward.methods.groups import group_requirements
from fedward.methods.proximal import LOSS, Proximal
from fedward.methods.supervised import Supervised
from fedward.methods.wfedavg import WFedAvg, WFedAvgSettings


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


class FedProx(WFedAvg):
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

    def __init__(self, settings: FedProxSettings) -> None:
        super().__init__(settings)
        self.objective = Proximal(Supervised(), settings.proximal_weight)
        losses = frozenset({"loss_supervised", LOSS})
        self.requirements = group_requirements(settings, losses)

"""Distance-weighted federated averaging over sites that have all their labels, or none.

Liang, Lin, Fu, Zhu, Li: *RSCFed*, CVPR 2022, eq. (5)-(7), as used by IsoFed (Saha et al., MICCAI
2023, eq. (2)-(3)). A site's own file says whether it has labels. The server learns it from the
site's first answer.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from fedward.methods.algorithm import Algorithm
from fedward.methods.groups import (
    SUPERVISED,
    GroupedState,
    Groups,
    GroupSettings,
    group_requirements,
)
from fedward.methods.local import Objective, Phase
from fedward.methods.schedule import rate_of_round
from fedward.methods.settings import NeededSetting
from fedward.methods.site_weights import images_of_group
from fedward.methods.supervised import Supervised
from fedward.methods.workflow import Federation, Rounds


class WFedAvgSettings(GroupSettings):
    """Settings of methods in whose rounds only sites with labels train."""

    @property
    def without_effect(self) -> Mapping[str, NeededSetting | None]:
        """See :attr:`fedward.methods.settings.Settings.without_effect`."""
        # All rounds are like those of a warm-up.
        return {**super().without_effect, "warm_up": None}


class WFedAvg(Algorithm[GroupedState]):
    """Distance-weighted averaging of the sites that have labels.

    It is the upper bound of semi-supervised methods where all sites have labels, and the lower
    bound where only some do.

    Fewer replies than asked for: see :class:`~fedward.methods.groups.Groups`.
    """

    settings_type = WFedAvgSettings
    state_type = GroupedState

    def __init__(self, settings: WFedAvgSettings) -> None:
        self.settings = settings
        self.weight = images_of_group
        self.objective: Objective[Any] = Supervised()
        self.requirements = group_requirements(settings, losses=frozenset({"loss_supervised"}))
        self._groups = Groups(settings)

    def phases(self, task: str, round_: int, labelled: int) -> Sequence[Phase]:
        """Return one phase that minimises the objective; a site without labels declines."""
        if task != SUPERVISED or not labelled:
            return []
        rate = rate_of_round(self.settings.learning_rate, round_, self.settings)
        return [Phase(self.objective, rate)]

    def rounds(self, state: GroupedState, federation: Federation) -> Rounds:
        """Train the labelled sites in every round."""
        return self._groups.rounds(state, federation, self._groups.supervised_round)

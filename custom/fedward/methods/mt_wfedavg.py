"""MT+wFedAvg, IsoFed's baseline, which averages sites with and without labels together.

Saha et al.: *Rethinking semi-supervised federated learning*, MICCAI 2023.
"""

from collections.abc import Sequence

from fedward.methods.algorithm import Algorithm
from fedward.methods.groups import GroupedState, Groups, group_requirements
from fedward.methods.local import Phase
from fedward.methods.mean_teacher import MeanTeacher, MeanTeacherSettings, phases_by_group
from fedward.methods.site_weights import images_of_group
from fedward.methods.workflow import Federation, Rounds


class MTWFedAvg(Algorithm[GroupedState]):
    """All sites train from the global model, and the server averages them together.

    Sites without labels learn from a mean teacher, which starts from the global model each round.
    Fewer replies than asked for: see :class:`~fedward.methods.groups.Groups`.
    """

    settings_type = MeanTeacherSettings
    state_type = GroupedState

    def __init__(self, settings: MeanTeacherSettings) -> None:
        self.settings = settings
        self.weight = images_of_group
        losses = frozenset({"loss_supervised", "loss_consistency"})
        self.requirements = group_requirements(settings, losses)
        self._groups = Groups(settings)

    def phases(self, task: str, round_: int, labelled: int) -> Sequence[Phase]:
        """Return cross-entropy for a site with labels, the mean teacher for one without."""
        return phases_by_group(self.settings, task, round_, labelled, MeanTeacher(self.settings))

    def rounds(self, state: GroupedState, federation: Federation) -> Rounds:
        """Go through rounds in which both groups train together."""
        return self._groups.rounds(state, federation, self._groups.together)

"""MT+wFedAvg, IsoFed's baseline: sites with and without labels are averaged all at once (Saha et
al., MICCAI 2023).
"""

from collections.abc import Sequence

from fedward.methods.algorithm import Algorithm
from fedward.methods.distances import images_of_group
from fedward.methods.groups import GroupedState, Groups, ModelOf, by_distance
from fedward.methods.local import Phase
from fedward.methods.mean_teacher import MeanTeacher, MeanTeacherSettings, phases_by_group
from fedward.methods.workflow import Federation, Rounds


class MTWFedAvg(Algorithm[GroupedState]):
    """All sites train from the global model and are averaged together; without labels by a mean
    teacher of the round.

    Fewer replies than asked for: see :class:`~fedward.methods.groups.Groups`.
    """

    settings_type = MeanTeacherSettings
    state_type = GroupedState

    def __init__(self, settings: MeanTeacherSettings) -> None:
        self.settings = settings
        self.weight = images_of_group
        losses = frozenset({"loss_supervised", "loss_consistency"})
        self.requirements = by_distance(settings, losses)
        self._groups = Groups(settings)

    def phases(self, task: str, round_: int, labelled: int) -> Sequence[Phase]:
        """Return cross-entropy or the mean teacher."""
        return phases_by_group(self.settings, task, round_, labelled, MeanTeacher(self.settings))

    def rounds(self, state: GroupedState, federation: Federation) -> Rounds:
        """Go through rounds of both groups together."""
        return self._groups.rounds(state, federation, self._together)

    def _together(self, state: GroupedState, federation: Federation) -> ModelOf:
        """Return the average of all sites that were drawn; labelled ones need not be among them."""
        tasks = state.tasks(self._groups.draw(state, federation))
        updates = yield from self._groups.ask(state, state.model, tasks, 0)
        if state.untaught(tasks, updates):
            return state.model
        return self._groups.average(updates, state, federation, "all", 0)

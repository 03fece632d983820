"""RSCFed: every round is the mean of several averages over random subsets of the sites.

Liang, Lin, Fu, Zhu, Li: *RSCFed: random sampling consensus federated semi-supervised learning*,
CVPR 2022. Each pass draws some sites, trains them from the same global model, and averages them by
distance (eq. (5)-(7)); the passes' averages are averaged plainly (eq. (8)). Sites without labels
keep their teacher from round to round.
"""

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor

from fedward.methods.aggregation import weighted_average
from fedward.methods.algorithm import Algorithm
from fedward.methods.distances import distance_weights, images_of_group
from fedward.methods.fedavg import draw_participants
from fedward.methods.groups import SUPERVISED, GroupedState, Groups, ModelOf, by_distance
from fedward.methods.local import Phase
from fedward.methods.mean_teacher import MeanTeacher, MeanTeacherSettings, phases_by_group
from fedward.methods.settings import Positive
from fedward.methods.workflow import ClientUpdate, Federation, Rounds, State


class RSCFedSettings(MeanTeacherSettings):
    """RSCFed's choices, scaled from its ten sites to a few."""

    passes: int = Field(3, ge=1)
    """M: sub-consensus models of one round. Paper: 3."""
    sites_per_pass: int = Field(3, ge=1)
    """Sites drawn for each pass. Paper: 5 of 10; 3 of IsoFed's 4."""
    distance_scale: float = Field(100.0, ge=0.0)
    """lambda_c of a pass with a labelled site. Authors' code: 100."""
    unlabelled_distance_scale: float = Field(1e4, ge=0.0)
    """lambda_c of a pass without one. Authors' code: 1e4."""
    labelled_factor: Positive = 6.0
    """Further weight of labelled sites, applied once. Authors' code: 6 for SVHN and CIFAR-10, 200
    for skin lesions.
    """


class RSCFed(Algorithm[GroupedState]):
    """Random sampling consensus. With fewer replies than asked for: see
    :class:`~fedward.methods.groups.Groups`.

    A pass to which nobody replies is left out. Where labelled sites were asked in some pass and
    none replied in any, the model stays; where chance drew none, the mean of the unlabelled ones is
    taken.
    """

    settings_type = RSCFedSettings
    state_type = GroupedState

    def __init__(self, settings: RSCFedSettings) -> None:
        self.settings = settings
        self.weight = images_of_group
        self.requirements = by_distance(
            settings,
            losses=frozenset({"loss_supervised", "loss_consistency"}),
            exchanges=settings.passes,
            reason="each pass weights single sites' models by their distances and groups",
        )
        self._groups = Groups(settings, self.weights)

    def phases(self, task: str, round_: int, labelled: int) -> Sequence[Phase]:
        """Return cross-entropy or the lasting mean teacher."""
        return phases_by_group(
            self.settings, task, round_, labelled, MeanTeacher(self.settings, lasting=True)
        )

    def rounds(self, state: GroupedState, federation: Federation) -> Rounds:
        """Go through rounds of several passes."""
        return self._groups.rounds(state, federation, self._consensus)

    def _consensus(self, state: GroupedState, federation: Federation) -> ModelOf:
        """Liang et al., CVPR 2022, Algorithm 1."""
        consensus = list[State]()
        asked = dict[str, str]()
        heard = list[ClientUpdate]()
        names = federation.sites
        count = self.settings.sites_per_pass
        seed = federation.seed
        for part in range(self.settings.passes):
            tasks = state.tasks(draw_participants(names, count, seed, state.round + 1, part))
            updates = yield from self._groups.ask(state, state.model, tasks, part)
            if updates:
                consensus.append(self._groups.average(updates, state, federation, "all", part))
            asked |= {site: task for site, task in tasks.items() if task == SUPERVISED}
            heard += updates
        if state.untaught(asked, heard) or not consensus:
            return state.model
        return weighted_average(consensus, [1.0] * len(consensus))

    def weights(self, updates: Sequence[ClientUpdate], sizes: Tensor, distances: Tensor) -> Tensor:
        """Return the weights of one pass (K,)."""
        labelled = torch.tensor([update.labelled > 0 for update in updates])
        scale = (
            self.settings.distance_scale
            if labelled.any()
            else self.settings.unlabelled_distance_scale
        )
        weights = distance_weights(sizes, distances, scale)
        if labelled.all() or not labelled.any():
            return weights  # to the last bit those of the other methods, whose warm-up is the same
        weights[labelled] *= self.settings.labelled_factor
        return weights / weights.sum()

"""RSCFed: every round is the mean of several averages over random subsets of the sites.

Liang, Lin, Fu, Zhu, Li: *RSCFed: random sampling consensus federated semi-supervised learning*,
CVPR 2022. Each pass draws some sites, trains them from the same global model, and averages them by
distance (eq. (5)-(7)). The mean of the passes is not weighted (eq. (8)). Sites without labels keep
their teacher from round to round.
"""

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor

from fedward.methods.algorithm import Algorithm
from fedward.methods.averages import weighted_average
from fedward.methods.distances import distance_weights
from fedward.methods.groups import SUPERVISED, GroupedState, Groups, RoundPart, group_requirements
from fedward.methods.local import Phase
from fedward.methods.mean_teacher import MeanTeacher, MeanTeacherSettings, phases_by_group
from fedward.methods.participants import draw_participants
from fedward.methods.settings import Positive
from fedward.methods.site_weights import images_of_group
from fedward.methods.workflow import ClientUpdate, Federation, Rounds
from fedward.model_state import State


class RSCFedSettings(MeanTeacherSettings):
    """RSCFed's choices, scaled from its ten sites to a few."""

    passes: int = Field(3, ge=1)
    """M: sub-consensus models in one round. Paper: 3."""
    sites_per_pass: int = Field(3, ge=1)
    """Sites drawn for each pass. Paper: 5 of 10; 3 of IsoFed's 4.

    ``participants`` draws the sites of the warm-up alone."""
    distance_scale: float = Field(100.0, ge=0.0)
    """λ_c of a pass with at least one labelled site. Authors' code: 100."""
    unlabelled_distance_scale: float = Field(1e4, ge=0.0)
    """λ_c of a pass without labelled sites. Authors' code: 1e4."""
    labelled_factor: Positive = 6.0
    """Factor on the weight of labelled sites in a pass that has sites of both groups.

    Authors' code: 6 for SVHN and CIFAR-10, 200 for skin lesions."""


class RSCFed(Algorithm[GroupedState]):
    """Random sampling consensus.

    Fewer replies than asked for: see :class:`~fedward.methods.groups.Groups`, and

    - no site of a pass replies: the pass is omitted
    - labelled sites were asked, but none replied in any pass: the model stays
    - no labelled site was drawn: the mean of the unlabelled sites is taken
    """

    settings_type = RSCFedSettings
    state_type = GroupedState

    def __init__(self, settings: RSCFedSettings) -> None:
        self.settings = settings
        self.weight = images_of_group
        self.requirements = group_requirements(
            settings,
            losses=frozenset({"loss_supervised", "loss_consistency"}),
            exchanges=settings.passes,
            reason="each pass weights single sites' models by their distances and groups",
        )
        self._groups = Groups(settings, self.weights)

    def phases(self, task: str, round_: int, labelled: int) -> Sequence[Phase]:
        """Return cross-entropy for a site with labels, the lasting mean teacher for one without."""
        teacher = MeanTeacher(self.settings, lasting=True)
        return phases_by_group(self.settings, task, round_, labelled, teacher)

    def rounds(self, state: GroupedState, federation: Federation) -> Rounds:
        """Go through rounds of several passes."""
        return self._groups.rounds(state, federation, self._consensus)

    def _consensus(self, state: GroupedState, federation: Federation) -> RoundPart:
        """Return the consensus of a round; Liang et al., CVPR 2022, Algorithm 1."""
        sub_consensus = list[State]()
        supervised_tasks = dict[str, str]()
        replies = list[ClientUpdate]()
        for part in range(self.settings.passes):
            sites = draw_participants(
                federation.sites,
                self.settings.sites_per_pass,
                federation.seed,
                state.round + 1,
                part,
            )
            tasks = state.tasks(sites)
            updates = yield from self._groups.ask(state, state.model, tasks, part)
            if updates:
                mean = self._groups.average(updates, state, federation, "all", part)
                sub_consensus.append(mean)
            supervised_tasks |= {site: task for site, task in tasks.items() if task == SUPERVISED}
            replies += updates
        if state.lacks_labelled_reply(supervised_tasks, replies) or not sub_consensus:
            return state.model
        return weighted_average(sub_consensus, [1.0] * len(sub_consensus))

    def weights(self, updates: Sequence[ClientUpdate], sizes: Tensor, distances: Tensor) -> Tensor:
        """Return the weights (K,) of one pass, as :data:`~fedward.methods.groups.Weighting`."""
        labelled = torch.tensor([update.labelled > 0 for update in updates])
        scale = self.settings.distance_scale
        if not labelled.any():
            scale = self.settings.unlabelled_distance_scale
        weights = distance_weights(sizes, distances, scale)
        if labelled.all() or not labelled.any():
            # Not scaled again, so that the warm-up equals that of the other methods bit for bit.
            return weights
        weights[labelled] *= self.settings.labelled_factor
        return weights / weights.sum()

"""FedAL's rounds: FedAvg whose sites buy labels at fixed rounds (Deng et al., arXiv 2406.11310,
Alg. 1).
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedward.methods.algorithm import Algorithm, ServerState
from fedward.methods.auxiliary import HEADS, SupervisedWithHeads, add_heads
from fedward.methods.evidential import Evidential, annealing
from fedward.methods.fedal.queries import ActiveLearning, ActiveSettings
from fedward.methods.fedavg import draw_participants, mean_of
from fedward.methods.fixmatch import FixMatchObjective
from fedward.methods.local import Objective, Phase
from fedward.methods.requirements import Feature, Requirements, Sends, ServerNeeds, TensorRules
from fedward.methods.samplers import allocate_by_counts
from fedward.methods.schedule import rate_of_round
from fedward.methods.server_optimizer import advance
from fedward.methods.supervised import Supervised
from fedward.methods.workflow import (
    QUERY,
    SCORE,
    ClientTask,
    ClientUpdate,
    Exchange,
    Federation,
    Rounds,
)


@dataclass
class FedALState(ServerState):
    """The server's state between two rounds."""

    missed: list[str] = field(default_factory=list)
    """Where budgets go by scores: sites that took no part in the newest query."""


def labels_at_present(task: str, labelled: int, unlabelled: int, steps: int) -> int:
    """Weight a site by its images labelled at present (eq. (2))."""
    return labelled


class FedAL(Algorithm[FedALState]):
    """FedAvg on the images that are labelled so far, weighted by their number; with FixMatch on the
    others, if wanted.

    With fewer replies than asked for: as FedAvg, and

    - a site misses a query: it asks for what it missed at its next one; after the last, in its next
      round
    - a site reports no scores: it gets none of a budget that goes by scores, and what it would have
      had later; after the last query this is its share by size
    - a site has not trained before: the global model stands for its own in the ensemble; its log
      says so
    - labels do not come: the site trains on those it has, or waits first, as its site file says
    """

    settings_type = ActiveSettings
    state_type = FedALState
    active: ActiveLearning

    def __init__(self, settings: ActiveSettings) -> None:
        self.settings = settings
        self.weight = labels_at_present
        self.active = ActiveLearning(settings)
        self._heads = self.active.sampler.uses.heads
        if self._heads:
            self.extend = add_heads
        losses = {"loss_supervised"}
        logs = set[str]()
        if settings.unlabelled_weight > 0:
            losses.add("loss_pseudo")
            logs.add("kept")
        unsupported = {
            Feature.SERVER_OPTIMIZER: "",
            Feature.SEVERAL_LABELS: settings.one_label,
        }
        if self._heads:
            unsupported[Feature.SEVERAL_PROCESSES] = (
                "the sampler trains auxiliary heads beside the network"
            )
        self.requirements = Requirements(
            sends=Sends(frozenset(losses), frozenset(logs), records=frozenset({"budgets"})),
            server=ServerNeeds(exchanges=2 if self.active.by_score else 1),
            tensors=TensorRules(per_class=(f"{HEADS}.",)),
            unsupported=unsupported,
        )

    def phases(self, task: str, round_: int, labelled: int) -> Sequence[Phase]:
        """Return the training of the loss that is set, on labelled images or on all, and of heads
        if there are some.
        """
        return [
            Phase(
                self._objective(round_),
                rate_of_round(self.settings.learning_rate, round_, self.settings),
            )
        ]

    def _objective(self, round_: int) -> Objective[Any]:
        if self._heads:
            return SupervisedWithHeads(self.settings)
        if self.settings.loss == "evidential":
            return Evidential(annealing(round_))
        return FixMatchObjective(self.settings) if self.settings.unlabelled_weight else Supervised()

    def rounds(self, state: FedALState, federation: Federation) -> Rounds:
        """Deng et al., Alg. 1; where the budget goes by scores, a query is preceded by a look at
        them.
        """
        while state.round < self.settings.rounds:
            round_ = state.round + 1
            task = self.active.task(round_)
            sites = draw_participants(
                federation.sites, self.settings.participants, federation.seed, round_
            )
            if self.active.by_score and task == QUERY:
                updates = yield from self._query_by_scores(state, sites, federation.sites)
            else:
                updates = yield Exchange(
                    round_, state.model, {site: ClientTask(task) for site in sites}
                )
            mean = mean_of(
                updates, task, self.weight, self.settings, state.model, federation.effective_replies
            )
            advance(state, mean, self.settings, federation.parameters)
            state.round = round_

    def _query_by_scores(
        self, state: FedALState, sites: Sequence[str], everyone: Sequence[str]
    ) -> Generator[Exchange, list[ClientUpdate], list[ClientUpdate]]:
        round_ = state.round + 1
        if round_ > 1 + self.settings.steps * self.settings.query_every:
            # Its share by size: for the few that missed the last query, all would have to score
            # once more.
            late = {site: ClientTask(QUERY if site in state.missed else "train") for site in sites}
            return (yield Exchange(round_, state.model, late))
        scored = yield Exchange(round_, state.model, {site: ClientTask(SCORE) for site in sites})
        budgets = divide(scored)
        tasks = {site: ClientTask(QUERY, labels=budgets.get(site, 0)) for site in sites}
        updates = yield Exchange(
            round_, state.model, tasks, record={"budgets": {"labels": budgets}}, part=1
        )
        took_part = {update.site for update in scored if any(update.scores)} & {
            update.site for update in updates
        }
        state.missed = sorted(set(everyone) - took_part)
        return updates


def divide(updates: Sequence[ClientUpdate]) -> dict[str, int]:
    """Return how many labels each site is to ask for: together as many as by size, and where scores
    are highest.
    """
    scored = [update for update in updates if update.scores]
    budget = max(0, sum(update.due for update in scored))
    return allocate_by_counts({update.site: update.scores for update in scored}, budget)

"""Exchanges with sites that have labels and with sites that have none, and distance-weighted means
of their models.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from pydantic import Field
from torch import Tensor

from fedward.errors import RunError
from fedward.methods.aggregation import aggregate, capped_weights, levelled_weights
from fedward.methods.algorithm import ServerState
from fedward.methods.distances import distance_weights, measure
from fedward.methods.fedavg import draw_participants
from fedward.methods.requirements import Feature, Requirements, Sends, ServerNeeds
from fedward.methods.settings import AllImages, Positive
from fedward.methods.workflow import ClientTask, ClientUpdate, Exchange, Federation, Rounds, State

SUPERVISED = "supervised"
UNSUPERVISED = "unsupervised"
"""Tasks of a site with labels, and of one without."""
LABELLED = "labelled"
UNLABELLED = "unlabelled"
"""The two groups of sites."""
_SILENT_ROUNDS_IN_A_ROW = 3
"""Rounds without any average after which a run gives up; unlabelled sites alone could keep it busy
for ever.
"""


class WFedAvgSettings(AllImages):
    """Values of RSCFed's code, which IsoFed says it follows."""

    rounds: int = Field(200, ge=1)
    """RSCFed: 1000 on SVHN and CIFAR-10."""
    batch: int = Field(64, ge=1)
    """B: images of each kind in one step."""
    optimizer: Literal["adam", "sgd"] = "sgd"
    """Its moments start anew every round."""
    learning_rate: Positive = 0.03
    """Largest step size of sites with labels."""
    weight_decay: float = Field(5e-4, ge=0.0)
    """L2 penalty, added to the gradient."""
    clip_gradient: Positive | None = 5.0
    """Largest gradient norm of a step."""
    warm_up: int = Field(7, ge=0)
    """Rounds at the start in which only sites with labels train. RSCFed starts from such a model.
    """
    distance_scale: float = Field(100.0, ge=0.0)
    """lambda_c of :func:`distance_weights`; with 0 weights are images alone."""
    distance_norm: Literal["sum", "flat"] = "sum"
    """Distance of two models: the sum of the tensors' norms, or the norm of one long vector, as in
    the paper.
    """


@dataclass
class GroupedState(ServerState):
    """The server's state between two rounds."""

    groups: dict[str, str] = field(default_factory=dict)
    """``labelled`` or ``unlabelled``, as each site's last answer said; sites that never answered
    are absent.
    """

    def tasks(self, sites: Iterable[str]) -> dict[str, str]:
        """Return each site's task by its group; a site that never answered is asked as if it had
        labels.
        """
        return {
            site: UNSUPERVISED if self.groups.get(site) == UNLABELLED else SUPERVISED
            for site in sites
        }

    def untaught(self, tasks: Mapping[str, str], updates: Iterable[ClientUpdate]) -> bool:
        """Return whether sites that have labels, or may have, were asked and none replied: the
        model stays then.
        """
        asked = any(
            task == SUPERVISED and self.groups.get(site) != UNLABELLED
            for site, task in tasks.items()
        )
        return asked and not any(update.labelled for update in updates)


Answers: TypeAlias = Generator[Exchange, "list[ClientUpdate]", "list[ClientUpdate]"]
"""One exchange inside a round: returns the replies that took steps."""
ModelOf: TypeAlias = Generator[Exchange, "list[ClientUpdate]", State]
"""A part of a round, or all of it: returns the model it ends with."""
OneRound: TypeAlias = Callable[[GroupedState, Federation], ModelOf]
Weighting: TypeAlias = Callable[[Sequence[ClientUpdate], Tensor, Tensor], Tensor]
"""Replies (K), their images n_k (K,) and distances d_k (K,) to the weights c_k (K,)."""


def by_distance(
    settings: WFedAvgSettings,
    losses: frozenset[str],
    *,
    logs: frozenset[str] = frozenset(),
    exchanges: int = 1,
    reason: str = "",
) -> Requirements:
    """Return the requirements of a method of groups.

    Args:
        settings: the job's; weights by distance need single sites' models.
        losses: names of its loss terms.
        logs: names of further scalars of a training step.
        exchanges: exchanges of a round.
        reason: why the method needs single sites' models whatever the settings say.
    """
    if settings.distance_scale and not reason:
        reason = (
            "its weights are distances of single sites' models;"
            " distance_scale=0 weights by images alone"
        )
    unsupported = {}
    if reason:
        unsupported = {Feature.SECURE_AGGREGATION: reason, Feature.ROBUST_MEAN: reason}
    return Requirements(
        sends=Sends(losses, logs, records=frozenset({"groups"})),
        server=ServerNeeds(exchanges=exchanges),
        unsupported=unsupported,
    )


class Groups:
    """The rounds that methods of groups share.

    What happens with fewer replies than asked for:

    - some sites fail: the mean is taken over those that replied; a group of one has weight 1
    - no labelled site replies: the model stays, whatever unlabelled sites have sent, if some were
      asked
    - a site gains or loses its labels: from its next answer on, be it an evaluation, it is in its
      group
    - no site has labels: the run ends, naming the sites; also after three rounds without an average
    - late, second, broken reply: as FedAvg

    The weights of one mean, before they are capped and levelled, are by default those of
    :func:`distance_weights`.
    """

    def __init__(self, settings: WFedAvgSettings, weighting: Weighting | None = None) -> None:
        self._settings = settings
        self._weights = weighting or (
            lambda updates, sizes, far: distance_weights(sizes, far, settings.distance_scale)
        )

    def rounds(self, state: GroupedState, federation: Federation, one_round: OneRound) -> Rounds:
        """Warm up on the sites with labels, then one round of the method after the other."""
        silent = 0
        while state.round < self._settings.rounds:
            round_ = state.round + 1
            before = state.model
            known = dict(state.groups)
            warm = round_ <= self._settings.warm_up
            state.model = yield from (self.supervised_round if warm else one_round)(
                state, federation
            )
            # A site that says for the first time that it has no labels is not silent.
            silent = silent + 1 if state.model is before and state.groups == known else 0
            _stop_without_labels(state, federation, silent)
            state.round = round_

    def supervised_round(
        self, state: GroupedState, federation: Federation, start: State | None = None, part: int = 0
    ) -> ModelOf:
        """Train the labelled sites, from the global model by default, and average them; without a
        reply it stays.
        """
        tasks = dict.fromkeys(self.draw(state, federation, UNLABELLED), SUPERVISED)
        updates = yield from self.ask(state, state.model if start is None else start, tasks, part)
        return self.average(updates, state, federation, LABELLED, part)

    def draw(
        self, state: GroupedState, federation: Federation, without: str | None = None
    ) -> list[str]:
        """Draw a round's participants among the sites that are not known to be in the group
        ``without``.
        """
        names = [
            site
            for site in federation.sites
            if without is None or state.groups.get(site) != without
        ]
        round_ = state.round + 1
        return draw_participants(
            names, self._settings.participants, federation.seed, round_, without or "all"
        )

    @staticmethod
    def ask(state: GroupedState, model: State, tasks: Mapping[str, str], part: int) -> Answers:
        """Send a model to sites with their tasks, note their groups, and return the replies that
        took steps.
        """
        if not tasks:
            return []
        asked = {site: ClientTask(task) for site, task in tasks.items()}
        updates = yield Exchange(state.round + 1, model, asked, part=part)
        state.groups |= {
            update.site: LABELLED if update.labelled else UNLABELLED for update in updates
        }
        return [update for update in updates if update.steps]

    def average(
        self,
        updates: Sequence[ClientUpdate],
        state: GroupedState,
        federation: Federation,
        group: str,
        part: int,
    ) -> State:
        """Return ``Σ_k c_k W_k`` of the replies, and log the weights; without replies the global
        model.
        """
        if not updates:
            return state.model
        choice = self._settings
        sites = [update.site for update in updates]
        sizes, distances = measure(updates, choice.distance_norm, choice.largest_share)
        capped = capped_weights(
            self._weights(updates, sizes, distances), sizes, choice.largest_share
        )
        weights = levelled_weights(capped.tolist(), sizes.tolist(), federation.effective_replies)
        row = {"sites": sites, "weights": weights, "distances": distances.tolist()}
        federation.record("groups", {"round": state.round + 1, "part": part, "group": group, **row})
        return aggregate([update.state for update in updates], weights, choice)


def _stop_without_labels(state: GroupedState, federation: Federation, silent: int) -> None:
    if set(state.groups) == set(federation.sites) and LABELLED not in state.groups.values():
        found = "no site has labels"
        remedy = "Give one of them labels (`labelled` in its site file), or add a site."
    elif silent >= _SILENT_ROUNDS_IN_A_ROW:
        found = f"none in {silent} rounds in a row"
        remedy = "Fix the sites, then resume this run folder."
    else:
        return
    where = f"round {state.round + 1}, sites {', '.join(federation.sites)}"
    raise RunError(where, expected="an answer from a site with labels", found=found, remedy=remedy)

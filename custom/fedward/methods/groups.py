"""Rounds of two groups, sites with labels and sites without, weighted by distances of models."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from pydantic import Field
from torch import Tensor

from fedward.errors import RunError
from fedward.methods.aggregation import aggregate
from fedward.methods.algorithm import ServerState
from fedward.methods.distances import distance_weights, images_and_distances
from fedward.methods.participants import draw_participants
from fedward.methods.requirements import Feature, Requirements, Sends, ServerNeeds
from fedward.methods.settings import AllImages, Positive
from fedward.methods.weight_limits import WeightLimits
from fedward.methods.workflow import (
    EMPTY_ROUNDS_IN_A_ROW,
    ClientTask,
    ClientUpdate,
    Exchange,
    Federation,
    Rounds,
)
from fedward.model_state import State

SUPERVISED = "supervised"
"""Name of the task of a site with labels."""
UNSUPERVISED = "unsupervised"
"""Name of the task of a site without labels."""

LABELLED = "labelled"
"""Name of the group of sites that have labels."""
UNLABELLED = "unlabelled"
"""Name of the group of sites that have no labels."""


class GroupSettings(AllImages):
    """Settings of methods with two groups.

    The fields below have the values of RSCFed's code, as in IsoFed. Inherited ones, such as
    ``schedule`` and ``largest_share``, have this package's; ``--paper`` sets the code's.
    """

    rounds: int = Field(200, ge=1)
    """R: communication rounds. RSCFed: 1000 on SVHN and CIFAR-10."""
    batch: int = Field(64, ge=1)
    """B: images of each kind in one step."""
    optimizer: Literal["adam", "sgd"] = "sgd"
    """Optimiser of a site. Every round has a new one, which remembers no earlier steps."""
    learning_rate: Positive = 0.03
    """Largest step size of sites with labels."""
    weight_decay: float = Field(5e-4, ge=0.0)
    """L2 penalty, added to the gradient."""
    clip_gradient: Positive | None = 5.0
    """Largest gradient norm of a step."""
    warm_up: int = Field(7, ge=0)
    """Rounds at the start in which only sites with labels train.

    RSCFed starts from a model that was trained in this way. There is no other kind of round in
    wFedAvg and FedProx, where it has no effect and ``--set`` refuses it."""
    distance_scale: float = Field(100.0, ge=0.0)
    """λ_c of :func:`distance_weights`. With 0 sites are weighted by their images alone."""
    distance_norm: Literal["sum", "flat"] = "sum"
    """Distance of two models: the sum of the norms of all tensors, or the norm of one flat vector.

    The paper uses one vector, RSCFed's code the sum."""

    @property
    def counted_in_rounds(self) -> Sequence[str]:
        """See :attr:`fedward.methods.settings.Settings.counted_in_rounds`."""
        return [*super().counted_in_rounds, "warm_up"]


@dataclass
class GroupedState(ServerState):
    """The server's state between two rounds."""

    groups: dict[str, str] = field(default_factory=dict)
    """Site -> its group according to its last answer. Sites that never answered are absent."""

    def tasks(self, sites: Iterable[str]) -> dict[str, str]:
        """Return each site's task by its group.

        A site that never answered gets the task of a site with labels.
        """
        tasks = {}
        for site in sites:
            unlabelled = self.groups.get(site) == UNLABELLED
            tasks[site] = UNSUPERVISED if unlabelled else SUPERVISED
        return tasks

    def lacks_labelled_reply(
        self, tasks: Mapping[str, str], updates: Iterable[ClientUpdate]
    ) -> bool:
        """Return whether sites with labels were asked, but none of them replied.

        The global model then stays. A site counts as labelled unless it is known to have no labels.

        Args:
            tasks: site -> the task that it was given.
            updates: the replies that took steps.
        """
        asked_labelled = False
        for site, task in tasks.items():
            if task == SUPERVISED and self.groups.get(site) != UNLABELLED:
                asked_labelled = True
        return asked_labelled and not any(update.labelled for update in updates)


Replies: TypeAlias = Generator[Exchange, "list[ClientUpdate]", "list[ClientUpdate]"]
"""One exchange inside a round; it returns the replies that took steps."""
RoundPart: TypeAlias = Generator[Exchange, "list[ClientUpdate]", State]
"""A part of a round, or all of it; it returns the model that the part ends with."""
OneRound: TypeAlias = Callable[[GroupedState, Federation], RoundPart]
"""One round of a method."""
Weighting: TypeAlias = Callable[[Sequence[ClientUpdate], Tensor, Tensor], Tensor]
"""From K replies, their images n_k (K,) and their distances d_k (K,) to the weights c_k (K,)."""


def group_requirements(
    settings: GroupSettings,
    losses: frozenset[str],
    *,
    logs: frozenset[str] = frozenset(),
    exchanges: int = 1,
    reason: str = "",
) -> Requirements:
    """Return the requirements of a method with two groups.

    Args:
        settings: the job's settings; weights by distance need single sites' models.
        losses: names of the method's loss terms.
        logs: names of the other scalars that a training step reports.
        exchanges: number of exchanges in a round.
        reason: why the method needs single sites' models whatever the settings say. Empty if only
            weights by distance need them.
    """
    if settings.distance_scale and not reason:
        reason = (
            "its weights are distances of single sites' models;"
            " distance_scale=0 weights by images alone"
        )
    reasons_against = {}
    if reason:
        reasons_against = {Feature.SECURE_AGGREGATION: reason, Feature.ROBUST_MEAN: reason}
    return Requirements(
        tasks=frozenset({SUPERVISED, UNSUPERVISED}),
        sends=Sends(losses, logs, records=frozenset({"groups"})),
        server=ServerNeeds(exchanges=exchanges),
        reasons_against=reasons_against,
    )


class Groups:
    """The rounds that methods with two groups share.

    What happens with fewer replies than asked for:

    - some sites fail: the mean is taken over those that replied; a group of one has weight 1
    - no labelled site replies, though some were asked: the model stays, whatever unlabelled sites
      have sent
    - a site gains or loses its labels: from its next answer on, even an evaluation, it is in the
      other group. The server takes this answer if few of the site's images are affected, and
      otherwise only once the run has been resumed (:mod:`fedward.server.claims`)
    - no site has labels: the run ends with an error that names the sites
    - three rounds in a row have no average: the run ends in the same way
    - a reply is late, a site's second or broken: as in FedAvg

    Args:
        settings: the job's settings.
        weighting: computes the weights of one mean, before their limits; by default
            :func:`distance_weights`.
    """

    def __init__(self, settings: GroupSettings, weighting: Weighting | None = None) -> None:
        self._settings = settings
        self._weighting = weighting or self._weights_by_distance

    def rounds(self, state: GroupedState, federation: Federation, one_round: OneRound) -> Rounds:
        """Warm up on the sites with labels, then go through rounds of the method."""
        silent_rounds = 0
        while state.round < self._settings.rounds:
            round_ = state.round + 1
            model_before = state.model
            groups_before = dict(state.groups)
            if round_ <= self._settings.warm_up:
                state.model = yield from self.supervised_round(state, federation)
            else:
                state.model = yield from one_round(state, federation)
            # Where a first answer only says that a site has no labels, the model stays but the
            # groups change. Such a round is not silent, because the next may ask other sites.
            if state.model is model_before and state.groups == groups_before:
                silent_rounds += 1
            else:
                silent_rounds = 0
            _stop_without_labels(state, federation, silent_rounds)
            state.round = round_

    def supervised_round(
        self, state: GroupedState, federation: Federation, start: State | None = None, part: int = 0
    ) -> RoundPart:
        """Train the labelled sites and average them.

        They start from ``start``, by default the global model. Without a reply the global model,
        not ``start``, is returned.
        """
        sites = self.draw(state, federation, without=UNLABELLED)
        tasks = dict.fromkeys(sites, SUPERVISED)
        model = state.model if start is None else start
        updates = yield from self.ask(state, model, tasks, part)
        return self.average(updates, state, federation, LABELLED, part)

    def draw(
        self, state: GroupedState, federation: Federation, without: str | None = None
    ) -> list[str]:
        """Draw a round's participants among the sites not known to be in the group ``without``."""
        names = list(federation.sites)
        if without is not None:
            names = [site for site in names if state.groups.get(site) != without]
        purpose = without or "all"
        return draw_participants(
            names, self._settings.participants, federation.seed, state.round + 1, purpose
        )

    @staticmethod
    def ask(state: GroupedState, model: State, tasks: Mapping[str, str], part: int) -> Replies:
        """Send a model to sites with their tasks, and return the replies that took steps.

        The groups of all sites that replied are noted in ``state``.
        """
        if not tasks:
            return []
        client_tasks = {site: ClientTask(task) for site, task in tasks.items()}
        updates = yield Exchange(state.round + 1, model, client_tasks, part=part)
        for update in updates:
            state.groups[update.site] = LABELLED if update.labelled else UNLABELLED
        return [update for update in updates if update.trained]

    def together(self, state: GroupedState, federation: Federation) -> RoundPart:
        """Return the average of all sites drawn, among which labelled ones need not be."""
        tasks = state.tasks(self.draw(state, federation))
        updates = yield from self.ask(state, state.model, tasks, 0)
        if state.lacks_labelled_reply(tasks, updates):
            return state.model
        return self.average(updates, state, federation, "all", 0)

    def average(
        self,
        updates: Sequence[ClientUpdate],
        state: GroupedState,
        federation: Federation,
        group: str,
        part: int,
    ) -> State:
        """Return the mean ``Σ_k c_k W_k`` of the replies, and log its weights.

        Without replies the global model is returned. ``group`` and ``part`` identify the mean in
        the log.
        """
        if not updates:
            return state.model
        settings = self._settings
        sizes, distances = images_and_distances(
            updates, settings.distance_norm, settings.largest_share
        )
        weights = self._weighting(updates, sizes, distances)
        limits = WeightLimits(settings.largest_share, federation.effective_replies)
        limited = limits.limited_weights(weights, sizes)
        federation.record(
            "groups",
            {
                "round": state.round + 1,
                "part": part,
                "group": group,
                "sites": [update.site for update in updates],
                "weights": limited,
                "distances": distances.tolist(),
            },
        )
        return aggregate([update.state for update in updates], limited, settings)

    def _weights_by_distance(
        self, updates: Sequence[ClientUpdate], sizes: Tensor, distances: Tensor
    ) -> Tensor:
        return distance_weights(sizes, distances, self._settings.distance_scale)


def _stop_without_labels(state: GroupedState, federation: Federation, silent_rounds: int) -> None:
    """Raise RunError if no site has labels, or if too many rounds in a row had no average."""
    where = f"round {state.round + 1}, sites {', '.join(federation.sites)}"
    all_have_answered = set(state.groups) == set(federation.sites)
    if all_have_answered and LABELLED not in state.groups.values():
        raise RunError(
            where,
            "Give one of them labels (`labelled` in its site file), or add a site.",
            expected="an answer from a site with labels",
            found="no site has labels",
        )
    # The server ends a run without any reply itself, but replies of unlabelled sites prevent that.
    if silent_rounds >= EMPTY_ROUNDS_IN_A_ROW:
        raise RunError(
            where,
            "Fix the sites, then resume this run folder.",
            expected="an answer from a site with labels",
            found=f"none in {silent_rounds} rounds in a row",
        )

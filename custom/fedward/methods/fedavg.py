"""Federated averaging.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas: *Communication-efficient learning of deep networks
from decentralized data*, AISTATS 2017, Algorithm 1.
"""

from collections.abc import Sequence

from fedward.methods.aggregation import aggregate, capped_counts, levelled_weights
from fedward.methods.algorithm import Algorithm, ServerState, Weight
from fedward.methods.local import Phase
from fedward.methods.requirements import SUPPORTED, Feature, Requirements, Sends
from fedward.methods.schedule import rate_of_round
from fedward.methods.server_optimizer import advance
from fedward.methods.settings import Settings
from fedward.methods.supervised import Supervised
from fedward.methods.workflow import ClientTask, ClientUpdate, Exchange, Federation, Rounds
from fedward.model_state import State
from fedward.seeds import numpy_generator


class FedAvg(Algorithm[ServerState]):
    """Supervised federated averaging: the lower bound with few labels, the upper bound with all.

    What happens with fewer replies than asked for:

    - some sites fail: the mean is taken over those that replied
    - no site replies: the model stays, and three such rounds in a row end the run
    - a site has no labels: it takes no step and is reported; its weight is 0, never 1
    - a reply is late, or the site's second: it is not used; the first reply in time counts
    - a reply has NaN, a wrong shape or a missing tensor: it is refused on arrival, the error names
      the site, and the site counts as failed
    """

    settings_type = Settings
    state_type = ServerState

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.weight = steps_taken
        self.requirements = Requirements(
            sends=Sends(losses=frozenset({"loss_supervised"})),
            unsupported={
                Feature.SERVER_OPTIMIZER: SUPPORTED,
                Feature.SEVERAL_LABELS: settings.one_label,
            },
        )

    def phases(self, task: str, round_: int, labelled: int) -> Sequence[Phase]:
        """Return one phase that minimises cross-entropy."""
        rate = rate_of_round(self.settings.learning_rate, round_, self.settings)
        return [Phase(Supervised(), rate)]

    def rounds(self, state: ServerState, federation: Federation) -> Rounds:
        """Run the rounds of McMahan et al., Algorithm 1."""
        return federated_averaging(state, federation, self.settings, self.weight)


def federated_averaging(
    state: ServerState,
    federation: Federation,
    settings: Settings,
    weight: Weight,
    task: str = "train",
) -> Rounds:
    """Run McMahan et al., Algorithm 1, with ``settings.participants`` of the sites in each round.

    At the end of a round the server takes the mean as its model, or makes a step towards it
    (:func:`~.server_optimizer.advance`).
    """
    while state.round < settings.rounds:
        round_ = state.round + 1
        sites = draw_participants(federation.sites, settings.participants, federation.seed, round_)
        tasks = {site: ClientTask(task) for site in sites}
        updates = yield Exchange(round_, state.model, tasks)
        mean = mean_of(updates, task, weight, settings, state.model, federation.effective_replies)
        advance(state, mean, settings, federation.parameters)
        state.round = round_


def draw_participants(
    names: Sequence[str], count: int | None, seed: int, *purpose: str | int
) -> list[str]:
    """Return ``count`` sites drawn uniformly without replacement, sorted.

    All sites are returned where there are no more than ``count``, or where it is None. ``purpose``
    separates the draws of a run, as in :func:`fedward.seeds.derive`; usually it is the round.
    """
    # A permutation of indices, so that a seed draws the same places whatever the sites' names are.
    order = numpy_generator(seed, "participants", *purpose).permutation(len(names))
    return sorted(names[index] for index in order[:count])


def steps_taken(task: str, labelled: int, unlabelled: int, steps: int) -> int:
    """Weight a site by its steps.

    With FedVC all sites take the same number of steps, so that all have the same weight.
    """
    return steps


def mean_of(
    updates: Sequence[ClientUpdate],
    task: str,
    weight: Weight,
    settings: Settings,
    fallback: State,
    least: float,
) -> State:
    """Return the mean of the replies that took steps for a task.

    Args:
        updates: accepted replies.
        task: the task that the sites were given.
        weight: computes what a site counts for, before weights are capped and levelled.
        settings: the job's settings, which limit a site's share and may ask for a robust mean.
        fallback: the model to return where no reply has any weight.
        least: effective number of replies that the mean must be worth,
            :attr:`Federation.effective_replies`.
    """
    trained = [update for update in updates if update.steps]
    weights = [
        float(weight(task, update.labelled, update.unlabelled, update.steps)) for update in trained
    ]
    if not any(weights):
        return fallback
    capped = capped_counts(weights, settings.largest_share)
    levelled = levelled_weights(capped, weights, least)
    return aggregate([update.state for update in trained], levelled, settings)

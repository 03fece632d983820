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
from fedward.methods.workflow import ClientTask, ClientUpdate, Exchange, Federation, Rounds, State
from fedward.seeds import numpy_generator


class FedAvg(Algorithm[ServerState]):
    """Supervised federated averaging: a lower bound with few labels, an upper bound with all.

    What happens with fewer replies than asked for:

    - some sites fail: the mean is taken over those that replied
    - none replies: the model stays; three such rounds in a row end the run
    - a site without labels: takes no step and is reported, its weight is 0, never 1
    - late or second reply: not used: the first answer within the time stands
    - NaN, wrong shape, missing: refused on arrival, with the site's name; counts as failed
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
        """Return cross-entropy."""
        rate = rate_of_round(self.settings.learning_rate, round_, self.settings)
        return [Phase(Supervised(), rate)]

    def rounds(self, state: ServerState, federation: Federation) -> Rounds:
        """Go through the rounds of McMahan et al., Algorithm 1."""
        return federated_averaging(state, federation, self.settings, self.weight)


def federated_averaging(
    state: ServerState,
    federation: Federation,
    settings: Settings,
    weight: Weight,
    task: str = "train",
) -> Rounds:
    """Go through McMahan et al., Algorithm 1, with ``n`` of the sites in each round.

    The server then takes the mean, or steps towards it (:func:`~.server_optimizer.advance`).
    """
    while state.round < settings.rounds:
        round_ = state.round + 1
        sites = draw_participants(federation.sites, settings.participants, federation.seed, round_)
        updates = yield Exchange(round_, state.model, {site: ClientTask(task) for site in sites})
        mean = mean_of(updates, task, weight, settings, state.model, federation.effective_replies)
        advance(state, mean, settings, federation.parameters)
        state.round = round_


def draw_participants(
    names: Sequence[str], count: int | None, seed: int, *purpose: str | int
) -> list[str]:
    """Return ``count`` sites drawn uniformly without replacement, sorted.

    All sites are returned where there are no more than ``count``, or where it is None. ``purpose``
    separates the draws of a run, as in :func:`fedward.seeds.derive`; mostly it is the round.
    """
    order = numpy_generator(seed, "participants", *purpose).permutation(len(names))
    return sorted(names[index] for index in order[:count])


def steps_taken(task: str, labelled: int, unlabelled: int, steps: int) -> int:
    """Weight a site by its steps: with FedVC all take equally many, and the mean is a plain one."""
    return steps


def mean_of(
    updates: Sequence[ClientUpdate],
    task: str,
    weight: Weight,
    settings: Settings,
    otherwise: State,
    least: float,
) -> State:
    """Return the mean of the replies that took steps for a task.

    Args:
        updates: accepted replies.
        task: what they were asked for.
        weight: what a site counts for, before counts are capped and levelled.
        settings: the job's: the cap, and a robust mean in place of the weighted one.
        otherwise: returned where no reply has any weight.
        least: effective number of replies that the mean must be worth,
            :attr:`Federation.effective_replies`.
    """
    trained = [update for update in updates if update.steps]
    weights = [
        float(weight(task, update.labelled, update.unlabelled, update.steps)) for update in trained
    ]
    if not any(weights):
        return otherwise
    counts = levelled_weights(capped_counts(weights, settings.largest_share), weights, least)
    return aggregate([update.state for update in trained], counts, settings)

"""Federated averaging.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas: *Communication-efficient learning of deep networks
from decentralized data*, AISTATS 2017, Algorithm 1.
"""

from collections.abc import Callable, Sequence

from fedward.methods.aggregation import mean_of
from fedward.methods.algorithm import Algorithm, ServerState
from fedward.methods.local import Phase
from fedward.methods.participants import draw_participants
from fedward.methods.requirements import Feature, Requirements, Sends, ServerNeeds
from fedward.methods.schedule import rate_of_round
from fedward.methods.server_labels import (
    AT_SERVER,
    images_at_server,
    server_phase,
    train_at_server,
)
from fedward.methods.settings import ServerLabels, Settings
from fedward.methods.site_weights import SiteWeight, steps_taken
from fedward.methods.supervised import Supervised
from fedward.methods.workflow import TRAIN, ClientTask, Exchange, Federation, Rounds


class FedAvg(Algorithm[ServerState]):
    """Supervised federated averaging: the lower bound with few labels, the upper bound with all.

    What happens with fewer replies than asked for:

    - some sites fail: the mean is taken over those that replied
    - no site replies: the model stays, and three such rounds in a row end the run
    - a site has no labels: it takes no step and is reported; its weight is 0, never 1
    - a reply is late, or the site's second: it is not used; the first reply in time counts
    - a reply has NaN, a wrong shape or a missing tensor: it is refused on arrival, the error names
      the site, and the site counts as failed

    With ``server_labels`` no site has anything to learn from, and the server alone trains: the
    lower bound of methods whose sites learn from unlabelled images.

    Deviates: the paper weights sites by their images. Here they count by their steps, which are
    equally many where ``images_per_round`` is set, and else follow the number of images.
    """

    settings_type = ServerLabels
    state_type = ServerState

    def __init__(self, settings: ServerLabels) -> None:
        self.settings = settings
        self.weight = steps_taken
        losses = frozenset() if settings.server_labels else frozenset({"loss_supervised"})
        self.requirements = Requirements(
            sends=Sends(losses=losses),
            server=ServerNeeds(images=images_at_server(settings)),
            hidden_labels=settings.server_labels,
            reasons_against={Feature.SEVERAL_LABELS: settings.one_label},
        )

    def phases(self, task: str, round_: int, labelled: int) -> Sequence[Phase]:
        """Return one phase that minimises cross-entropy."""
        if self.settings.server_labels and task == AT_SERVER:
            return [server_phase(self.settings, round_)]
        rate = rate_of_round(self.settings.learning_rate, round_, self.settings)
        return [Phase(Supervised(), rate)]

    def rounds(self, state: ServerState, federation: Federation) -> Rounds:
        """Run the rounds of McMahan et al., Algorithm 1."""
        return federated_averaging(state, federation, self.settings, self.weight)


def _train(round_: int) -> str:
    return TRAIN


def federated_averaging(
    state: ServerState,
    federation: Federation,
    settings: Settings,
    weight: SiteWeight,
    task_of: Callable[[int], str] = _train,
) -> Rounds:
    """Run the rounds of federated averaging, until there were ``settings.rounds``.

    ``w_{t+1} = Σ_k (n_k / n) w_{t+1}^k``, ``n = Σ_k n_k``, over the sites k that took part in round
    t + 1, each of which trained from ``w_t``.

    Source: McMahan et al., AISTATS 2017, Algorithm 1.

    Args:
        state: w_t and t at the start; changed in place at the end of each round.
        federation: the sites, and what the server has of its own.
        settings: the job's: ``participants`` of the sites are drawn for each round.
        weight: n_k, before the limits on one site's share.
        task_of: the task of the sites in a round, the same for all; by default they only train.

    Yields:
        One exchange for each round. It receives the replies that arrived, in the order of names.

    Deviates: a server that has the labels trains on them at the end of each round, and before the
    first round too (:mod:`~fedward.methods.server_labels`).
    """
    if state.round == 0:
        train_at_server(state, 0, federation)
    while state.round < settings.rounds:
        round_ = state.round + 1
        sites = draw_participants(federation.sites, settings.participants, federation.seed, round_)
        task = task_of(round_)
        tasks = {site: ClientTask(task) for site in sites}
        updates = yield Exchange(round_, state.model, tasks)
        state.model = mean_of(
            updates, task, weight, settings, state.model, federation.effective_replies
        )
        train_at_server(state, round_, federation)
        state.round = round_

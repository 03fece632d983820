"""FedMatch's rounds (Jeong et al., ICLR 2021, labels at the clients)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from fedward.methods.aggregation import mean_of
from fedward.methods.algorithm import Algorithm
from fedward.methods.anonymous_peers import PeerRule
from fedward.methods.fedmatch.decomposition import NAME, add_psi, set_psi
from fedward.methods.fedmatch.helpers import HelperModel
from fedward.methods.fedmatch.objective import FedMatchObjective
from fedward.methods.fedmatch.settings import FedMatchSettings
from fedward.methods.fedperl.descriptions import ProbeAnswers
from fedward.methods.local import Phase
from fedward.methods.participants import draw_participants
from fedward.methods.peer_choice import Candidates, choose_peers
from fedward.methods.peer_state import PeerState
from fedward.methods.requirements import (
    Feature,
    Requirements,
    Sends,
    ServerNeeds,
    TensorRules,
)
from fedward.methods.schedule import rate_of_round
from fedward.methods.site_weights import steps_taken
from fedward.methods.workflow import TRAIN, ClientTask, Exchange, Federation, Rounds


@dataclass
class FedMatchState(PeerState):
    """The server's state between two rounds, with the answers (K,) of sites that have trained ψ."""

    features_name: ClassVar[str] = "answers"


class FedMatch(Algorithm[FedMatchState]):
    """Inter-client consistency and disjoint learning.

    What happens with fewer replies than asked for is as in FedAvg, and:

    - a helper has left: its last ψ still helps, because the server keeps its model
    - a site has never trained: it gets no helper, and helps no other site
    - helpers are anonymised and a site has only one: it gets no helper in this round
    - a site has no labels: it trains ψ alone
    - a site has no unlabelled images: it trains σ alone, gets no helper, and helps no other site
    """

    settings_type = FedMatchSettings
    state_type = FedMatchState

    def __init__(self, settings: FedMatchSettings) -> None:
        self.settings = settings
        self.weight = steps_taken
        self.extend = add_psi
        self.peer_rule = PeerRule(settings.helpers, settings.anonymise)
        needs_all_parameters = "it splits all parameters of a network in two"
        self.requirements = Requirements(
            sends=Sends(
                losses=frozenset(
                    {"loss_supervised", "loss_pseudo", "loss_consistency", "loss_disjoint"}
                ),
                logs=frozenset({"kept"}),
                records=frozenset({"peers"}),
            ),
            server=ServerNeeds(
                peers=self.peer_rule.most_models,
                lone_peers=self.peer_rule.lone_peers,
                network=True,
            ),
            tensors=TensorRules(per_class=(f"{NAME}.",)),
            reasons_against={
                Feature.SECURE_AGGREGATION: "helpers are chosen by, and made of, single models",
                Feature.SEVERAL_PROCESSES: "it calls the network with parameters that it computes",
                Feature.TRAIN_HEAD: needs_all_parameters,
                Feature.TRAIN_LAST_BLOCKS: needs_all_parameters,
                Feature.TRAIN_ADAPTERS: needs_all_parameters,
            },
        )

    def complete(self, net: nn.Module, taken: Collection[str]) -> None:
        """Let ψ be the same share of the θ that was taken over, unless ψ was taken over as well."""
        set_psi(net, except_for=taken)

    def phases(self, task: str, round_: int, labelled: int) -> Sequence[Phase]:
        """Return one phase, which trains σ on labelled and ψ on unlabelled images."""
        rate = rate_of_round(self.settings.learning_rate, round_, self.settings)
        return [Phase(FedMatchObjective(self.settings), rate)]

    def rounds(self, state: FedMatchState, federation: Federation) -> Rounds:
        """Run the rounds; in every ``helper_every``-th one the participants have helpers."""
        settings = self.settings
        description = ProbeAnswers()
        while state.round < settings.rounds:
            round_ = state.round + 1
            sites = draw_participants(
                federation.sites, settings.participants, federation.seed, round_
            )
            helpers, decisions = self.choose_helpers(sites, round_, state)
            updates = yield Exchange(
                round_, state.model, self._tasks(sites, helpers, state, federation), decisions
            )
            state.model = mean_of(
                updates, TRAIN, self.weight, settings, state.model, federation.effective_replies
            )
            answers = {}
            for update in updates:
                # A site without unlabelled images returns the ψ that every site was sent. In a
                # mean of two helpers a site could subtract it, and be left with the other's ψ.
                if update.trained and update.unlabelled:
                    answers[update.site] = description.of(
                        update.state, federation.network, federation.seed
                    )
            state.remember(answers)
            state.round = round_

    def choose_helpers(
        self, sites: Sequence[str], round_: int, state: FedMatchState
    ) -> tuple[dict[str, list[str]], dict[str, Any]]:
        """Return the helpers of each site, and the exchange's decisions about them.

        A site's helpers are those whose models answer one image of noise most like the site's own
        last model. The released code finds them with a KD-tree.
        """
        settings = self.settings
        if round_ % settings.helper_every or not settings.helpers or not state.seen:
            return {site: [] for site in sites}, {}

        def choose(candidates: Candidates) -> Sequence[int]:
            return candidates.closest[: settings.helpers]

        return choose_peers(sites, state, ProbeAnswers().similarity, self.peer_rule, choose)

    def _tasks(
        self,
        sites: Sequence[str],
        helpers: Mapping[str, Sequence[str]],
        state: FedMatchState,
        federation: Federation,
    ) -> dict[str, ClientTask]:
        """Return each site's task, with the models of its helpers, or their mean."""
        tasks = {}
        for site in sites:
            models = self.peer_rule.models_sent([federation.models[name] for name in helpers[site]])
            sent = {role: HelperModel(state.model, helper) for role, helper in models.items()}
            tasks[site] = ClientTask(TRAIN, sent)
        return tasks

"""FedPerl's rounds (Bdair et al., MELBA 2022, Algorithm 1)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fedward.methods.aggregation import mean_of
from fedward.methods.algorithm import Algorithm
from fedward.methods.anonymous_peers import PeerRule
from fedward.methods.fedperl.descriptions import description_of
from fedward.methods.fedperl.peer_policies import (
    gated_similarity_policy,
    gated_validation_policy,
    validation_policy,
)
from fedward.methods.fedperl.pseudo_labels import FedPerlObjective
from fedward.methods.fedperl.settings import FedPerlSettings
from fedward.methods.fixmatch import fixmatch_losses
from fedward.methods.local import Phase
from fedward.methods.participants import draw_participants
from fedward.methods.peer_choice import Candidates, choose_peers, random_peers
from fedward.methods.peer_state import PeerState
from fedward.methods.proximal import with_proximal_term
from fedward.methods.requirements import Feature, Requirements, Sends, ServerNeeds
from fedward.methods.schedule import rate_of_round
from fedward.methods.server_labels import (
    AT_SERVER,
    images_at_server,
    server_phase,
    train_at_server,
)
from fedward.methods.site_weights import steps_taken
from fedward.methods.workflow import (
    TRAIN,
    ClientTask,
    ClientUpdate,
    Exchange,
    Federation,
    Rounds,
)
from fedward.model_state import State
from fedward.seeds import torch_generator


@dataclass
class FedPerlState(PeerState):
    """The server's state between two rounds, with the features of the sites that have trained."""

    features_name: ClassVar[str] = "features"
    accuracy: dict[str, float] = field(default_factory=dict)
    """Accuracy in [0, 1] of each site's last model on the server's validation images.

    It is empty if the policy does not need it.
    """


class FedPerl(Algorithm[FedPerlState]):
    """Peer learning with or without anonymisation (Alg. 1).

    What happens with fewer replies than asked for is as in SSFL, and:

    - a peer has left: its last model still teaches, because the server keeps it
    - a site has never trained: it gets no peer, and no other site gets it as a peer
    - peers are anonymised and only one is left: the site gets no peer in this round
    - a policy leaves no peer: the site trains without peers, as in SSFL

    With ``server_labels`` the server learns from labels, and all sites from pseudo-labels alone.
    Validation policies look at the server's validation images, on which it does not train.

    Deviates: Alg. 1 takes the plain mean of the sites, eq. (1) weights them by their images. Here
    they count by their steps, which gives the plain mean where ``images_per_round`` is set and no
    site skips a step.
    """

    settings_type = FedPerlSettings
    state_type = FedPerlState

    def __init__(self, settings: FedPerlSettings) -> None:
        self.settings = settings
        self.weight = steps_taken
        self.description = description_of(settings.similarity, settings.similarity_scale)
        self.peer_rule = PeerRule(settings.committee, settings.anonymise)
        images = images_at_server(settings)
        if settings.compares_accuracies:
            images |= {"validation"}
        self.requirements = Requirements(
            sends=Sends(
                losses=fixmatch_losses(settings) | {"loss_consistency"},
                logs=frozenset({"kept"}),
                records=frozenset({"peers"}),
            ),
            server=ServerNeeds(
                peers=self.peer_rule.most_models,
                lone_peers=self.peer_rule.lone_peers,
                images=images,
                network=self.description.needs_network,
            ),
            hidden_labels=settings.server_labels,
            reasons_against={
                Feature.SEVERAL_LABELS: settings.one_label,
                Feature.SECURE_AGGREGATION: (
                    "peers are chosen by, and made of, single sites' models;"
                    " ssfl is the same without peers"
                ),
            },
        )

    def phases(self, task: str, round_: int, labelled: int) -> Sequence[Phase]:
        """Return one phase of FixMatch with the peers; for the server's images, cross-entropy."""
        if self.settings.server_labels and task == AT_SERVER:
            return [server_phase(self.settings, round_)]
        rate = rate_of_round(self.settings.learning_rate, round_, self.settings)
        objective = FedPerlObjective(self.settings)
        return [Phase(with_proximal_term(objective, self.settings.proximal_weight), rate)]

    def rounds(self, state: FedPerlState, federation: Federation) -> Rounds:
        """Run the rounds of Bdair et al., MELBA 2022, Algorithm 1."""
        settings = self.settings
        if state.round == 0:
            train_at_server(state, 0, federation)
        while state.round < settings.rounds:
            round_ = state.round + 1
            sites = draw_participants(
                federation.sites, settings.participants, federation.seed, round_
            )
            peers, decisions = self.choose_peers(sites, round_, state, federation)
            # The tasks are not assigned to a variable, so that their models, one or more for each
            # site, are freed before the next round makes new ones.
            updates = yield Exchange(
                round_, state.model, self._tasks(sites, peers, federation), decisions
            )
            state.model = mean_of(
                updates, TRAIN, self.weight, settings, state.model, federation.effective_replies
            )
            trained = [update for update in updates if update.trained]
            self._describe(trained, state, federation)
            train_at_server(state, round_, federation)
            state.round = round_

    def _describe(
        self, trained: Sequence[ClientUpdate], state: FedPerlState, federation: Federation
    ) -> None:
        """Store the features and the accuracies of the models that sites have just trained."""
        features = {}
        for update in trained:
            features[update.site] = self.description.of(
                update.state, federation.network, federation.seed
            )
        state.remember(features)
        if federation.validate is not None:
            for update in trained:
                state.accuracy[update.site] = federation.validate(update.state)

    def choose_peers(
        self, sites: Sequence[str], round_: int, state: FedPerlState, federation: Federation
    ) -> tuple[dict[str, list[str]], dict[str, Any]]:
        """Return the peers Ω of each site, and the exchange's decisions about them.

        During the warm-up, and before any site has trained, no site has peers and there is nothing
        to decide.
        """
        settings = self.settings
        if round_ <= settings.warm_up or not state.seen:
            return {site: [] for site in sites}, {}
        index_of = state.indices_of(state.accuracy)
        accuracy = {index_of[site]: value for site, value in state.accuracy.items()}

        def choose(candidates: Candidates) -> list[int]:
            if settings.peers == "random":
                generator = torch_generator(federation.seed, "peers", round_, candidates.name)
                everyone = range(len(candidates.similarities))
                chosen = random_peers(candidates.site, settings.committee, everyone, generator)
            else:
                chosen = list(candidates.closest[: settings.committee])
            return self._teachers(candidates, chosen, accuracy)

        return choose_peers(sites, state, self.description.similarity, self.peer_rule, choose)

    def peer_models(self, peers: Sequence[str], federation: Federation) -> dict[str, State]:
        """Return the models that a site is sent: one anonymous model, or each peer's own."""
        return self.peer_rule.models_sent([federation.models[peer] for peer in peers])

    def _tasks(
        self,
        sites: Sequence[str],
        peers_of_sites: Mapping[str, Sequence[str]],
        federation: Federation,
    ) -> dict[str, ClientTask]:
        """Return the task of each site, with the models that it is sent of its peers."""
        return {
            site: ClientTask(TRAIN, self.peer_models(peers_of_sites[site], federation))
            for site in sites
        }

    def _teachers(
        self, candidates: Candidates, peers: Sequence[int], accuracy: Mapping[int, float]
    ) -> list[int]:
        """Return those of a site's chosen peers that the policy lets teach it.

        Args:
            candidates: the sites among which they were chosen.
            peers: their indices, in the order of choice.
            accuracy: index -> accuracy of the site's last model; empty if the policy needs none.
        """
        settings = self.settings
        site = candidates.site
        similarities = candidates.similarities
        if settings.policy == "validation":
            return validation_policy(peers, accuracy, site)
        if settings.policy == "gated_validation":
            return gated_validation_policy(peers, accuracy, settings.gate)
        if settings.policy == "gated_similarity":
            # Moments are scaled to [0, 1] over the sites. Those of fewer than three sites are 0,
            # 1 or constant, which says nothing that a gate could use.
            if settings.similarity_scale == "minmax" and len(similarities) < 3:
                return []
            return gated_similarity_policy(peers, similarities, site, settings.gate)
        return list(peers)

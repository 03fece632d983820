"""FedPerl's rounds (Bdair et al., MELBA 2022, Algorithm 1)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fedward.methods.algorithm import Algorithm, ServerState
from fedward.methods.fedavg import draw_participants, mean_of, steps_taken
from fedward.methods.fedperl.peers import anonymise, random_peers, top_peers
from fedward.methods.fedperl.policies import (
    gated_similarity_policy,
    gated_validation_policy,
    validation_policy,
)
from fedward.methods.fedperl.pseudo_labels import FedPerlObjective
from fedward.methods.fedperl.settings import FedPerlSettings
from fedward.methods.fedperl.similarity import layer_moments, similarity
from fedward.methods.local import Phase
from fedward.methods.requirements import Feature, Requirements, Sends, ServerNeeds
from fedward.methods.schedule import rate_of_round
from fedward.methods.server_optimizer import advance
from fedward.methods.workflow import ClientTask, Exchange, Federation, Rounds, State
from fedward.seeds import torch_generator

_LOGGED = 30
"""So many sites most like a participant are in the log of peers: its rows do not grow with the
federation.
"""


@dataclass
class FedPerlState(ServerState):
    """The server's state between two rounds; sites' models themselves are the federation's."""

    seen: list[str] = field(default_factory=list)
    """The sites that have trained, sorted."""
    rows: Mapping[str, Tensor] = field(default_factory=dict)
    """Their ``moments`` (M, 2L), in this order: one tensor, since there may be thousands of sites.
    """
    accuracy: dict[str, float] = field(default_factory=dict)
    """Accuracy of each site's last model on the server's validation images, if a policy asks for
    it.
    """

    @property
    def moments(self) -> dict[str, Tensor]:
        """Layer moments (2L,) of each site's last model."""
        return dict(zip(self.seen, self.rows.get("moments", ()), strict=True))

    def remember(self, moments: Mapping[str, Tensor]) -> None:
        """Put moments (2L,) of sites in the place of those of their models before, if any."""
        if not moments:
            return
        place = {
            site: index for index, site in enumerate([*self.seen, *moments])
        }  # the later one of two
        self.seen = sorted(place)
        rows = torch.cat([*self.rows.values(), torch.stack(list(moments.values()))])
        self.rows = {"moments": rows[[place[site] for site in self.seen]]}


class FedPerl(Algorithm[FedPerlState]):
    """Peer learning with or without anonymisation (Alg. 1).

    What happens with fewer replies than asked for: as SSFL; and

    - a peer has left: its last model still teaches: models are the server's
    - a site never trained: it gets no peer and is nobody's peer
    - one peer left, anonymised: no peer this round, unless ``allow_single_peer``
    - a policy leaves none: the site trains without peers, as in SSFL
    """

    settings_type = FedPerlSettings
    state_type = FedPerlState

    def __init__(self, settings: FedPerlSettings) -> None:
        self.settings = settings
        self.weight = steps_taken
        validates = settings.policy in ("validation", "gated_validation")
        self.requirements = Requirements(
            sends=Sends(
                losses=frozenset({"loss_supervised", "loss_pseudo", "loss_consistency"}),
                logs=frozenset({"kept"}),
                records=frozenset({"peers"}),
            ),
            server=ServerNeeds(
                peers=min(1, settings.committee) if settings.anonymise else settings.committee,
                lone_peers=_lone_peers(settings),
                images=frozenset({"validation"} if validates else ()),
            ),
            unsupported={
                Feature.SERVER_OPTIMIZER: "",
                Feature.SEVERAL_LABELS: settings.one_label,
                Feature.SECURE_AGGREGATION: (
                    "peers are chosen by, and made of, single sites' models;"
                    " ssfl is the same without peers"
                ),
            },
        )

    def phases(self, task: str, round_: int, labelled: int) -> Sequence[Phase]:
        """Return FixMatch together with the peers."""
        rate = rate_of_round(self.settings.learning_rate, round_, self.settings)
        return [Phase(FedPerlObjective(self.settings), rate)]

    def rounds(self, state: FedPerlState, federation: Federation) -> Rounds:
        """Bdair et al., MELBA 2022, Algorithm 1."""
        while state.round < self.settings.rounds:
            round_ = state.round + 1
            sites = draw_participants(
                federation.sites, self.settings.participants, federation.seed, round_
            )
            peers, record = self.choose_peers(sites, round_, state, federation)
            # No name for the work: its models, one or more a site, are freed before the next round
            # makes new ones.
            updates = yield Exchange(
                round_,
                state.model,
                {
                    site: ClientTask(models=self.peer_models(peers[site], federation))
                    for site in sites
                },
                record,
            )
            least = federation.effective_replies
            mean = mean_of(updates, "train", self.weight, self.settings, state.model, least)
            advance(state, mean, self.settings, federation.parameters)
            trained = [update for update in updates if update.steps]
            state.remember({update.site: layer_moments(update.state) for update in trained})
            if federation.validate is not None:
                state.accuracy |= {
                    update.site: federation.validate(update.state) for update in trained
                }
            state.round = round_

    def choose_peers(
        self, sites: Sequence[str], round_: int, state: FedPerlState, federation: Federation
    ) -> tuple[dict[str, list[str]], dict[str, Any]]:
        """Return each site's peers Omega by name, and a row for the log of peers (none during the
        warm-up).
        """
        choice = self.settings
        seen = state.seen
        chosen = dict[str, list[str]]({site: [] for site in sites})
        if round_ <= choice.warm_up or not seen:
            return chosen, {}
        index = {site: place for place, site in enumerate(seen)}
        known = [site for site in sorted(sites) if site in index]
        matrix = similarity(
            state.rows["moments"], choice.similarity_scale, [index[site] for site in known]
        )
        accuracy = {index[site]: value for site, value in state.accuracy.items()}
        nearest = list[list[str]]()
        values = list[list[float]]()
        for site, row in zip(known, matrix, strict=True):
            generator = torch_generator(federation.seed, "peers", round_, site)
            closest = _closest(row, index[site], max(choice.committee, _LOGGED))
            peers = self._committee(index[site], row, closest, accuracy, generator)
            lone = choice.anonymise and len(peers) == 1 and not choice.allow_single_peer
            chosen[site] = [] if lone else [seen[peer] for peer in peers]
            nearest.append([seen[peer] for peer in closest[:_LOGGED]])
            values.append(row[closest[:_LOGGED]].tolist())
        record = {"sites": known, "nearest": nearest, "similarity": values, "chosen": chosen}
        return chosen, {"peers": {**record, "anonymised": choice.anonymise}}

    def peer_models(self, peers: Sequence[str], federation: Federation) -> dict[str, State]:
        """Return what is sent: one anonymous model, or each peer's own."""
        models = [federation.models[peer] for peer in peers]
        if models and self.settings.anonymise:
            models = [anonymise(models)]
        return {f"peer{index}": model for index, model in enumerate(models)}

    def _committee(
        self,
        site: int,
        similarities: Tensor,
        closest: Sequence[int],
        accuracy: Mapping[int, float],
        generator: torch.Generator,
    ) -> list[int]:
        choice = self.settings
        peers = list(closest[: self.settings.committee])
        if choice.peers == "random":
            peers = random_peers(site, choice.committee, range(len(similarities)), generator)
        if choice.policy == "validation":
            return validation_policy(peers, accuracy, site)
        if choice.policy == "gated_validation":
            return gated_validation_policy(peers, accuracy, choice.gate)
        if choice.policy == "gated_similarity":
            # Min-max scaled features of fewer than three sites are 0, 1 or constant: no gate can
            # use them.
            enough = len(similarities) > 2
            return gated_similarity_policy(peers, similarities, site, choice.gate) if enough else []
        return peers


def _closest(similarities: Tensor, site: int, count: int) -> list[int]:
    """Return :func:`top_peers` of a site among all others, without sorting them all."""
    lowest = similarities.topk(min(count + 1, len(similarities))).values[
        -1
    ]  # one more: the site is in its own row
    return top_peers(
        similarities, site, count, (similarities >= lowest).nonzero().flatten().tolist()
    )


def _lone_peers(settings: FedPerlSettings) -> str:
    """Return the setting by which a peer may be no mean of two sites or more; empty where none can
    be.
    """
    if not settings.committee:
        return ""
    if not settings.anonymise:
        return "anonymise = false"
    return "allow_single_peer = true" if settings.allow_single_peer else ""

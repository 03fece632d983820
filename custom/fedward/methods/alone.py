"""Sites that train alone: the local baselines of a federation.

Bdair, Navab, Albarqouni, MELBA 2022, Sec. 3 ("Local models"): each site trains a model of its own,
on few labels (lower), on all labels (upper), or on few labels and its other images (FixMatch).
"""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from fedward.methods.aggregation import steps_taken
from fedward.methods.algorithm import Algorithm, ServerState
from fedward.methods.fixmatch import FixMatchSettings, fixmatch, fixmatch_losses
from fedward.methods.local import Phase
from fedward.methods.participants import draw_participants
from fedward.methods.requirements import EVERY_TENSOR, Feature, Requirements, Sends, TensorRules
from fedward.methods.schedule import rate_of_round
from fedward.methods.settings import Share
from fedward.methods.supervised import Supervised
from fedward.methods.workflow import ClientTask, Exchange, Federation, Rounds


class AloneSettings(FixMatchSettings):
    """Settings of sites that train alone. By default all train in every round."""

    learns_from: Literal["labels", "all_images"] = "labels"
    """What a site learns from: its labelled images; or, by FixMatch, all its images."""
    participants: int | None = Field(None, ge=1)
    """Sites that train in a round; None: all."""
    threshold: Share = 0.9
    """τ: smallest confidence of a pseudo-label. Paper: 0.9 at a single site."""
    proximal_weight: float = Field(0.0, ge=0.0, le=0.0)
    """Always 0: a site receives no model that it could stay close to."""


class Alone(Algorithm[ServerState]):
    """Each site trains a model of its own, which nobody else sees.

    A site begins with the server's first model and goes on with its own, which it keeps in its
    folder. No tensor leaves it. It evaluates its own model, so that every metric of the run is of
    the sites' own models; the server's model is the first one throughout.

    It is FedAvg with a single site, up to the rounding of an update: there the server adds a
    difference in float32 to the model that it sent. What happens with fewer replies than asked for:

    - some sites fail: they continue in the next round from the model that they kept
    - no site replies: three such rounds in a row end the run
    - a site has no labels: it declines every round, and its metrics are those of the first model
    - a site has lost its folder: it starts again from the first model, and its log says so
    """

    settings_type = AloneSettings
    state_type = ServerState

    def __init__(self, settings: AloneSettings) -> None:
        self.settings = settings
        self.weight = steps_taken
        if settings.learns_from == "labels":
            sends = Sends(losses=frozenset({"loss_supervised"}))
        else:
            sends = Sends(losses=fixmatch_losses(settings), logs=frozenset({"kept"}))
        no_mean = "its sites send no model, so that there is no mean"
        self.requirements = Requirements(
            sends=sends,
            tensors=TensorRules(private=(EVERY_TENSOR,)),
            unsupported={
                Feature.SECURE_AGGREGATION: no_mean,
                Feature.ROBUST_MEAN: no_mean,
                Feature.FLOAT16_UPDATES: "its sites send no update",
                Feature.SEVERAL_LABELS: settings.one_label,
            },
        )

    def phases(self, task: str, round_: int, labelled: int) -> Sequence[Phase]:
        """Return one phase of cross-entropy or FixMatch; none at a site without labels."""
        if not labelled:
            return []
        rate = rate_of_round(self.settings.learning_rate, round_, self.settings)
        if self.settings.learns_from == "labels":
            return [Phase(Supervised(), rate)]
        return [Phase(fixmatch(self.settings), rate)]

    def rounds(self, state: ServerState, federation: Federation) -> Rounds:
        """Let the sites train in rounds, so that their models are evaluated in between."""
        settings = self.settings
        while state.round < settings.rounds:
            round_ = state.round + 1
            sites = draw_participants(
                federation.sites, settings.participants, federation.seed, round_
            )
            yield Exchange(round_, state.model, {site: ClientTask() for site in sites})
            state.round = round_

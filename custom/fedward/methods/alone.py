"""Sites that train alone: the local baselines of a federation.

Bdair, Navab, Albarqouni, MELBA 2022, Sec. 3 ("Local models"): each site trains a model of its own,
from few labels (lower), from all labels (upper), or from few labels and unlabelled images
(FixMatch).
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field

from fedward.methods.algorithm import Algorithm, ServerState
from fedward.methods.fixmatch import fixmatch, fixmatch_losses
from fedward.methods.local import Phase
from fedward.methods.participants import draw_participants
from fedward.methods.pseudo_labels.settings import FixMatchSettings
from fedward.methods.requirements import EVERY_TENSOR, Feature, Requirements, Sends, TensorRules
from fedward.methods.schedule import rate_of_round
from fedward.methods.settings import NeededSetting, UnitInterval
from fedward.methods.site_weights import steps_taken
from fedward.methods.supervised import Supervised
from fedward.methods.workflow import TRAIN, ClientTask, Exchange, Federation, Rounds


class AloneSettings(FixMatchSettings):
    """Settings of sites that train alone. By default all train in every round."""

    learns_from: Literal["labels", "all_images"] = "labels"
    """Whether a site learns from its labelled images, or by FixMatch from all its images."""
    participants: int | None = Field(None, ge=1)
    """Sites that train in a round; None: all."""
    threshold: UnitInterval = 0.9
    """τ: smallest confidence of a pseudo-label. Paper: 0.9 at a single site."""
    proximal_weight: float = Field(0.0, ge=0.0, le=0.0)
    """Always 0: a site receives no model that it could stay close to."""
    server_labels: Literal[False] = False
    """Always false: a site receives nothing that a server could have trained."""

    @property
    def without_effect(self) -> Mapping[str, NeededSetting | None]:
        """See :attr:`fedward.methods.settings.Settings.without_effect`."""
        needed = dict(super().without_effect)
        if self.learns_from == "labels":
            of_pseudo_labels = (
                "threshold",
                "pseudo_labels",
                "temperature",
                "unlabelled_weight",
                "pseudo_label_mean",
            )
            needed |= dict.fromkeys(of_pseudo_labels, NeededSetting("learns_from", "all_images"))
        return needed


class Alone(Algorithm[ServerState]):
    """Each site trains a model of its own, which it sends to nobody.

    A site starts from the server's first model and continues from its own, which it keeps in its
    folder. It sends no tensor. It evaluates its own model, so that all metrics of the run are those
    of the sites' own models. The server's model stays the first one.

    The result equals FedAvg with a single site up to rounding: there the server adds a float32
    difference to the model that it sent. What happens with fewer replies than asked for:

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
        sends_no_model = "its sites send no model, so that there is no mean"
        self.requirements = Requirements(
            sends=sends,
            tensors=TensorRules(private=(EVERY_TENSOR,)),
            reasons_against={
                Feature.SECURE_AGGREGATION: sends_no_model,
                Feature.ROBUST_MEAN: sends_no_model,
                Feature.MOVING_AVERAGE: sends_no_model,
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
        """Let the sites train in rounds, after each of which their models can be evaluated."""
        settings = self.settings
        while state.round < settings.rounds:
            round_ = state.round + 1
            sites = draw_participants(
                federation.sites, settings.participants, federation.seed, round_
            )
            yield Exchange(round_, state.model, {site: ClientTask(TRAIN) for site in sites})
            state.round = round_

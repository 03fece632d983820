"""A survey: the sites count what their images are, so that people know it before they train."""

from collections.abc import Sequence

from pydantic import Field

from fedward.methods.algorithm import Algorithm, ServerState
from fedward.methods.fedavg import draw_participants
from fedward.methods.local import Phase
from fedward.methods.requirements import Feature, Requirements, Sends
from fedward.methods.settings import AllImages, StepSize
from fedward.methods.workflow import SURVEY, ClientTask, Exchange, Federation, Rounds, State

LOG = "surveys"
"""Of the run folder, with a row per site that has answered."""


class SurveySettings(AllImages):
    """One round, to which every site is asked; nothing is trained, so that no rate counts."""

    rounds: int = Field(1, ge=1, le=1)
    """Counts of the same images would be the same in every further round."""

    @property
    def step_sizes(self) -> Sequence[StepSize]:
        """Return nothing: no optimiser steps."""
        return ()


def nothing(task: str, labelled: int, unlabelled: int, steps: int) -> int:
    """Give no site a weight: there is no mean."""
    return 0


class Survey(Algorithm[ServerState]):
    """Asks every site once what its images are. No model is sent, and none comes of it."""

    settings_type = SurveySettings
    state_type = ServerState

    def __init__(self, settings: SurveySettings) -> None:
        why = "it averages no models"
        self.settings = settings
        self.weight = nothing
        self.requirements = Requirements(
            sends=Sends(records=frozenset({LOG})),
            unsupported={
                Feature.SECURE_AGGREGATION: why,
                Feature.ROBUST_MEAN: why,
                Feature.TRAIN_HEAD: why,
                Feature.TRAIN_LAST_BLOCKS: why,
                Feature.TRAIN_ADAPTERS: why,
                Feature.FLOAT16_UPDATES: why,
            },
            survey=True,
        )

    def start(self, model: State) -> ServerState:
        """Return the state before the round, without the model."""
        return ServerState(0, {})

    def phases(self, task: str, round_: int, labelled: int) -> Sequence[Phase]:
        """Return nothing: no task is a training."""
        return []

    def rounds(self, state: ServerState, federation: Federation) -> Rounds:
        """Ask the sites until enough of them have answered, and write down what they say."""
        while state.round < self.settings.rounds:
            sites = draw_participants(
                federation.sites, self.settings.participants, federation.seed, 1
            )
            updates = yield Exchange(
                1, {}, {site: ClientTask(SURVEY) for site in sites}, evaluate=False
            )
            told = [
                {"round": 1, "site": update.site, **update.survey}
                for update in updates
                if update.survey
            ]
            for row in told:
                federation.record(LOG, row)
            state.round = int(bool(told))

"""The controllers that jobs name.

A method whose rounds are not all alike has a controller of its own, which says for each round what
it is for; ``show_stats`` and ``fedward status`` show that of a running job. All other methods share
:class:`MethodController`. What the server computes in a round is in the method's file below
``fedward/methods``, and how it does so over FLARE in :mod:`fedward.flare.controller`.
"""

from typing import Any

from fedward.flare.controller import ExperimentController
from fedward.methods.fedal.queries import ActiveLearning, ActiveSettings
from fedward.methods.fedperl.settings import FedPerlSettings
from fedward.methods.selffed.settings import SelfFedSettings
from fedward.methods.workflow import QUERY


class FedPerlController(ExperimentController, method="fedperl"):
    """Selects peers: each participant gets the mean of the models that are most like its own.

    With the peers' help it labels the images that have no label. Nobody has peers in the first
    ``warm_up`` rounds.

    Args: those of :class:`~fedward.methods.fedperl.settings.FedPerlSettings`.
    """

    settings: FedPerlSettings

    def round_purpose(self, round_: int) -> str:
        """Return whether the participants of a round have peers."""
        if not self.settings.committee:
            return "participants train, without peers"
        if round_ <= self.settings.warm_up:
            return f"warm-up without peers, until round {self.settings.warm_up}"
        peers = "the models most like their own"
        if self.settings.similarity == "answers":
            peers = "the models that answer an image of noise most like their own"
        if self.settings.peers == "random":
            peers = "models drawn at random"
        return f"participants train with at most {self.settings.committee} peers each: {peers}"


class IsoFedController(ExperimentController, method="isofed"):
    """Switches between two groups in every round: sites without labels, then sites with labels.

    The labelled group starts from the average of the unlabelled one. Every site adapts the model to
    its own images before it trains.

    Args: those of :class:`~fedward.methods.isofed.IsoFedSettings`.
    """

    GROUPS = ("sites without labels", "sites with labels")
    """Who trains in the exchanges of a round, in this order."""

    def round_purpose(self, round_: int) -> str:
        """Return the groups in the order of their turns."""
        return ", then ".join(self.GROUPS)


class FedALController(ExperimentController, method="fedal"):
    """Has query rounds, in which each site asks its annotators for labels.

    There are ``steps`` of them, every ``query_every`` rounds. All rounds train and average.

    Args: those of :class:`~fedward.methods.fedal.queries.ActiveSettings`.
    """

    settings: ActiveSettings

    def round_purpose(self, round_: int) -> str:
        """Return which query a round has, or when the next one comes."""
        step = (round_ - 1) // self.settings.query_every
        last_query = 1 + self.settings.steps * self.settings.query_every
        if round_ > last_query:
            return "sites train; those that missed a query ask for its labels"
        if ActiveLearning(self.settings).task(round_) == QUERY:
            return f"query {step} of {self.settings.steps}: sites ask for labels, then train"
        next_query = 1 + (step + 1) * self.settings.query_every
        return f"sites train; the next query comes in round {next_query}"


class SelfFedController(ExperimentController, method="selffed"):
    """Runs two phases: sites pre-train without labels, then fine-tune with them.

    The first has ``pretraining_rounds`` rounds. In the second, the server may contrast public
    images of its own between two rounds.

    Args: those of :class:`~fedward.methods.selffed.settings.SelfFedSettings`.
    """

    settings: SelfFedSettings

    def round_purpose(self, round_: int) -> str:
        """Return the phase of a round, and where it is in that phase."""
        before = self.settings.pretraining_rounds
        if round_ <= before:
            return f"phase 1, pre-training without labels: round {round_} of {before}"
        rounds = self.settings.rounds - before
        return f"phase 2, fine-tuning with labels: round {round_ - before} of {rounds}"


class SurveyController(ExperimentController, method="survey"):
    """Asks the sites once what their images are, and trains nothing.

    Args: those of :class:`~fedward.methods.survey.SurveySettings`.
    """


class MethodController(ExperimentController):
    """Runs any other method, also one that an installed package adds; docs/extending.md.

    Args:
        method: its name, such as ``fedavg``.
        arguments: its settings, ``experiment`` and ``init``.
    """

    def __init__(self, method: str, **arguments: Any) -> None:
        self.method = method
        super().__init__(**arguments)

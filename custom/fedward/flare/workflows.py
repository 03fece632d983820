"""The controllers that jobs name.

A method whose rounds are not all alike has a controller of its own, which says for each round what
it is for; ``show_stats`` and ``fedward status`` show that of a running job. So has the method whose
sites train alone, because its rounds end without an average. All other methods share
:class:`MethodController`. What the server computes in a round is in the method's file below
``fedward/methods``, and how it does so over FLARE in :mod:`fedward.flare.controller`.
"""

from typing import Any

from fedward.flare.controller import ExperimentController
from fedward.methods.fedal.query_rounds import ActiveLearning, ActiveSettings
from fedward.methods.fedirm.settings import FedIRMSettings
from fedward.methods.fedmatch.settings import FedMatchSettings
from fedward.methods.fedperl.settings import FedPerlSettings
from fedward.methods.isofed import IsoFedSettings
from fedward.methods.mean_teacher import MeanTeacherSettings
from fedward.methods.selffed.settings import SelfFedSettings
from fedward.methods.survey import Survey
from fedward.methods.workflow import QUERY
from fedward.text import count

SERVER_TRAINS = "the server trains on its labelled images"
"""What ends a round of a job whose labels are at the server."""


class FedPerlController(ExperimentController, method="fedperl"):
    """Selects peers: each participant gets the mean of the models that are most like its own.

    With the peers' help it labels the images that have no label. Nobody has peers in the first
    ``warm_up`` rounds. With ``server_labels`` the server trains after each average.

    Args: those of :class:`~fedward.methods.fedperl.settings.FedPerlSettings`.
    """

    settings: FedPerlSettings

    def round_purpose(self, round_: int) -> str:
        """Return whether the participants of a round have peers, and whether the server trains."""
        purpose = self._purpose_at_sites(round_)
        return f"{purpose}; then {SERVER_TRAINS}" if self.settings.server_labels else purpose

    def _purpose_at_sites(self, round_: int) -> str:
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
        most = count(self.settings.committee, "peer")
        return f"participants train with at most {most} each: {peers}"


class IsoFedController(ExperimentController, method="isofed"):
    """Switches between two groups in every round: sites without labels, then sites with labels.

    The labelled group starts from the average of the unlabelled one. Every site adapts the model to
    its own images before it trains. In the first ``warm_up`` rounds only sites with labels train.

    Args: those of :class:`~fedward.methods.isofed.IsoFedSettings`.
    """

    settings: IsoFedSettings

    GROUPS = ("sites without labels", "sites with labels")
    """Who trains in the exchanges of a round, in this order."""

    def round_purpose(self, round_: int) -> str:
        """Return the groups in the order of their turns, of which the warm-up has one."""
        if round_ <= self.settings.warm_up:
            return _warm_up(self.settings)
        return ", then ".join(self.GROUPS)


class FedALController(ExperimentController, method="fedal"):
    """Has query rounds, in which each site asks its annotators for labels.

    There are ``steps`` of them, every ``query_every`` rounds. All rounds train and average.

    Args: those of :class:`~fedward.methods.fedal.query_rounds.ActiveSettings`.
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


class FedMatchController(ExperimentController, method="fedmatch"):
    """Sends helpers: each participant gets ψ of the sites whose models answer most like its own.

    It does so in every ``helper_every``-th round. All rounds train and average.

    Args: those of :class:`~fedward.methods.fedmatch.settings.FedMatchSettings`.
    """

    settings: FedMatchSettings

    def round_purpose(self, round_: int) -> str:
        """Return whether the participants of a round have helpers, or when they will."""
        settings = self.settings
        rounds_since_helpers = round_ % settings.helper_every
        if settings.helpers and not rounds_since_helpers:
            most = count(settings.helpers, "helper")
            return (
                f"participants train with at most {most} each: the sites whose models answer an "
                "image of noise most like their own"
            )
        next_helpers = round_ - rounds_since_helpers + settings.helper_every
        if not settings.helpers or next_helpers > settings.rounds:
            return "participants train, without helpers"
        return f"participants train; the next helpers come in round {next_helpers}"


class FedIRMController(ExperimentController, method="fedirm"):
    """Has all sites train together, and hands on how classes relate at sites with labels.

    In the first ``warm_up`` rounds only sites with labels train.

    Args: those of :class:`~fedward.methods.fedirm.settings.FedIRMSettings`.
    """

    settings: FedIRMSettings

    def round_purpose(self, round_: int) -> str:
        """Return which sites train in a round, and what they do about the relations of classes."""
        if round_ <= self.settings.warm_up:
            return _warm_up(self.settings)
        return "sites with labels measure how classes relate, and sites without labels match it"


class AloneController(ExperimentController, method="alone"):
    """Lets each site train a model of its own, and averages nothing.

    Args: those of :class:`~fedward.methods.alone.AloneSettings`.
    """

    def round_purpose(self, round_: int) -> str:
        """Return that no model leaves a site."""
        return "each site trains a model of its own; nothing is averaged"


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

    def round_purpose(self, round_: int) -> str:
        """Return what sites and server do, if the labels are at the server; otherwise nothing."""
        algorithm = self.algorithm
        assert not isinstance(algorithm, Survey), "a survey has a controller of its own"
        if "labels" not in algorithm.requirements.server.images:
            return ""
        if not algorithm.requirements.sends.losses:
            return f"{SERVER_TRAINS}; sites have nothing to learn from"
        return f"sites train without labels; then {SERVER_TRAINS}"


def _warm_up(settings: MeanTeacherSettings) -> str:
    """Return what happens in a round of a warm-up."""
    return f"warm-up of sites with labels alone, until round {settings.warm_up}"

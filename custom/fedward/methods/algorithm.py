"""What an algorithm is to the runtime: its settings, its requirements, and its two halves."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar

from fedward.methods.abilities import LabelPurchases, NetworkExtension, PictureMaker
from fedward.methods.local import Phase
from fedward.methods.requirements import Requirements
from fedward.methods.settings import Settings
from fedward.methods.workflow import Federation, Rounds, State


@dataclass
class ServerState:
    """The server's state between two rounds; algorithms add to it what they carry on."""

    round: int
    """Rounds finished."""
    model: State
    """The global model."""
    optimizer: State = field(default_factory=dict, kw_only=True)
    """Momentum of the server's optimiser, ``first/<tensor>``; empty before its first step."""
    average: State = field(default_factory=dict, kw_only=True)
    """The moving average of the global model; nothing before the first round, and where the
    settings want none.
    """

    @property
    def evaluated(self) -> State:
        """The model that is evaluated and saved: the average where there is one."""
        return self.average or self.model


StateT = TypeVar("StateT", bound=ServerState)
Weight: TypeAlias = Callable[[str, int, int, int], int]
"""Task, labelled images, unlabelled images and steps of a site that took some, to what it counts
for in a mean.
"""


def evaluation_turn(algorithm: "Algorithm[Any]", round_: int) -> tuple[int, int]:
    """Return round and part of the exchange in which the model after ``round_`` rounds is
    evaluated.

    That is the first one of the next round, which begins with this model. An average does not begin
    it: between two rounds it has an exchange of its own, behind all of its round.
    """
    settings = algorithm.settings
    if settings.average_decay and 0 < round_ < settings.rounds:
        return round_, algorithm.requirements.server.exchanges
    return round_ + 1, 0


class Algorithm(Protocol[StateT]):
    """A federated method, both its halves. It holds settings only: its state is handed on.

    A class of :data:`fedward.methods.METHODS`, made of its settings. Abilities that few algorithms
    have are attributes, None by default.
    """

    settings_type: ClassVar[type[Settings]]
    """What the options of a job are checked against; a wrong one is refused before the run."""
    state_type: type[StateT]
    """A dataclass: what the server saves after each round, and goes on from when it resumes."""
    settings: Settings
    """Those of the job, checked."""
    requirements: Requirements
    """What it needs, and what its sites may send, with these settings."""
    weight: Weight
    """The one rule of what a site counts for, in plain means, where it is capped, and in encrypted
    updates.
    """
    active: LabelPurchases | None = None
    """Where sites buy labels: when, and for which images."""
    extend: NetworkExtension | None = None
    """Adds to a fresh network what the algorithm trains besides it."""
    pictures: PictureMaker | None = None
    """Draws what :attr:`Federation.show` keeps."""

    def __init__(self, settings: Any) -> None: ...

    def start(self, model: State) -> StateT:
        """Return the state before the first round."""
        return self.state_type(0, model)

    def rounds(self, state: StateT, federation: Federation) -> Rounds:
        """Go through the rounds that are left: ask sites, change the state."""
        ...

    def phases(self, task: str, round_: int, labelled: int) -> Sequence[Phase]:
        """Return what a site does for a task in its round, from 1; nothing if the task is not for a
        site like it.

        ``task`` is that of its :class:`~fedward.methods.workflow.ClientTask`; ``labelled`` counts
        its training images.
        """
        ...

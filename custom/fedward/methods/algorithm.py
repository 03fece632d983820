"""What an algorithm is to the runtime: its settings, its requirements, and its two halves."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeVar

from torch import nn

from fedward.methods.abilities import LabelPurchases, NetworkExtension, PictureMaker
from fedward.methods.local import Phase
from fedward.methods.requirements import Requirements
from fedward.methods.settings import Settings
from fedward.methods.site_weights import SiteWeight
from fedward.methods.workflow import Federation, Rounds
from fedward.model_state import State


@dataclass
class ServerState:
    """The server's state between two rounds. Algorithms add what they carry from round to round."""

    round: int
    """Number of finished rounds."""
    model: State
    """The global model."""
    average: State = field(default_factory=dict, kw_only=True)
    """Moving average of the global model. Empty before the first round, and where none is kept.

    The server's loop keeps it, whatever the method, and no site trains from it."""

    @property
    def evaluated(self) -> State:
        """The model that is evaluated and saved: the average where there is one."""
        return self.average or self.model


StateT = TypeVar("StateT", bound=ServerState)


class Algorithm(Protocol[StateT]):
    """A federated method: what the server does, and what a site does.

    It is made of its settings and holds nothing else; its state is passed to it. Abilities that few
    algorithms have are attributes, None by default.
    """

    settings_type: ClassVar[type[Settings]]
    """Checks the options of a job before the run."""
    state_type: type[StateT]
    """A dataclass: what the server saves after each round, and resumes from."""
    settings: Settings
    """The job's settings, checked."""
    requirements: Requirements
    """What the algorithm needs, and what its sites may send, with these settings."""
    weight: SiteWeight
    """What a site counts for, in plain means, where counts are capped, and in encrypted updates."""
    active: LabelPurchases | None = None
    """Where sites buy labels: when, and for which images."""
    extend: NetworkExtension | None = None
    """Adds to a fresh network what the algorithm trains besides it."""
    pictures: PictureMaker | None = None
    """Draws what :attr:`Federation.show` keeps."""

    def __init__(self, settings: Any) -> None: ...

    def complete(self, net: nn.Module, taken: Collection[str]) -> None:
        """Set what :attr:`extend` added, once a network has taken over weights of another run.

        By default it stays as in a fresh network.

        Args:
            net: the network, changed in place.
            taken: names of the tensors that were taken over.
        """

    def start(self, model: State) -> StateT:
        """Return the state before the first round."""
        return self.state_type(0, model)

    def rounds(self, state: StateT, federation: Federation) -> Rounds:
        """Go through the rounds that remain: ask sites, and change the state."""
        ...

    def phases(self, task: str, round_: int, labelled: int) -> Sequence[Phase]:
        """Return what a site does for a task in a round.

        Args:
            task: the name of its :class:`~fedward.methods.workflow.ClientTask`.
            round_: the round, from 1.
            labelled: number of the site's labelled training images.

        Returns:
            The phases in order. Empty where the task is not for a site like this one, which then
            declines.
        """
        ...

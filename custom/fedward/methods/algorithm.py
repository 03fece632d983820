"""What an algorithm is to the runtime: what it needs, what its sites may send, and the calls that
are made of it.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeAlias, TypeVar

from torch import Tensor, nn

from fedward.errors import ConfigError
from fedward.methods.local import Phase
from fedward.methods.settings import Settings
from fedward.methods.workflow import Federation, Rounds, State

if TYPE_CHECKING:
    from fedward.methods.fedal.queries import ActiveLearning

COMMON_RECORDS = frozenset({"metrics", "rounds", "queries", "bytes", "binned"})
"""Logs that every run folder has."""
COMMON_LOGS = frozenset({"loss", "seconds"})
"""Numbers of a training that every site reports: the mean of the sum of all losses, and how long it
took.
"""
_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Requirements:
    """All that an algorithm needs of the runtime, and all that its sites may send: what is not
    named is refused.

    Raises ConfigError for names that cannot be.
    """

    losses: frozenset[str] = frozenset()
    """Names of loss terms; each begins with ``loss_``."""
    logs: frozenset[str] = frozenset()
    """Names of further scalars of a training step, such as the share of pseudo-labels kept."""
    records: frozenset[str] = frozenset()
    """Names of logs in the run folder besides :data:`COMMON_RECORDS`, to which the workflow adds
    rows.
    """
    exchanges: int = 1
    """How many exchanges a round has at most; sites refuse further ones."""
    peers: int = 0
    """Models besides the global one that a site is sent at most: ``peer0``, ``peer1`` and so on."""
    lone_peers: str = ""
    """The setting by which a site may be sent another site's own model; empty where it cannot be.
    """
    single_models: str = ""
    """Why the mean of the sites' models by ``weight`` is not enough for the server; empty where it
    is.
    """
    weights: str = ""
    """Why no median can stand for the mean; empty where one can."""
    server_optimizer: bool = False
    """Whether its rounds end with the step of the server's optimiser, so that a job may choose one.
    """
    whole: str = ""
    """Why no part of the network can be frozen; empty where one can."""
    trainable: str = ""
    """The only part of a network that a job may train with it; empty where jobs choose."""
    exact: str = ""
    """Why its updates cannot be rounded to float16; empty where they can."""
    one_label: str = "its losses take one label an image"
    """Why an image cannot show several classes, or none; empty where it can."""
    plain: bool = False
    """Whether sites look at their labelled images as they are, and at no views and no other
    training images.
    """
    common_classes: bool = False
    """Whether sites leave out labelled images of rare classes, as what they send tells of each
    class by itself.
    """
    survey: bool = False
    """Whether sites count what their images are, in place of training: there is no model, and
    policies ask.
    """
    one_process: str = ""
    """Why several processes cannot share a site's training; empty where they can."""
    server_images: frozenset[Literal["validation", "training", "pictures"]] = frozenset()
    """What the server's own images are for: :attr:`Federation.validate`, ``learn`` and ``show``."""
    private: tuple[str, ...] = ()
    """First parts of the names of tensors that a site trains and keeps for itself."""
    excluded: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Task -> first parts of the names of tensors that it does not train, so that they do not go up
    after it.
    """
    untrained: tuple[str, ...] = ()
    """First parts of the names of tensors behind the logits that no round trains: such a model is
    not evaluated.
    """
    per_class: tuple[str, ...] = ()
    """First parts of the names of tensors that the algorithm adds and that, as a classifier's,
    belong to classes.
    """

    def __post_init__(self) -> None:
        names = self.losses | self.logs | self.records
        wrong = {name for name in names if not _NAME.fullmatch(name)}
        wrong |= {name for name in self.losses if not name.startswith("loss_")}
        wrong |= self.records & COMMON_RECORDS | self.logs & COMMON_LOGS
        if wrong:
            expected = "names of small letters, digits and _, loss_* for losses, and none that all algorithms have"
            where = "requirements of an algorithm"
            remedy = "Choose other names for its losses, logs and records."
            raise ConfigError(
                where, expected=expected, found=", ".join(sorted(wrong)), remedy=remedy
            )

    @property
    def reported(self) -> frozenset[str]:
        """Names of the numbers that a site may report of its training."""
        return COMMON_LOGS | self.losses | self.logs

    def withheld(self, task: str) -> tuple[str, ...]:
        """Return first parts of the names of tensors that do not go up after a task: the server has
        its own.
        """
        return tuple(dict.fromkeys((*self.private, *self.excluded.get(task, ()))))


@dataclass
class ServerState:
    """The server's state between two rounds; algorithms add to it what they carry on."""

    round: int
    """Rounds finished."""
    model: State
    """The global model."""
    optimizer: State = field(default_factory=dict, kw_only=True)
    """Moments of the server's optimiser, ``first/<tensor>`` and ``second/<tensor>``; nothing before
    its first step.
    """
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
        return round_, algorithm.requirements.exchanges
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
    active: "ActiveLearning | None" = None
    """Where sites buy labels: when, and for which images."""
    extend: Callable[[nn.Module], None] | None = None
    """Adds to a fresh network what the algorithm trains besides it."""
    pictures: Callable[[nn.Module, Tensor], dict[str, Tensor]] | None = None
    """What :attr:`Federation.show` keeps, by name: pictures of the shape of the images (N, C, H, W)
    in [0, 1] given.
    """

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

"""How a method's server half talks to the loop over rounds: exchanges with sites, and updates.

A workflow knows tensors and site names only. :mod:`fedward.server` decides how they travel.
"""

from collections.abc import Callable, Collection, Generator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

from torch import Tensor

from fedward.model_state import State

TRAIN = "train"
"""Task in which sites train, in methods that have one task in a round."""
QUERY = "query"
"""Task in which sites ask for the labels that are due, and train with those that they get."""
EMPTY_ROUNDS_IN_A_ROW = 3
"""Rounds in a row without a result after which a run ends.

The server counts exchanges without a usable update, as many as these rounds have at most. Methods
with two groups count rounds without an average. A run that is resumed begins both counts again.
"""


class Turn(NamedTuple):
    """The place of an exchange in a run."""

    round: int
    """The round, from 1."""
    part: int
    """Number of the exchange in its round, from 0."""


@dataclass(frozen=True)
class ClientTask:
    """What one site is asked to do in one exchange."""

    name: str = TRAIN
    """The task as :meth:`Algorithm.phases` takes it, one of :attr:`Requirements.tasks`."""
    models: Mapping[str, State] = field(default_factory=dict)
    """Models that only this site is sent, by role, such as ``{"peer0": ...}``.

    Their floating-point tensors travel."""


@dataclass(frozen=True)
class Exchange:
    """One exchange with the sites: the model that all of them are sent, and each site's task."""

    round: int
    """The round, from 1."""
    model: State
    """The model that all sites asked are sent. They evaluate it where an evaluation is due."""
    tasks: Mapping[str, ClientTask]
    """Site -> its task. Other sites are asked to evaluate at most."""
    decisions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What the method has decided for this exchange, such as ``{"peers": {...}}``.

    By log of the run folder, fields of a row besides the round, as JSON values. The audit log has
    them before anything is sent. What a method finds in answers goes to :attr:`Federation.record`.
    """
    part: int = 0
    """Number of the exchange in its round, from 0.

    A site that is asked twice in a round draws different random numbers in each part."""
    evaluate: bool = True
    """Whether the model may be evaluated; False for one whose classifier is not trained yet."""

    @property
    def turn(self) -> Turn:
        """Its place in the run."""
        return Turn(self.round, self.part)


@dataclass(frozen=True)
class ClientUpdate:
    """One site's accepted answer. A site without a task, which only evaluated, has one too."""

    site: str
    """Name of the site."""
    state: State
    """The site's model after training: the model it was sent plus the difference it returned."""
    labelled: int
    """Number of labelled training images at the site."""
    unlabelled: int
    """Number of unlabelled training images at the site."""
    steps: int
    """Optimiser steps taken; a batch that was measured counts as one.

    With 0, ``state`` is the model that the site was sent.
    """

    @property
    def trained(self) -> bool:
        """Whether the site trained its model."""
        return self.steps > 0


class ServerNetwork(Protocol):
    """The run's network at the server, for images that a workflow makes itself."""

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Shape (C, H, W) of the images that it takes."""
        ...

    @property
    def class_rows(self) -> Collection[str]:
        """Names of a model's tensors that have one row for each class: the classifier's."""
        ...

    def logits(self, model: State, images: Tensor) -> Tensor:
        """Return a model's logits (N, K) on images (N, C, H, W) float32 in [0, 1].

        The network is in evaluation mode, and nothing has a gradient.
        """
        ...


@dataclass(frozen=True)
class Federation:
    """What a workflow may know and do, besides its own state.

    ``validate``, ``learn``, ``show`` and ``network`` are None unless the method's requirements name
    them.
    """

    sites: Sequence[str]
    """All sites of the run, sorted."""
    seed: int
    """The experiment's seed, from which a workflow derives all its draws (:mod:`fedward.seeds`)."""
    models: Mapping[str, State]
    """Each site's last accepted model, read from disk; sites that never trained are absent."""
    validate: Callable[[State], float] | None = None
    """Returns the accuracy in [0, 1] of a model on the server's own validation images."""
    record: Callable[[str, dict[str, Any]], None] = lambda log, row: None
    """Adds a row to a log of the run folder: what the method has found in the answers of a round.

    The row has JSON values and names its round. Under secure aggregation it is not added, because
    the method sees the mean in place of each site's model.
    """
    learn: Callable[[State, int, str, MutableMapping[str, State]], State] | None = None
    """Trains a model on the server's own images, as at a site, and returns it.

    It sees their labels only where the requirements name ``labels``. The arguments are the model,
    the round, the task and the memory, which is changed."""
    show: Callable[[State, Mapping[str, Any]], None] | None = None
    """Keeps a method's pictures of a model on the server's own images, with facts in JSON."""
    network: ServerNetwork | None = None
    """The run's network, with which a workflow looks at what models answer."""
    effective_replies: float = 1.0
    """Effective number of replies that each average must be worth.

    See :attr:`fedward.methods.weight_limits.WeightLimits.effective_replies`."""


Rounds: TypeAlias = Generator[Exchange, "list[ClientUpdate]", None]
"""A server workflow: yields exchanges, and receives the accepted updates in the order of names."""

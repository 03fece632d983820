"""What a method's server half says to the loop over rounds: an exchange with the sites, and their
updates.

A workflow knows tensors and site names only. :mod:`fedward.server` decides how they travel.
"""

from collections.abc import Callable, Collection, Generator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from fedward.model_state import State as State  # noqa: PLC0414 - methods import it from here

QUERY = "query"
"""Task of an exchange in which sites ask for the labels that are due, and train with what they get."""


@dataclass(frozen=True)
class ClientTask:
    """What one site is asked to do in one exchange."""

    name: str = "train"
    """Its kind, by which :meth:`Algorithm.phases` tells what the site does."""
    models: Mapping[str, State] = field(default_factory=dict)
    """Models only this site gets, by role, e.g. ``{"peer0": ...}``; floating-point tensors travel.
    """


@dataclass(frozen=True)
class Exchange:
    """One exchange with the sites: the model all of them get, and the task of each site."""

    round: int
    """From 1."""
    model: State
    """What all sites asked get, and evaluate where its turn has come."""
    tasks: Mapping[str, ClientTask]
    """Site -> its task; other sites are only asked to evaluate."""
    record: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """JSON-able rows for the run folder's logs, by log name, such as ``{"peers": {...}}``."""
    part: int = 0
    """Which exchange of the round this is, from 0: a site asked twice in a round draws other
    numbers.
    """
    evaluate: bool = True
    """Whether the model may be evaluated where its turn has come; one whose classifier is not
    trained should not.
    """
    over: bool = False
    """Whether the round's training is over, and its model is only evaluated."""

    @property
    def model_round(self) -> int:
        """After how many rounds the model is."""
        return self.round if self.over else self.round - 1


@dataclass(frozen=True)
class ClientUpdate:
    """One site's accepted answer; also of a site that had no task and evaluated the model."""

    site: str
    """Its name."""
    state: State
    """The site's model after training (rebuilt by the server as sent model + uploaded difference).
    """
    labelled: int
    """Number of labelled training images the site holds."""
    unlabelled: int
    """Number of unlabelled training images the site holds."""
    steps: int
    """Optimiser steps taken; 0 where there was nothing to do, and ``state`` is the model it was
    sent.
    """

    @property
    def useful(self) -> bool:
        """Whether the site did what it was asked for."""
        return self.steps > 0


@dataclass(frozen=True)
class Federation:
    """What a workflow may know of the federation besides its own state."""

    sites: Sequence[str]
    """All sites of the run, sorted."""
    seed: int
    """Of the experiment; derive from it all that the workflow draws (:mod:`fedward.seeds`)."""
    models: Mapping[str, State]
    """Each site's last accepted model, read lazily from disk; sites that never trained are absent.
    """
    validate: Callable[[State], float] | None = None
    """Accuracy in [0, 1] of a model on the server's own validation images, where the server has
    some.
    """
    record: Callable[[str, dict[str, Any]], None] = lambda log, row: None
    """Add a JSON-able row, which names its round, to a log of the run folder."""
    learn: Callable[[State, int, str, MutableMapping[str, State]], State] | None = None
    """From a model, a round, a task and a memory, which changes, to the model trained on the
    server's own images as at a site, where the method wants it."""
    show: Callable[[State, Mapping[str, Any]], None] | None = None
    """Keep pictures of the server's own images as a model sees them, and JSON-able facts, where the
    method wants it.
    """
    effective_replies: float = 1.0
    """The effective number of replies that each average must be worth: the last argument of
    :func:`~fedward.methods.aggregation.levelled_weights`."""
    parameters: Collection[str] = ()
    """Names of the model's parameters, which a server's optimiser steps; its other tensors are
    averaged.
    """


Rounds: TypeAlias = Generator[Exchange, "list[ClientUpdate]", None]
"""A server workflow: yields exchanges, receives the accepted updates in site-name order."""

"""Runs the workflows of methods with two groups of sites, with replies made by hand."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedward.methods import settings_of
from fedward.methods.groups import GroupedState
from fedward.methods.workflow import ClientUpdate, Exchange, Federation
from fedward.model_state import State
from fedward.registry import METHODS
from fedward.seeds import torch_generator

FOUR = {"site-1": (30, 0), "site-2": (0, 80), "site-3": (20, 0), "site-4": (0, 50)}
"""Labelled and unlabelled images at each site: 1 and 3 have labels, 2 and 4 have none."""


def model(value: float) -> dict[str, Tensor]:
    """A model of two floating-point tensors and a counter."""
    return {
        "w": torch.tensor([[value, 2.0], [-1.0, 0.5]]),
        "b": torch.tensor([value]),
        "batches": torch.tensor(7),
    }


def moved(start: State, *purpose: str | int, size: float = 0.3) -> dict[str, Tensor]:
    """What a site makes of a model: equal purposes move it equally."""
    draw = torch_generator(5, *purpose)
    return {
        key: value + size * torch.randn(value.shape, generator=draw)
        if value.is_floating_point()
        else value
        for key, value in start.items()
    }


def assert_same(found: State, expected: State) -> None:
    """To the last bit."""
    assert set(found) == set(expected)
    for key in expected:
        assert torch.equal(found[key], expected[key]), key


def assert_close(found: State, expected: Mapping[str, Any]) -> None:
    for key, value in expected.items():
        np.testing.assert_allclose(found[key].numpy(), value, rtol=2e-6, atol=2e-6, err_msg=key)


def plain_weights(
    updates: Sequence[ClientUpdate], scale: float, norm: str = "sum", factor: float = 1.0
) -> list[float]:
    """The papers' weights in plain Python, where ``factor`` multiplies those of labelled sites."""
    sizes = [update.labelled if update.labelled else update.unlabelled for update in updates]
    keys = [key for key, value in updates[0].state.items() if value.is_floating_point()]
    weights = []
    for n, update in zip(sizes, updates, strict=True):
        squares = []
        for key in keys:
            mean = sum(
                size * other.state[key].double().numpy()
                for size, other in zip(sizes, updates, strict=True)
            ) / sum(sizes)
            squares.append(float(((update.state[key].double().numpy() - mean) ** 2).sum()))
        distance = (
            math.sqrt(sum(squares))
            if norm == "flat"
            else sum(math.sqrt(square) for square in squares)
        )
        weights.append(
            n / sum(sizes) * math.exp(-scale * distance / n) * (factor if update.labelled else 1.0)
        )
    return [weight / sum(weights) for weight in weights]


def plain_mean(states: Sequence[State], weights: Sequence[float]) -> dict[str, Any]:
    """The weighted mean of the floating-point tensors."""
    keys = [key for key, value in states[0].items() if value.is_floating_point()]
    return {
        key: sum(
            weight * state[key].double().numpy()
            for weight, state in zip(weights, states, strict=True)
        )
        for key in keys
    }


Images = Callable[[Exchange, str], tuple[int, int]]
Answer = Callable[[Exchange, str], State]


@dataclass
class Server:
    """Carries out a workflow as the server's loop does; each site declines exactly the tasks its
    method declines.

    ``evaluated``: in every round the other sites evaluate its first model; ``images``: a site's
    labelled and unlabelled images in an exchange; ``answer``: the model it sends; ``fails``:
    whether nothing usable comes back.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    sites: Mapping[str, tuple[int, int]] = field(default_factory=lambda: dict(FOUR))
    seed: int = 0
    fails: Callable[[Exchange, str], bool] = lambda exchange, site: False
    evaluated: bool = False
    images: Images | None = None
    answer: Answer = lambda exchange, site: moved(
        exchange.model, site, exchange.round, exchange.part
    )
    exchanges: list[Exchange] = field(default_factory=list)
    updates: list[list[ClientUpdate]] = field(default_factory=list)
    """Those of each exchange, all of them."""
    groups: list[dict[str, Any]] = field(default_factory=list)
    """Rows of the log."""
    after: dict[int, State] = field(default_factory=dict)
    """Model after each round."""

    def __post_init__(self) -> None:
        defaults = {"rounds": 3, "warm_up": 1, "largest_share": 1.0}  # the papers' weights
        self.method = METHODS[self.name](settings_of(self.name, {**defaults, **self.options}))
        self.federation = Federation(sorted(self.sites), self.seed, {}, record=self._record)
        state = self.method.start(model(0.0))
        assert isinstance(state, GroupedState)
        self.state = state

    def _record(self, log: str, row: dict[str, Any]) -> None:
        assert log == "groups"
        self.groups.append(row)

    def run(self) -> "Server":
        rounds = self.method.rounds(self.state, self.federation)
        exchange = next(rounds, None)
        while exchange is not None:
            self.exchanges.append(exchange)
            asked = (
                set(self.sites) if self.evaluated and exchange.part == 0 else set(exchange.tasks)
            )
            replies = [self._reply(exchange, site) for site in sorted(asked)]
            updates = [reply for reply in replies if reply]
            self.updates.append(updates)
            before = self.state.round
            try:
                exchange = rounds.send(updates)
            except StopIteration:
                exchange = None
            if self.state.round != before:
                self.after[self.state.round] = self.state.model
        return self

    def _reply(self, exchange: Exchange, site: str) -> ClientUpdate | None:
        if self.fails(exchange, site):
            return None
        labelled, unlabelled = self.images(exchange, site) if self.images else self.sites[site]
        if site not in exchange.tasks or not self.method.phases(
            exchange.tasks[site].name, exchange.round, labelled
        ):
            return ClientUpdate(site, exchange.model, labelled, unlabelled, 0)
        return ClientUpdate(site, self.answer(exchange, site), labelled, unlabelled, 4)

    def of(self, round_: int, part: int = 0) -> Exchange:
        """Return the one ask of a round's part."""
        (found,) = (
            exchange
            for exchange in self.exchanges
            if (exchange.round, exchange.part) == (round_, part)
        )
        return found

    def trained(self, round_: int, part: int = 0) -> list[ClientUpdate]:
        """Return the replies that took steps in a round's part."""
        (found,) = (
            updates
            for exchange, updates in zip(self.exchanges, self.updates, strict=True)
            if (exchange.round, exchange.part) == (round_, part)
        )
        return [update for update in found if update.steps]

    def tasks(self, round_: int, part: int = 0) -> dict[str, str]:
        """Return site -> task in a round's part."""
        return {site: task.name for site, task in self.of(round_, part).tasks.items()}

    def parts(self) -> list[tuple[int, int]]:
        """Return (round, part) of every ask."""
        return [(exchange.round, exchange.part) for exchange in self.exchanges]

"""Labels at the server alone: when the server trains, with which rate, and what sites may send."""

import math
from collections.abc import MutableMapping
from dataclasses import replace

import pytest
import torch
from pydantic import ValidationError

from fedward.methods import settings_of
from fedward.methods.local import Phase
from fedward.methods.server_labels import AT_SERVER
from fedward.methods.supervised import Supervised
from fedward.methods.workflow import ClientUpdate, Exchange, Federation
from fedward.model_state import State
from fedward.registry import METHODS

METHODS_WITH_SERVER_LABELS = ["fedavg", "ssfl", "fedperl"]
SITES = ("site-1", "site-2")


def make(method: str, server_labels: bool = True, **options: object) -> object:
    if method == "fedperl":
        options = {"warm_up": 1, **options}
    settings = settings_of(method, {"server_labels": server_labels, "rounds": 4, **options})
    return METHODS[method](settings)


def test_sites_alone_learn_from_no_server() -> None:
    with pytest.raises(ValidationError, match="server_labels"):
        settings_of("alone", {"server_labels": True})


def value(model: State) -> float:
    return float(model["w"][0])


class Server:
    """Runs a workflow whose sites add 1 and 3 to the model, and whose server's training doubles it.

    ``steps``: of each site; with 0 its model is the one that it was sent.
    """

    def __init__(self, method: str, steps: int = 4, start: int = 0) -> None:
        self.method = make(method, participants=None)
        self.calls: list[tuple[int, str, float]] = []
        self.federation = Federation(SITES, 0, {}, learn=self.learn)
        self.state = self.method.start({"w": torch.tensor([1.0, 2.0])})
        self.state.round = start
        self.steps = steps

    def learn(
        self, model: State, round_: int, task: str, memory: MutableMapping[str, State]
    ) -> State:
        self.calls.append((round_, task, value(model)))
        return {"w": 2 * model["w"]}

    def run(self) -> list[float]:
        """Return the first weight of the model that is sent in each round."""
        rounds = self.method.rounds(self.state, self.federation)
        sent = []
        exchange: Exchange | None = next(rounds)
        while exchange is not None:
            sent.append(value(exchange.model))
            updates = []
            for site, gain in zip(SITES, (1.0, 3.0), strict=True):
                state = exchange.model
                if self.steps:
                    state = {"w": state["w"] + gain}
                updates.append(ClientUpdate(site, state, 0, 8, self.steps))
            try:
                exchange = rounds.send(updates)
            except StopIteration:
                exchange = None
        return sent


@pytest.mark.parametrize("method", METHODS_WITH_SERVER_LABELS)
def test_the_server_trains_before_the_first_round_and_after_each_average(method: str) -> None:
    server = Server(method)
    # By hand: 1 is doubled; from then on the mean adds 2, and the server doubles.
    assert server.run() == [2.0, 8.0, 20.0, 44.0]
    assert value(server.state.model) == 92.0
    assert server.calls == [
        (0, AT_SERVER, 1.0),
        (1, AT_SERVER, 4.0),
        (2, AT_SERVER, 10.0),
        (3, AT_SERVER, 22.0),
        (4, AT_SERVER, 46.0),
    ]


@pytest.mark.parametrize("method", METHODS_WITH_SERVER_LABELS)
def test_a_resumed_run_repeats_no_training_of_the_server(method: str) -> None:
    server = Server(method, start=2)
    assert server.run() == [1.0, 6.0]
    assert [call[0] for call in server.calls] == [3, 4]


@pytest.mark.parametrize("method", METHODS_WITH_SERVER_LABELS)
def test_the_server_goes_on_where_no_site_takes_a_step(method: str) -> None:
    assert Server(method, steps=0).run() == [2.0, 4.0, 8.0, 16.0]


@pytest.mark.parametrize("method", METHODS_WITH_SERVER_LABELS)
def test_labels_at_the_sites_leave_the_server_without_work(method: str) -> None:
    server = Server(method)
    server.method = make(method, server_labels=False, participants=None)
    server.federation = replace(server.federation, learn=None)
    assert server.run() == [1.0, 3.0, 5.0, 7.0]


def only_phase(method: str, task: str, round_: int, **options: object) -> Phase:
    (phase,) = make(method, **options).phases(task, round_, 8)
    return phase


@pytest.mark.parametrize("method", METHODS_WITH_SERVER_LABELS)
def test_the_server_minimises_cross_entropy_with_a_rate_of_its_own(method: str) -> None:
    options = {"learning_rate": 0.1, "server_learning_rate": 0.5}
    phase = only_phase(method, AT_SERVER, 2, **options)
    assert isinstance(phase.objective, Supervised)
    # Half a cosine over four rounds, at the middle of the second one.
    assert phase.learning_rate == pytest.approx(0.5 * (1 + math.cos(math.pi * 1.5 / 4)) / 2)
    first_rates = [only_phase(method, AT_SERVER, r, **options).learning_rate for r in (0, 1)]
    assert first_rates[0] == first_rates[1]
    at_a_site = only_phase(method, "train", 2, **options)
    assert at_a_site.learning_rate == pytest.approx(phase.learning_rate / 5)
    shared = only_phase(method, AT_SERVER, 2, learning_rate=0.1)
    assert shared.learning_rate == at_a_site.learning_rate


@pytest.mark.parametrize("method", ["ssfl", "fedperl"])
def test_the_servers_task_trains_nobody_else_where_labels_are_at_the_sites(method: str) -> None:
    """A server that asks sites for it gets what it gets for any other name of a task."""
    asked = only_phase(method, AT_SERVER, 1, server_labels=False)
    usual = only_phase(method, "train", 1, server_labels=False)
    assert type(asked.objective) is type(usual.objective)


@pytest.mark.parametrize("method", METHODS_WITH_SERVER_LABELS)
def test_sites_may_report_no_loss_against_labels(method: str) -> None:
    usual = make(method, server_labels=False).requirements
    requirements = make(method).requirements
    assert usual.sends.losses - requirements.sends.losses == {"loss_supervised"}
    assert requirements.hidden_labels
    assert requirements.server.images == {"labels"}
    assert not usual.hidden_labels
    assert not usual.server.images


def test_validation_policies_need_both_kinds_of_images() -> None:
    images = make("fedperl", policy="validation").requirements.server.images
    assert images == {"labels", "validation"}

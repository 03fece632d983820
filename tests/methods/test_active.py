"""When sites query, for how many labels, how they are weighted, and what a job may not ask for."""

import pytest
import torch
from pydantic import ValidationError

from fedward.methods import settings_of
from fedward.methods.fedal.algorithm import FedAL
from fedward.methods.fedal.query_rounds import ActiveLearning, ActiveSettings
from fedward.methods.requirements import Feature
from fedward.methods.workflow import QUERY, ClientUpdate, Federation
from fedward.registry import METHODS, SAMPLERS


def method(**options) -> FedAL:
    return FedAL(ActiveSettings(**options))


def queries(**options) -> ActiveLearning:
    return method(**options).active


def model(value: float) -> dict[str, torch.Tensor]:
    return {"w": torch.tensor([value, 2 * value])}


def test_the_papers_queries_come_every_ten_epochs_until_100():
    """Round r begins after 5 (r - 1) epochs; a query is a round before which labels become due."""
    fedal = queries()
    due = [fedal.labels_wanted(round_, 1144, 114) for round_ in range(fedal.settings.rounds + 1)]
    asked = [
        round_ for round_ in range(1, fedal.settings.rounds + 1) if due[round_] > due[round_ - 1]
    ]
    assert [5 * (round_ - 1) for round_ in asked] == list(range(10, 101, 10))
    assert fedal.settings.rounds * fedal.settings.local_epochs == 125


def test_rounds_after_the_last_query_ask_only_for_missed_ones():
    fedal = queries(rounds=7, query_every=2, steps=2)
    tasks = ["train", "train", QUERY, "train", QUERY, QUERY, QUERY]
    assert [fedal.task(round_) for round_ in range(1, 8)] == tasks


def test_budgets_are_equal_up_to_rounding_and_end_at_the_target():
    """A site of 1144 images, as hospital A: from 114 labels to 572 in ten steps of 45.8."""
    fedal = queries()
    first = fedal.initial_labels(1144)
    asked = [fedal.labels_wanted(round_, 1144, first) for round_ in range(3, 22, 2)]
    assert first == 114
    assert asked == [160, 206, 251, 297, 343, 389, 435, 480, 526, 572]


def test_no_query_in_the_rounds_between_and_none_after_the_last():
    fedal = queries()
    assert fedal.labels_wanted(4, 1144, 114) == fedal.labels_wanted(3, 1144, 114)
    assert {fedal.labels_wanted(round_, 1144, 114) for round_ in range(21, 26)} == {572}
    assert fedal.labels_wanted(2, 1144, 114) == 114


@pytest.mark.parametrize(("pool", "first"), [(0, 0), (3, 2), (100, 50), (100, 73), (100, 100)])
def test_a_site_with_as_many_labels_as_the_target_wants_no_more(pool, first):
    fedal = queries()
    assert [fedal.labels_wanted(round_, pool, first) for round_ in (1, 3, 21, 25)] == [first] * 4


def test_a_run_may_begin_at_its_target_and_buy_nothing():
    fedal = queries(initial_fraction=0.5, target_fraction=0.5)
    assert fedal.initial_labels(100) == 50
    assert fedal.labels_wanted(25, 100, 50) == 50


def test_sites_weigh_as_many_as_they_have_labels_now():
    fedal = method(rounds=2, query_every=1, steps=1)
    state = fedal.start(model(0.0))
    rounds = fedal.rounds(state, Federation(["a", "b", "c"], 0, {}))
    exchange = next(rounds)
    assert {site: task.name for site, task in exchange.tasks.items()} == dict.fromkeys(
        "abc", "train"
    )
    updates = [
        ClientUpdate("a", model(1.0), 10, 90, 7),
        ClientUpdate("b", model(5.0), 30, 0, 7),
        ClientUpdate("c", model(0.0), 0, 9, 0),
    ]
    exchange = rounds.send(updates)
    torch.testing.assert_close(exchange.model["w"], torch.tensor([4.0, 8.0]))
    assert {task.name for task in exchange.tasks.values()} == {QUERY}
    with pytest.raises(StopIteration):
        rounds.send(
            [ClientUpdate("a", model(2.0), 30, 70, 7), ClientUpdate("b", model(4.0), 30, 0, 7)]
        )
    torch.testing.assert_close(state.model["w"], torch.tensor([3.0, 6.0]))


def test_a_round_without_replies_leaves_the_model():
    fedal = method(rounds=1 + 1, query_every=1, steps=1)
    state = fedal.start(model(3.0))
    rounds = fedal.rounds(state, Federation(["a"], 0, {}))
    next(rounds)
    assert torch.equal(rounds.send([]).model["w"], model(3.0)["w"])


def test_every_sampler_can_be_named():
    assert [queries(sampler=name).sampler.name for name in SAMPLERS] == list(SAMPLERS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rounds": 20}, "rounds must be 21 or more, not 20: the last query comes in round 21"),
        ({"initial_fraction": 0.6}, "initial_fraction=0.6 is above target_fraction"),
        ({"target_fraction": 1.1}, "less than or equal to 1"),
        ({"steps": 0}, "greater than or equal to 1"),
        ({"sampler_options": {"depth": 2}}, "depth"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(options, message):
    with pytest.raises(ValidationError, match=message):
        settings_of("fedal", options)


def test_an_unknown_sampler_is_refused_by_name():
    with pytest.raises(Exception, match=r"one of random, .*'oracle'"):
        settings_of("fedal", {"sampler": "oracle"})


def test_the_server_needs_no_single_models():
    requirements = METHODS["fedal"](settings_of("fedal", {})).requirements
    assert requirements.reason_against(Feature.SECURE_AGGREGATION) == ""

"""SelfFed's server half, driven by hand: phases, rates, weights, and what it counts and keeps."""

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from fedward.config import Experiment
from fedward.errors import ConfigError
from fedward.jobs import JOBS, simulated_sites
from fedward.methods import method_of, settings_of
from fedward.methods.averages import weighted_average
from fedward.methods.participants import draw_participants
from fedward.methods.requirements import Feature
from fedward.methods.schedule import scheduled_rate
from fedward.methods.selffed.algorithm import CONTRAST, FINE_TUNE, PRETRAIN, SelfFed, SelfFedState
from fedward.methods.selffed.objectives import QUEUE, TARGET, Contrastive, MaskedModelling
from fedward.methods.selffed.participation import gain_recession_weights
from fedward.methods.supervised import Supervised
from fedward.methods.workflow import ClientUpdate, Exchange, Federation
from fedward.model_state import State
from fedward.registry import METHODS
from fedward.storage.model_files import load_state, save_state
from tiny import tiny

SITES = ["site-1", "site-2", "site-3"]
LABELLED = {"site-1": 10, "site-2": 30, "site-3": 60}
UNLABELLED = {"site-1": 90, "site-2": 20, "site-3": 40}


def make(**options: Any) -> SelfFed:
    shared = {
        "rounds": 5,
        "pretraining_rounds": 2,
        "pretraining_warm_up": 0,
        "warm_up": 0,
        "largest_share": 1.0,
    }
    method = METHODS["selffed"](settings_of("selffed", {**shared, **options}))
    assert isinstance(method, SelfFed)
    return method


def model(value: float) -> dict[str, Tensor]:
    return {"w": torch.tensor([value, -value]), "index": torch.tensor(3)}


def answer(round_: int, site: str) -> dict[str, Tensor]:
    return model(float(round_ * 10 + int(site[-1])))


@dataclass
class Server:
    """Drives the workflow with made-up replies; the contrastive step adds a half to the model."""

    options: Mapping[str, Any] = field(default_factory=dict)
    fails: Callable[[int, str], bool] = lambda round_, site: False
    learned: list[tuple[int, str, dict[str, State]]] = field(default_factory=list)
    shown: list[tuple[State, Mapping[str, Any]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.method = make(**self.options)
        images = self.method.requirements.server.images
        learn = self.learn if "training" in images else None
        show = self.show if "pictures" in images else None
        self.federation = Federation(SITES, 0, {}, learn=learn, show=show)
        self.state = self.method.start(model(0.0))
        assert isinstance(self.state, SelfFedState)

    def show(self, state: State, facts: Mapping[str, Any]) -> None:
        self.shown.append((state, facts))

    def learn(
        self, state: State, round_: int, task: str, memory: MutableMapping[str, State]
    ) -> State:
        self.learned.append((round_, task, dict(memory)))
        memory[TARGET] = {"encoder.w": state["w"]}
        memory[QUEUE] = {"keys": torch.full((1, 2), float(round_))}
        return {"w": state["w"] + 0.5, "index": state["index"]}

    def replies(self, exchange: Exchange) -> list[ClientUpdate]:
        updates = []
        for site in sorted(exchange.tasks):
            state: State = answer(exchange.round, site)
            steps = 2
            if self.fails(exchange.round, site):
                state = exchange.model
                steps = 0
            updates.append(ClientUpdate(site, state, LABELLED[site], UNLABELLED[site], steps))
        return updates

    def run(self, rounds: int = 99) -> list[Exchange]:
        """Return exchanges of some rounds; ``models`` and ``counted`` are the states after each."""
        exchanges = []
        self.models = []
        self.counted = []
        workflow = self.method.rounds(self.state, self.federation)
        exchange = next(workflow, None)
        while exchange is not None and len(exchanges) < rounds:
            exchanges.append(exchange)
            try:
                exchange = workflow.send(self.replies(exchange))
            except StopIteration:
                exchange = None
            self.models.append(self.state.model)
            self.counted.append(dict(self.state.participations))
        return exchanges


def mean(round_: int, sites: Sequence[str], sizes: Sequence[float]) -> State:
    return weighted_average([answer(round_, site) for site in sites], sizes)


def assert_close(actual: State, expected: State) -> None:
    assert set(actual) == set(expected)
    for key in expected:
        torch.testing.assert_close(actual[key], expected[key], msg=key)


# --- settings


def test_the_defaults_are_a_run_of_the_paper() -> None:
    settings = settings_of("selffed", {}).model_dump()
    assert settings["rounds"] - settings["pretraining_rounds"] == 100
    assert settings["mask_ratio"] == 0.6
    assert settings["optimizer"] == "adamw"
    assert settings["weight_decay"] == 0.05


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"rounds": 2, "pretraining_rounds": 3}, "pretraining_rounds=3 is more than rounds=2"),
        ({"pretraining_warm_up": 2}, "pretraining_warm_up=2 leaves no round"),
        ({"warm_up": 3}, "warm_up=3 leaves none of 3 rounds"),
        ({"beta": 0.0}, "beta"),
        ({"beta": 1.1}, "beta"),
        ({"aggregation": "printed"}, "'normalised' or 'update'"),
        ({"contrastive": "peers"}, "contrastive"),
        ({"mask_ratio": 1.5}, "mask_ratio"),
        ({"mask_ratio": 0}, "mask_ratio"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ValidationError, match=named):
        make(**options)


@pytest.mark.parametrize("pretraining", [0, 5])
def test_each_phase_can_be_left_out(pretraining: int) -> None:
    settings = make(pretraining_rounds=pretraining).settings
    assert settings.rounds == 5


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, True),
        ({"contrastive": "off"}, False),
        ({"contrastive": "client"}, False),
        ({"rounds": 2}, False),
        ({"rounds": 3}, False),
        ({"rounds": 4}, True),
    ],
)
def test_the_server_needs_images_only_where_it_contrasts(
    options: dict[str, Any], wanted: bool
) -> None:
    """Not after the last round, so not with a single round of phase 2 either."""
    assert ("training" in make(**options).requirements.server.images) is wanted


def test_secure_aggregation_is_for_beta_1() -> None:
    assert make(beta=1).requirements.reason_against(Feature.SECURE_AGGREGATION) == ""
    with pytest.raises(ConfigError, match="how often each site took part; beta=1 does without"):
        tiny("selffed", secure_aggregation=True)
    assert isinstance(tiny("selffed", secure_aggregation=True, options={"beta": 1}), Experiment)


# --- phases


def test_tasks_follow_the_round() -> None:
    tasks = [make().task(round_) for round_ in range(1, 6)]
    assert tasks == 2 * [PRETRAIN] + 3 * [FINE_TUNE]


def kinds(method: SelfFed, task: str, labelled: int = 9, round_: int = 1) -> list[type]:
    return [type(phase.objective) for phase in method.phases(task, round_, labelled)]


def test_phases_of_each_task() -> None:
    method = make()
    for labelled in (0, 9):
        assert kinds(method, PRETRAIN, labelled) == [MaskedModelling]
        assert kinds(method, CONTRAST, labelled) == [Contrastive]
    assert kinds(method, FINE_TUNE, round_=3) == [Supervised]
    assert kinds(make(contrastive="client"), FINE_TUNE, round_=3) == [Contrastive, Supervised]
    moco = make(pretext="contrastive", contrastive="off")
    assert kinds(moco, PRETRAIN, 0) == [Contrastive]
    assert kinds(moco, FINE_TUNE, round_=3) == [Supervised]
    assert moco.phases(PRETRAIN, 1, 9)[0].learning_rate == method.rate(1)


@pytest.mark.parametrize("contrastive", ["server", "client", "off"])
def test_a_site_without_labels_declines_phase_2(contrastive: str) -> None:
    assert kinds(make(contrastive=contrastive), FINE_TUNE, 0, 3) == []


def test_phases_of_one_round_draw_other_numbers() -> None:
    first, second = make(contrastive="client").phases(FINE_TUNE, 3, 9)
    assert (first.stream, second.stream) == ((CONTRAST,), ())


@pytest.mark.parametrize("contrastive", ["server", "client"])
def test_the_contrast_rises_and_falls_with_the_classifier(contrastive: str) -> None:
    method = make(
        rounds=10, pretraining_rounds=4, warm_up=2, contrastive=contrastive, contrastive_rate=1e-4
    )
    task = CONTRAST if contrastive == "server" else FINE_TUNE
    rates = [method.phases(task, round_, 9)[0].learning_rate for round_ in range(5, 11)]
    assert rates == pytest.approx([scheduled_rate(1e-4, index + 0.5, 6, 2) for index in range(6)])
    assert rates[-1] < 1e-5 < max(rates)


def test_rates_are_those_at_the_middle_of_each_round() -> None:
    method = make(
        rounds=10, pretraining_rounds=4, pretraining_warm_up=1, warm_up=2, learning_rate=0.1
    )
    rates = [method.rate(round_) for round_ in range(1, 11)]
    base = method.settings.pretraining_rate
    assert rates[:4] == [scheduled_rate(base, position, 4, 1) for position in (0.5, 1.5, 2.5, 3.5)]
    assert rates[4:] == [scheduled_rate(0.1, index + 0.5, 6, 2) for index in range(6)]
    assert rates[0] == base / 2
    assert rates[4:6] == pytest.approx([0.025, 0.075])
    assert [phase.learning_rate for phase in method.phases(FINE_TUNE, 7, 9)] == [rates[6]]
    assert [phase.learning_rate for phase in method.phases(PRETRAIN, 2, 0)] == [rates[1]]


def test_rates_without_a_cosine_stay_after_their_warm_up() -> None:
    method = make(
        rounds=6, pretraining_rounds=3, pretraining_warm_up=1, warm_up=2, schedule="constant"
    )
    largest = method.settings.pretraining_rate
    base = method.settings.learning_rate
    expected = [largest / 2, largest, largest, base / 4, base * 3 / 4, base]
    assert [method.rate(round_) for round_ in range(1, 7)] == pytest.approx(expected)


# --- rounds


def test_rounds_evaluate_trained_classifiers_only() -> None:
    server = Server({"participants": 2})
    exchanges = server.run()
    assert [exchange.round for exchange in exchanges] == [1, 2, 3, 4, 5]
    for exchange in exchanges:
        assert list(exchange.tasks) == draw_participants(SITES, 2, 0, exchange.round)
        assert {task.name for task in exchange.tasks.values()} == {
            server.method.task(exchange.round)
        }
        # Round 3 sends the model of round 2, whose classifier nobody has trained.
        assert exchange.evaluate is (exchange.round > 3)
    assert server.state.round == 5


def test_without_pre_training_the_first_model_is_evaluated_too() -> None:
    """Its classifier may be a trained one, as in a run that starts from another run's model."""
    exchanges = Server({"pretraining_rounds": 0}).run()
    assert [exchange.evaluate for exchange in exchanges] == [True] * 5


def test_phase_1_weighs_by_all_images_and_counts_nothing() -> None:
    server = Server()
    server.run(2)
    for round_ in (1, 2):
        assert_close(server.models[round_ - 1], mean(round_, SITES, [100, 50, 100]))
    assert server.counted == [{}, {}]
    assert server.learned == []


@pytest.mark.parametrize("aggregation", ["normalised", "update"])
def test_full_participation_weighs_by_labelled_images(aggregation: str) -> None:
    """And an update is scaled as a whole: W + 0.9^F (mean - W)."""
    server = Server({"contrastive": "off", "aggregation": aggregation})
    server.run()
    for round_, times in ((3, 0), (4, 1), (5, 2)):
        average = mean(round_, SITES, [10, 30, 60])["w"]
        before = server.models[round_ - 2]["w"]
        gain = 0.9**times if aggregation == "update" else 1.0
        expected = before + gain * (average - before)
        assert_close(server.models[round_ - 1], {"w": expected, "index": torch.tensor(3)})


@pytest.mark.parametrize("aggregation", ["normalised", "update"])
def test_with_beta_1_it_is_averaging_by_labelled_images(aggregation: str) -> None:
    server = Server(
        {"contrastive": "off", "aggregation": aggregation, "beta": 1, "participants": 2}
    )
    for exchange in server.run()[2:]:
        sites = list(exchange.tasks)
        expected = mean(exchange.round, sites, [LABELLED[site] for site in sites])
        assert_close(server.models[exchange.round - 1], expected)


def absent(*pairs: tuple[int, str]) -> Callable[[int, str], bool]:
    return lambda round_, site: (round_, site) in pairs


def test_weights_are_those_of_participations_before_the_round() -> None:
    """Site 3 misses round 3: in round 4 it counts as new, the others as having come once."""
    server = Server({"contrastive": "off"}, absent((3, "site-3")))
    server.run()
    assert_close(server.models[2], mean(3, SITES[:2], [10, 30]))
    weights = gain_recession_weights(torch.tensor([10, 30, 60]), torch.tensor([1, 1, 0]), 0.9)
    assert_close(server.models[3], mean(4, SITES, [9, 27, 60]))
    assert_close(server.models[3], mean(4, SITES, weights.tolist()))
    assert_close(server.models[4], mean(5, SITES, [9, 27, 60]))


def test_in_a_shipped_job_the_servers_contrast_and_the_gain_recession_act() -> None:
    experiment = JOBS["selffed_partial"]()
    method = method_of(experiment)
    settings = method.settings
    assert "training" in method.requirements.server.images
    times = dict.fromkeys(simulated_sites(experiment), 0)
    rounds_with_other_weights = 0
    for round_ in range(settings.pretraining_rounds + 1, settings.rounds + 1):
        sites = draw_participants([*times], settings.participants, experiment.seed, round_)
        factors = [settings.beta ** times[site] for site in sites]
        expected = [factor / sum(factors) for factor in factors]
        weights = gain_recession_weights(
            torch.ones(3), torch.tensor([times[site] for site in sites]), settings.beta
        )
        assert weights.tolist() == pytest.approx(expected)
        rounds_with_other_weights += len(set(factors)) > 1
        for site in sites:
            times[site] += 1
    assert rounds_with_other_weights >= 4


def test_updates_of_a_site_that_came_less_weigh_more() -> None:
    server = Server({"contrastive": "off", "aggregation": "update"}, absent((3, "site-3")))
    server.run(4)
    before = server.models[2]["w"]
    steps = [
        share * (answer(4, site)["w"] - before)
        for share, site in zip((0.09, 0.27, 0.6), SITES, strict=True)
    ]
    assert_close(server.models[3], {"w": before + sum(steps), "index": torch.tensor(3)})


def test_accepted_answers_of_phase_2_alone_are_counted() -> None:
    server = Server(
        {"contrastive": "off"}, absent((1, "site-1"), (3, "site-3"), (4, "site-2"), (4, "site-3"))
    )
    server.run()
    assert server.counted == [
        {},
        {},
        {"site-1": 1, "site-2": 1},
        {"site-1": 2, "site-2": 1},
        {"site-1": 3, "site-2": 2, "site-3": 1},
    ]


@pytest.mark.parametrize("round_", [1, 3])
def test_without_a_reply_the_model_stays(round_: int) -> None:
    server = Server({}, lambda number, site: number == round_)
    server.run(round_)
    before = model(0.0) if round_ == 1 else server.models[round_ - 2]
    assert_close(server.models[-1], before)
    assert server.counted[-1] == {}
    assert server.learned == []


@pytest.mark.parametrize("aggregation", ["normalised", "update"])
@pytest.mark.parametrize("others", [["site-1", "site-2"], []])
def test_steps_of_phase_2_without_labels_are_not_used(
    others: list[str], aggregation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for site in set(SITES) - set(others):
        monkeypatch.setitem(LABELLED, site, 0)
    server = Server({"contrastive": "off", "aggregation": aggregation})
    server.run(3)
    assert_close(server.models[2], mean(3, others, [10, 30]) if others else server.models[1])
    assert server.counted[2] == dict.fromkeys(others, 1)


@pytest.mark.parametrize(
    ("aggregation", "shares"),
    [("normalised", (1 / 6, 1 / 2, 1 / 3)), ("update", (1 / 8, 3 / 8, 1 / 4))],
)
def test_images_are_capped_before_participations_count(
    aggregation: str, shares: tuple[float, float, float]
) -> None:
    """A cap of a half leaves 40 of the 60 images of site 3, which has come once: 10, 30, 40 / 2.

    As shares of an update these are parts of 80, and the rest is that of the model, which is 0.
    """
    method = make(aggregation=aggregation, beta=0.5, largest_share=0.5)
    state = SelfFedState(3, model(0.0), {"site-3": 1})
    values = (1.0, 10.0, 100.0)
    updates = [
        ClientUpdate(site, model(value), LABELLED[site], 0, 1)
        for site, value in zip(SITES, values, strict=True)
    ]
    expected = sum(share * value for share, value in zip(shares, values, strict=True))
    assert_close(method.aggregate(state, updates, 1.0), model(expected))


def test_equal_answers_come_out_whatever_the_weights() -> None:
    """The form in print would return a part of them."""
    method = make(beta=0.3)
    state = SelfFedState(3, model(7.0), {"site-1": 9, "site-2": 2})
    updates = [ClientUpdate(site, model(7.0), LABELLED[site], 0, 1) for site in SITES]
    assert_close(method.aggregate(state, updates, 1.0), model(7.0))


@pytest.mark.parametrize(("times", "gain"), [(3, 0.001), (20, 0.0), (400, 0.0)])
def test_updates_that_came_too_often_to_matter_leave_the_model(times: int, gain: float) -> None:
    """0.1^20 is lost beside 1, and 0.1^400 is 0 itself."""
    method = make(beta=0.1, aggregation="update")
    state = SelfFedState(3, model(7.0), dict.fromkeys(SITES, times))
    updates = [ClientUpdate(site, model(8.0), LABELLED[site], 0, 1) for site in SITES]
    assert_close(method.aggregate(state, updates, 1.0), model(7.0 + gain))
    assert state.participations == dict.fromkeys(SITES, times + 1)


# --- the server's contrastive step


def test_the_server_contrasts_the_mean_except_in_the_last_round() -> None:
    server = Server()
    exchanges = server.run()
    assert [(round_, task) for round_, task, _ in server.learned] == [(3, CONTRAST), (4, CONTRAST)]
    for exchange in exchanges[3:]:
        before = mean(exchange.round - 1, SITES, [10, 30, 60])["w"]
        assert torch.equal(exchange.model["w"], before + 0.5)
    assert_close(server.state.model, mean(5, SITES, [10, 30, 60]))


def test_target_and_queue_begin_empty_and_last_over_steps() -> None:
    server = Server()
    server.run()
    first, second = (memory for *_, memory in server.learned)
    assert first == {}
    assert torch.equal(second[QUEUE]["keys"], torch.full((1, 2), 3.0))
    assert torch.equal(second[TARGET]["encoder.w"], mean(3, SITES, [10, 30, 60])["w"])
    assert torch.equal(server.state.queue["keys"], torch.full((1, 2), 4.0))


# --- pictures


def test_pictures_are_of_the_model_at_the_end_of_phase_1() -> None:
    server = Server()
    server.run()
    ((state, facts),) = server.shown
    assert_close(state, mean(2, SITES, [100, 50, 100]))
    assert facts == {"round": 2, "hidden": 0.6}


def test_a_failed_last_round_of_phase_1_shows_what_there_is() -> None:
    server = Server({}, lambda round_, site: round_ == 2)
    server.run(3)
    ((state, _),) = server.shown
    assert_close(state, mean(1, SITES, [100, 50, 100]))


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, True),
        ({"contrastive": "off"}, True),
        ({"contrastive": "client"}, True),
        ({"pretraining_rounds": 0}, False),
        ({"pretext": "contrastive"}, False),
    ],
)
def test_there_is_something_to_show_where_units_were_hidden(
    options: dict[str, Any], wanted: bool
) -> None:
    server = Server(options)
    server.run()
    assert ("pictures" in server.method.requirements.server.images) is wanted
    assert (server.method.pictures is not None) is wanted
    assert len(server.shown) == (1 if wanted else 0)


# --- state


def test_a_saved_state_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    for stop in (1, 3, 4):
        fails = absent((3, "site-3"))
        straight = Server({}, fails)
        first = Server({}, fails)
        second = Server({}, fails)
        straight.run()
        first.run(stop)
        save_state(tmp_path / f"{stop}", first.state)
        second.state = load_state(tmp_path / f"{stop}", SelfFedState)
        second.run()
        assert_close(second.state.model, straight.state.model)
        assert second.state.participations == straight.state.participations
        assert_close(second.state.queue, straight.state.queue)
        assert [round_ for round_, *_ in first.learned + second.learned] == [3, 4]

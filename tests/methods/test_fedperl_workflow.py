"""FedPerl's server half: which sites get which peers, and the state after a round."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from fedward.config import Experiment
from fedward.errors import ConfigError
from fedward.methods import settings_of
from fedward.methods.aggregation import mean_of
from fedward.methods.fedal.algorithm import FedAL
from fedward.methods.fedal.query_rounds import ActiveSettings
from fedward.methods.fedavg import FedAvg
from fedward.methods.fedperl.algorithm import FedPerl, FedPerlState
from fedward.methods.fedperl.similarity import layer_moments, similarity
from fedward.methods.participants import draw_participants
from fedward.methods.peer_choice import top_peers
from fedward.methods.settings import ServerLabels, Settings
from fedward.methods.workflow import ClientUpdate, Exchange, Federation
from fedward.model_state import State
from fedward.registry import METHODS

SITES = [f"site-{index}" for index in range(1, 7)]


def model(value: float) -> dict[str, Tensor]:
    """Return a model whose moments differ from those of any other; its first weight names it."""
    noise = torch.randn(4, generator=torch.Generator().manual_seed(int(value * 100) % 2**31))
    return {
        "w": torch.tensor([value, 2.0]),
        "b": noise,
        "bn.num_batches_tracked": torch.tensor(int(value)),
    }


def assert_states_equal(actual: State, expected: State) -> None:
    assert set(actual) == set(expected)
    for key in expected:
        assert torch.equal(actual[key], expected[key]), key


@dataclass
class Server:
    """Carries out a workflow with made-up updates, and keeps each site's last model."""

    options: Mapping[str, Any]
    sites: Sequence[str] = tuple(SITES)
    seed: int = 0
    validate: Callable[[State], float] | None = None
    fails: Callable[[int, str], bool] = lambda round_, site: False
    value: Callable[[int, str], float] = lambda round_, site: (
        10.0 * int(site.split("-")[1]) + round_
    )
    steps: Callable[[int, str], int] = lambda round_, site: 4
    models: dict[str, State] = field(default_factory=dict)

    def __post_init__(self) -> None:
        defaults = {"participants": len(self.sites), "rounds": 4, "warm_up": 0, "committee": 2}
        settings = settings_of("fedperl", {**defaults, **self.options})
        self.method = FedPerl(settings)  # type: ignore[arg-type]
        self.federation = Federation(tuple(self.sites), self.seed, self.models, self.validate)
        self.state = self.method.start(model(0.0))
        assert isinstance(self.state, FedPerlState)

    def run(self) -> list[Exchange]:
        """Return all exchanges; ``before`` has the sites' models at the time of each."""
        rounds = self.method.rounds(self.state, self.federation)
        exchanges = []
        self.before = []
        exchange = next(rounds, None)
        while exchange is not None:
            exchanges.append(exchange)
            self.before.append(dict(self.models))
            updates = []
            for site in sorted(exchange.tasks):
                if self.fails(exchange.round, site):
                    continue
                steps = self.steps(exchange.round, site)
                if steps:
                    self.models[site] = model(self.value(exchange.round, site))
                updates.append(
                    ClientUpdate(site, self.models[site] if steps else exchange.model, 5, 5, steps)
                )
            try:
                exchange = rounds.send(updates)
            except StopIteration:
                exchange = None
        return exchanges


def chosen(exchange: Exchange) -> dict[str, list[str]]:
    return dict(exchange.decisions["peers"]["chosen"]) if exchange.decisions else {}


def peers_sent(exchange: Exchange) -> dict[str, int]:
    return {site: len(task.models) for site, task in exchange.tasks.items()}


# --- Algorithm 1


def test_the_drawn_sites_train_from_the_global_model() -> None:
    server = Server({"participants": 3, "rounds": 5})
    exchanges = server.run()
    assert [exchange.round for exchange in exchanges] == [1, 2, 3, 4, 5]
    for exchange in exchanges:
        assert list(exchange.tasks) == draw_participants(
            SITES, 3, server.federation.seed, exchange.round
        )
        assert all(task.name == "train" for task in exchange.tasks.values())
    assert server.state.round == 5


def test_the_mean_of_the_replies_starts_the_next_round() -> None:
    server = Server({"participants": 2, "rounds": 2})
    first, second = server.run()
    expected = plain_mean(
        [ClientUpdate(site, model(server.value(1, site)), 5, 5, 4) for site in first.tasks], {}
    )
    assert_states_equal(first.model, model(0.0))
    assert_states_equal(second.model, expected)
    assert expected["w"][0] == sum(server.value(1, site) for site in first.tasks) / 2


def test_warm_up_rounds_have_no_peers() -> None:
    exchanges = Server({"warm_up": 2, "rounds": 4}).run()
    assert [sum(peers_sent(exchange).values()) for exchange in exchanges] == [0, 0, 6, 6]
    assert [bool(exchange.decisions) for exchange in exchanges] == [False, False, True, True]


def test_without_warm_up_the_first_round_has_no_peers_either() -> None:
    first, *_ = Server({}).run()
    assert sum(peers_sent(first).values()) == 0
    assert not first.decisions


@pytest.mark.parametrize(
    "options", [{}, {"peers": "random"}, {"anonymise": False}, {"similarity_scale": "none"}]
)
@pytest.mark.parametrize("seed", [0, 1])
def test_only_seen_sites_teach_and_no_site_teaches_itself(
    options: dict[str, Any], seed: int
) -> None:
    server = Server({"participants": 3, "rounds": 12, **options}, seed=seed)
    seen: set[str] = set()
    taught = 0
    for exchange in server.run():
        for site, peers in chosen(exchange).items():
            assert site not in peers
            assert set(peers) <= seen
            assert len(set(peers)) == len(peers) <= 2
            assert not peers or site in seen
            taught += bool(peers)
        seen |= set(exchange.tasks)
    assert taught > 10


def test_a_site_that_never_trained_gets_no_peer() -> None:
    """Site 1 is asked in every round and fails in all of them: the server holds no model of it."""
    server = Server({"rounds": 4}, fails=lambda round_, site: site == "site-1")
    exchanges = server.run()
    for exchange in exchanges[1:]:
        assert chosen(exchange)["site-1"] == []
        assert exchange.tasks["site-1"].models == {}
        assert all("site-1" not in peers for peers in chosen(exchange).values())
        assert "site-1" not in exchange.decisions["peers"]["sites"]
        assert all(len(peers) == 2 for site, peers in chosen(exchange).items() if site != "site-1")


def test_a_site_that_left_still_teaches_with_its_last_model() -> None:
    gone = Server(
        {"anonymise": False, "rounds": 4, "committee": 5},
        fails=lambda r, site: r > 1 and site == "site-2",
    )
    last = gone.run()[-1]
    place = chosen(last)["site-1"].index("site-2")
    assert_states_equal(last.tasks["site-1"].models[f"peer{place}"], model(gone.value(1, "site-2")))


@pytest.mark.parametrize("committee", [2, 3, 5, 9])
def test_the_anonymous_peer_is_the_mean_of_the_chosen(committee: int) -> None:
    server = Server({"committee": committee})
    exchanges = server.run()
    for exchange, before in zip(exchanges[1:], server.before[1:], strict=True):
        assert exchange.decisions["peers"]["anonymised"] is True
        for site, peers in chosen(exchange).items():
            assert len(peers) == min(committee, 5)
            assert list(exchange.tasks[site].models) == ["peer0"]
            anonymous_peer = exchange.tasks[site].models["peer0"]
            for key in ("w", "b"):
                mean = torch.stack([before[peer][key].double() for peer in peers]).mean(dim=0)
                torch.testing.assert_close(anonymous_peer[key], mean.float(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("committee", [1, 2, 5, 9])
def test_open_peers_are_the_very_models(committee: int) -> None:
    server = Server({"committee": committee, "anonymise": False})
    exchanges = server.run()
    for exchange, before in zip(exchanges[1:], server.before[1:], strict=True):
        assert exchange.decisions["peers"]["anonymised"] is False
        for site, peers in chosen(exchange).items():
            assert len(peers) == min(committee, 5)
            assert list(exchange.tasks[site].models) == [
                f"peer{index}" for index in range(len(peers))
            ]
            for index, peer in enumerate(peers):
                assert exchange.tasks[site].models[f"peer{index}"] is before[peer]


def test_a_committee_of_none_is_ssfl() -> None:
    exchanges = Server({"committee": 0}).run()
    assert all(sum(peers_sent(exchange).values()) == 0 for exchange in exchanges)
    ssfl = METHODS["ssfl"](settings_of("ssfl", {"participants": 6, "rounds": 4}))
    first = next(ssfl.rounds(ssfl.start(model(0.0)), Federation(tuple(SITES), 0, {})))
    assert list(first.tasks) == list(exchanges[0].tasks)


@pytest.mark.parametrize(("options", "sent"), [({}, 0), ({"anonymise": False}, 1)])
def test_a_lone_peer_is_withheld_unless_allowed(options: dict[str, Any], sent: int) -> None:
    """Of two sites each has one other only, whose average would be that hospital's model."""
    last = Server({"committee": 2, **options}, sites=SITES[:2]).run()[-1]
    assert peers_sent(last) == {"site-1": sent, "site-2": sent}
    assert chosen(last) == {"site-1": ["site-2"][:sent], "site-2": ["site-1"][:sent]}


def test_a_site_alone_has_no_peer() -> None:
    exchanges = Server({"anonymise": False}, sites=SITES[:1]).run()
    assert all(sum(peers_sent(exchange).values()) == 0 for exchange in exchanges)


def test_peers_are_the_most_similar_ones() -> None:
    """Two communities of three: sites 1-3 have nearly one model, sites 4-6 another."""
    exchanges = Server({}, value=lambda round_, site: 1.0 if site < "site-4" else -50.0).run()
    for exchange in exchanges[1:]:
        for site, peers in chosen(exchange).items():
            assert set(peers) == set(SITES[:3] if site < "site-4" else SITES[3:]) - {site}
        row = exchange.decisions["peers"]
        for site, nearest, similarities in zip(
            row["sites"], row["nearest"], row["similarity"], strict=True
        ):
            assert set(nearest) == set(SITES) - {site}
            assert similarities[:2] == pytest.approx([1, 1])
            assert max(similarities[2:]) < 1


def test_a_row_names_participants_and_thirty_sites_near_each() -> None:
    """All forty sites train in the first round; later three a round are compared with them."""
    sites = [f"site-{number:02d}" for number in range(40)]
    server = Server({"rounds": 1}, sites=sites)
    server.run()
    assert isinstance(server.state, FedPerlState)
    moments = torch.stack([server.state.features[site] for site in sites])
    peers, record = server.method.choose_peers(sites[5:8], 2, server.state, server.federation)
    row = record["peers"]
    matrix = similarity(moments)
    assert row["sites"] == sites[5:8]
    for index, nearest, values in zip(range(5, 8), row["nearest"], row["similarity"], strict=True):
        expected = top_peers(matrix[index], index, 30, range(40))
        assert nearest == [sites[other] for other in expected]
        assert values == matrix[index, expected].tolist()
        assert peers[sites[index]] == nearest[:2]


def test_a_row_leaves_out_sites_that_have_not_trained() -> None:
    server = Server({"rounds": 1}, fails=lambda round_, site: site == "site-2")
    server.run()
    assert isinstance(server.state, FedPerlState)
    _, record = server.method.choose_peers(["site-1", "site-2"], 2, server.state, server.federation)
    row = record["peers"]
    assert row["sites"] == ["site-1"]
    assert row["chosen"]["site-2"] == []
    assert set(row["nearest"][0]) == set(SITES) - {"site-1", "site-2"}


def test_moments_are_those_of_each_sites_last_reply() -> None:
    server = Server({"participants": 3, "rounds": 6})
    server.run()
    assert isinstance(server.state, FedPerlState)
    assert set(server.state.features) == set(server.models)
    for site, state in server.models.items():
        assert torch.equal(server.state.features[site], layer_moments(state))


# --- random peers


def test_random_peers_depend_on_the_seed_alone() -> None:
    options = {"peers": "random", "rounds": 8}
    runs = []
    for seed in (3, 3, 4):
        torch.manual_seed(len(runs))
        runs.append([chosen(exchange) for exchange in Server(options, seed=seed).run()])
    assert runs[0] == runs[1] != runs[2]
    assert len({str(peers) for peers in runs[0]}) > 4, "every round draws again"


def test_random_peers_do_not_look_at_the_models() -> None:
    rising = Server({"peers": "random"}, value=lambda round_, site: 7.0 * int(site[-1]) + round_)
    falling = Server({"peers": "random"}, value=lambda round_, site: -7.0 * int(site[-1]) + round_)
    peers_of_rising = [chosen(exchange) for exchange in rising.run()]
    peers_of_falling = [chosen(exchange) for exchange in falling.run()]
    assert peers_of_rising == peers_of_falling


# --- policies (every site's accuracy is its number in tenths)


def accuracy(state: State) -> float:
    return int(state["w"][0].item() // 10) / 10


def policy(name: str, **options: Any) -> dict[str, list[str]]:
    server = Server(
        {"policy": name, "anonymise": False, "committee": 5, **options}, validate=accuracy
    )
    last = server.run()[-1]
    assert all(len(task.models) == len(chosen(last)[site]) for site, task in last.tasks.items())
    return {site: sorted(peers) for site, peers in chosen(last).items()}


def test_static_policy_keeps_all() -> None:
    assert policy("static") == {site: sorted(set(SITES) - {site}) for site in SITES}


def test_validation_policy_keeps_those_that_do_better() -> None:
    assert policy("validation") == {site: SITES[index + 1 :] for index, site in enumerate(SITES)}


def test_gated_validation_policy_keeps_those_at_the_gate() -> None:
    able = SITES[3:]
    assert policy("gated_validation", gate=0.4) == {
        site: sorted(set(able) - {site}) for site in SITES
    }
    assert not any(policy("gated_validation", gate=0.9).values())


def test_gated_similarity_keeps_those_at_the_gate() -> None:
    everyone = policy("gated_similarity", gate=-1.0)
    assert everyone == policy("static")
    options = {"policy": "gated_similarity", "anonymise": False, "committee": 5, "gate": 0.5}
    with_peers = Server(options).run()[1:]
    kept = 0
    for exchange in with_peers:
        row = exchange.decisions["peers"]
        for site, nearest, similarities in zip(
            row["sites"], row["nearest"], row["similarity"], strict=True
        ):
            similarity_to = dict(zip(nearest, similarities, strict=True))
            expected = {other for other, value in similarity_to.items() if value >= 0.5}
            assert set(chosen(exchange)[site]) == expected
            kept += len(expected)
    assert 0 < kept < 30 * len(with_peers), "the gate decides something"


@pytest.mark.parametrize(("sites", "peers"), [(2, 0), (3, 2)])
def test_gated_similarity_judges_only_three_sites_or_more(sites: int, peers: int) -> None:
    """Min-max features of two sites are 0 or 1: even the lowest gate lets none pass."""
    options = {"policy": "gated_similarity", "gate": -1.0, "anonymise": False}
    last = Server(options, sites=SITES[:sites]).run()[-1]
    assert set(peers_sent(last).values()) == {peers}


def test_one_remaining_peer_is_not_sent_as_anonymous() -> None:
    options = {"policy": "validation", "committee": 5}
    last = Server(options, validate=accuracy).run()[-1]
    assert chosen(last)["site-5"] == []  # only site-6 does better
    assert peers_sent(last)["site-5"] == 0
    assert sorted(chosen(last)["site-4"]) == ["site-5", "site-6"]
    named = Server({**options, "anonymise": False}, validate=accuracy).run()[-1]
    assert chosen(named)["site-5"] == ["site-6"]


@pytest.mark.parametrize("name", ["static", "gated_similarity", "validation", "gated_validation"])
def test_only_validation_policies_ask_for_the_servers_images(name: str) -> None:
    images = Server({"policy": name}).method.requirements.server.images
    assert ("validation" in images) == name.endswith("validation")


def test_accuracy_is_that_of_the_last_model() -> None:
    options = {"policy": "validation", "rounds": 2}
    server = Server(options, validate=accuracy, value=lambda round_, site: 10.0 * round_)
    server.run()
    assert isinstance(server.state, FedPerlState)
    assert server.state.accuracy == dict.fromkeys(SITES, 0.2)


# --- fewer replies than asked for


def test_missing_sites_keep_old_moments_outside_the_mean() -> None:
    def fails(round_: int, site: str) -> bool:
        return round_ == 2 and site in ("site-1", "site-3")

    server = Server({"rounds": 2}, fails=fails)
    server.run()
    assert isinstance(server.state, FedPerlState)
    values = [server.value(2, site) for site in ("site-2", "site-4", "site-5", "site-6")]
    assert server.state.model["w"][0] == pytest.approx(sum(values) / 4)
    of_round_1 = layer_moments(model(server.value(1, "site-1")))
    of_round_2 = layer_moments(model(server.value(2, "site-2")))
    assert torch.equal(server.state.features["site-1"], of_round_1)
    assert torch.equal(server.state.features["site-2"], of_round_2)


def test_a_round_without_replies_changes_nothing_but_its_number() -> None:
    server = Server({"rounds": 3}, fails=lambda round_, site: round_ >= 2)
    exchanges = server.run()
    assert isinstance(server.state, FedPerlState)
    assert server.state.round == 3
    assert_states_equal(exchanges[1].model, exchanges[2].model)
    assert_states_equal(server.state.model, exchanges[1].model)
    assert chosen(exchanges[1]) == chosen(exchanges[2])


def test_without_any_reply_the_model_stays() -> None:
    server = Server({"rounds": 3}, fails=lambda round_, site: True)
    exchanges = server.run()
    assert isinstance(server.state, FedPerlState)
    assert server.state.round == 3
    assert server.state.features == {}
    assert server.state.accuracy == {}
    assert_states_equal(server.state.model, model(0.0))
    assert all(sum(peers_sent(exchange).values()) == 0 for exchange in exchanges)


def test_a_restarted_workflow_asks_the_same() -> None:
    """The state alone decides: the generator holds nothing between two rounds."""
    straight = Server({"participants": 4, "rounds": 6, "peers": "random"})
    expected = straight.run()
    broken = Server({"participants": 4, "rounds": 6, "peers": "random"})
    stopped_after = 3
    broken.method = FedPerl(broken.method.settings.model_copy(update={"rounds": stopped_after}))
    broken.run()
    broken.method = straight.method
    resumed = broken.run()
    assert [exchange.round for exchange in resumed] == [4, 5, 6]
    for exchange, same in zip(resumed, expected[stopped_after:], strict=True):
        assert chosen(exchange) == chosen(same)
        assert exchange.decisions == same.decisions
        assert_states_equal(exchange.model, same.model)


# --- draw_participants


def test_participants_are_sorted_distinct_and_drawn_by_seed() -> None:
    draws = {}
    for seed in (1, 2):
        for round_ in range(1, 30):
            torch.manual_seed(round_)
            drawn = draw_participants(SITES, 3, seed, round_)
            assert drawn == sorted(set(drawn))
            assert len(drawn) == 3
            assert set(drawn) <= set(SITES)
            assert drawn == draw_participants(SITES, 3, seed, round_)
            draws[seed, round_] = tuple(drawn)
    assert any(draws[1, round_] != draws[2, round_] for round_ in range(1, 30))
    assert len({drawn for (seed, _), drawn in draws.items() if seed == 1}) > 5


def test_draws_of_participants_never_change() -> None:
    """Old runs must stay repeatable.

    By hand: the seed is half of the first 16 hexadecimal digits of SHA-256 of "int:5",
    "str:participants" and "int:1" with the character 0x1f between them, and the places are the
    first three of NumPy's permutation of six.
    """
    draws = [draw_participants(SITES, 3, 5, round_) for round_ in (1, 2, 3)]
    assert draws == [
        ["site-1", "site-2", "site-5"],
        ["site-1", "site-2", "site-5"],
        ["site-4", "site-5", "site-6"],
    ]


def test_participants_are_uniform() -> None:
    """Each of the 20 triples of 6 sites in 4000 draws: mean 200, standard deviation under 14."""
    counts: dict[tuple[str, ...], int] = {}
    for round_ in range(4000):
        drawn = tuple(draw_participants(SITES, 3, 5, round_))
        counts[drawn] = counts.get(drawn, 0) + 1
    assert len(counts) == 20
    assert all(abs(count - 200) < 5 * 14 for count in counts.values())


@pytest.mark.parametrize("count", [6, 7, 100, None])
def test_all_sites_take_part_if_there_are_no_more(count: int | None) -> None:
    assert draw_participants(SITES, count, 1, 1) == SITES
    assert draw_participants(SITES[::-1], count, 1, 1) == SITES
    assert draw_participants([], count, 1, 1) == []


def test_every_purpose_has_a_draw_of_its_own() -> None:
    """Rounds, and passes or groups within one: 40 equal pairs have a chance of 15 ** -40."""
    draws = [
        [draw_participants(SITES, 2, 1, round_, *purpose) for round_ in range(40)]
        for purpose in ((), (0,), (1,), ("all",), ("unlabelled",))
    ]
    assert all(one != other for one, other in itertools.combinations(draws, 2))


def test_a_fedavg_round_asks_all_sites_if_no_number_is_set() -> None:
    method = FedAvg(ServerLabels(rounds=2, participants=None))
    rounds = method.rounds(method.start(model(0.0)), Federation(tuple(SITES), 0, {}))
    assert list(next(rounds).tasks) == SITES


# --- the mean of replies


def plain_mean(updates: list[ClientUpdate], otherwise: State) -> State:
    return mean_of(updates, "train", FedAvg(ServerLabels()).weight, Settings(), otherwise, 1.0)


def reply(value: float, steps: int, labelled: int = 1) -> ClientUpdate:
    return ClientUpdate(f"site-{value}", model(value), labelled, 0, steps)


def test_replies_weigh_by_their_steps_not_by_their_images() -> None:
    """(1 * 10 + 3 * 20) / 4 = 17.5, however many images there are."""
    for labelled in (1, 1000):
        mean = plain_mean([reply(10.0, 1, labelled), reply(20.0, 3)], model(0.0))
        assert mean["w"].tolist() == [17.5, 2.0]


def test_equal_steps_give_the_plain_mean_and_no_steps_no_weight() -> None:
    assert plain_mean([reply(10.0, 4), reply(20.0, 4), reply(60.0, 4)], {})["w"][0] == 30.0
    assert plain_mean([reply(10.0, 0), reply(20.0, 4)], {})["w"][0] == 20.0


def test_no_reply_and_no_step_give_the_model_itself() -> None:
    before = model(3.0)
    assert plain_mean([], before) is before
    assert plain_mean([reply(10.0, 0), reply(20.0, 0)], before) is before


def test_a_reply_of_weight_0_gives_the_model_itself() -> None:
    """FedAL weighs by labelled images, and the only site that replies has none."""
    before = model(3.0)
    settings = ActiveSettings()
    updates = [reply(10.0, 4, labelled=0)]
    assert mean_of(updates, "train", FedAL(settings).weight, settings, before, 1.0) is before


def test_replies_without_a_step_are_of_no_use_to_fedperl() -> None:
    """Site 1 has nothing to learn from: it returns the model it was sent, and is never a peer."""
    server = Server({"rounds": 3}, steps=lambda round_, site: 0 if site == "site-1" else 4)
    exchanges = server.run()
    assert isinstance(server.state, FedPerlState)
    assert set(server.state.features) == set(SITES[1:])
    others = [server.value(3, site) for site in SITES[1:]]
    assert server.state.model["w"][0] == pytest.approx(sum(others) / 5)
    for exchange in exchanges[1:]:
        assert chosen(exchange)["site-1"] == []
        assert all("site-1" not in peers for peers in chosen(exchange).values())
        assert "site-1" not in exchange.decisions["peers"]["sites"]


def test_a_reply_without_a_step_is_not_evaluated() -> None:
    judged: list[float] = []

    def validate(state: State) -> float:
        judged.append(state["w"][0].item())
        return 0.5

    options = {"policy": "validation", "rounds": 1}
    server = Server(
        options, validate=validate, steps=lambda round_, site: 4 if site == "site-2" else 0
    )
    server.run()
    assert isinstance(server.state, FedPerlState)
    assert server.state.accuracy == {"site-2": 0.5}
    assert judged == [server.value(1, "site-2")]


# --- settings


@pytest.mark.parametrize(
    ("method", "options", "named"),
    [
        ("fedperl", {"committee": 1}, "committee=1 with anonymise=true"),
        ("fedperl", {"committee": -1}, "committee: "),
        ("fedperl", {"warm_up": -1}, "warm_up: "),
        ("fedperl", {"gate": 1.5}, "gate: "),
        ("fedperl", {"gate": -1.5}, "gate: "),
        ("fedperl", {"policy": "dynamic"}, "policy: "),
        ("fedperl", {"peers": "all"}, "peers: "),
        ("fedperl", {"combine": "max"}, "combine: "),
        ("fedperl", {"similarity_scale": "z"}, "similarity_scale: "),
        ("fedperl", {"consistency_weight": -0.1}, "consistency_weight: "),
        ("fedperl", {"threshold": 1.1}, "threshold: "),
        ("ssfl", {"threshold": -0.1}, "threshold: "),
        ("ssfl", {"unlabelled_weight": -1}, "unlabelled_weight: "),
        ("ssfl", {"committee": 2}, "committee: unknown"),
        ("fedavg", {"threshold": 0.5}, "threshold: unknown"),
        ("fedavg", {"rounds": 0}, "rounds: "),
        ("fedavg", {"participants": 0}, "participants: "),
        ("fedavg", {"learning_rate": 0}, "learning_rate: "),
        ("fedavg", {"clip_gradient": 0}, "clip_gradient: "),
        ("fedavg", {"batch": 0}, "batch: "),
        ("fedavg", {"images_at_most": 0}, "images_at_most: "),
        ("fedavg", {"optimizer": "adagrad"}, "optimizer: "),
        ("fedavg", {"momentum": -0.1}, "momentum: "),
        ("fedavg", {"momentum": 1.1}, "momentum: "),
        ("fedavg", {"weight_decay": -1e-4}, "weight_decay: "),
        ("fedavg", {"class_weighting": "inverse"}, "class_weighting: "),
        ("fedavg", {"images_per_round": 0}, "images_per_round: "),
        (
            "fedavg",
            {"images_per_round": 17, "batch": 4},
            "images_per_round=17 must be a multiple of batch=4",
        ),
        ("fedavg", {"rounds": "many"}, "rounds: "),
    ],
)
def test_wrong_settings_are_refused_by_name(
    method: str, options: dict[str, Any], named: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        Experiment.parse({"method": method, "options": options}, "job test")
    assert "job test" in str(caught.value)
    assert named in str(caught.value)


def test_a_committee_of_one_can_be_chosen_knowingly() -> None:
    settings = settings_of("fedperl", {"committee": 1, "anonymise": False})
    assert settings.model_dump()["committee"] == 1


def test_settings_are_frozen_and_batches_need_not_be_whole() -> None:
    settings = Settings(images_per_round=None, images_at_most=17, batch=16)
    assert (settings.images_per_round, settings.images_at_most) == (None, 17)
    with pytest.raises(ValueError, match="frozen"):
        settings.batch = 8  # type: ignore[misc]


def test_fedavg_asks_for_nothing_but_training() -> None:
    method = FedAvg(ServerLabels(rounds=2, participants=6))
    rounds = method.rounds(method.start(model(0.0)), Federation(tuple(SITES), 0, {}))
    exchange = next(rounds)
    assert all(task.models == {} for task in exchange.tasks.values())
    assert not exchange.decisions

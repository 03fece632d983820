"""Distance-weighted averaging: equations, and workflows of wFedAvg and MT+wFedAvg."""

import math
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from grouped import FOUR, Server, assert_close, assert_same, model, moved, plain_mean, plain_weights
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedward.config import Experiment
from fedward.errors import ConfigError, RunError
from fedward.methods import settings_of
from fedward.methods.averages import weighted_average
from fedward.methods.distances import distance_weights, images_and_distances, model_distance
from fedward.methods.groups import GroupedState
from fedward.methods.workflow import ClientUpdate, Exchange

grid = settings(deadline=None, max_examples=60)
NAN = math.nan
INF = math.inf
image_counts = st.integers(1, 5000)
model_distances = st.floats(0, 50)

# --- distance_weights


def weights(sizes: list[float], distances: list[float], scale: float) -> list[float]:
    found = distance_weights(
        torch.tensor(sizes), torch.tensor(distances, dtype=torch.float64), scale
    )
    assert found.dtype == torch.float64
    return found.tolist()


def test_weights_by_hand() -> None:
    """n = (1, 2), d = (0, 2 log 4): 1 and 2 · exp(-log 4) = 1/2; with a scale of 2, 2/16 = 1/8."""
    far = [0.0, 2 * math.log(4)]
    assert weights([1, 2], far, 0.0) == pytest.approx([1 / 3, 2 / 3], rel=1e-14)
    assert weights([1, 2], far, 1.0) == pytest.approx([2 / 3, 1 / 3], rel=1e-14)
    assert weights([1, 2], far, 2.0) == pytest.approx([8 / 9, 1 / 9], rel=1e-14)


@grid
@given(
    sites=st.lists(st.tuples(image_counts, model_distances), min_size=1, max_size=6),
    scale=st.sampled_from([0.0, 0.01, 1.0, 10.0]),
)
def test_weights_equal_the_formula_where_it_does_not_underflow(
    sites: list[tuple[int, float]], scale: float
) -> None:
    sizes, distances = ([float(site[i]) for site in sites] for i in (0, 1))
    plain = [
        n / sum(sizes) * math.exp(-scale * d / n) for n, d in zip(sizes, distances, strict=True)
    ]
    computed = weights(sizes, distances, scale)
    assert sum(computed) == pytest.approx(1, rel=1e-14)
    assert all(0 <= value <= 1 for value in computed)
    if sum(plain) > 1e-280:
        assert computed == pytest.approx(
            [value / sum(plain) for value in plain], rel=1e-9, abs=1e-280
        )


@pytest.mark.parametrize("scale", [1e4, 1e6, 1e12, 1e100, 1e300])
def test_the_largest_weight_survives_underflow(scale: float) -> None:
    """n = 300, d = 1: exp(-1e4 / 300) is 3e-15, and with 1e6 it is 0 in float64."""
    computed = weights([300, 300, 200], [1.0, 1.001, 1.0], scale)
    assert sum(computed) == pytest.approx(1, rel=1e-14)
    assert computed[0] == max(computed)
    assert computed[0] > computed[1] > computed[2] or computed[1] == computed[2] == 0
    assert weights([300, 300], [1.0, 1.0], scale) == [0.5, 0.5]
    relative = math.exp(-scale * 0.001 / 300) if scale < 1e7 else 0.0
    assert weights([300, 300], [1.0, 1.001], scale) == pytest.approx(
        [1 / (1 + relative), relative / (1 + relative)]
    )


@grid
@given(size=st.floats(0.5, 1e9), distance=st.floats(0, 1e6), scale=st.floats(0, 1e12))
def test_one_site_has_all_the_weight(size: float, distance: float, scale: float) -> None:
    assert weights([size], [distance], scale) == [1.0]


@grid
@given(sites=st.lists(st.tuples(image_counts, model_distances), min_size=1, max_size=6))
def test_without_a_scale_images_alone_count(sites: list[tuple[int, float]]) -> None:
    sizes = [float(size) for size, _ in sites]
    computed = weights(sizes, [distance for _, distance in sites], 0.0)
    assert computed == pytest.approx([size / sum(sizes) for size in sizes], rel=1e-12)


@grid
@given(
    count=st.integers(1, 6), size=image_counts, distance=model_distances, scale=st.floats(0, 1e6)
)
def test_equals_weigh_equally(count: int, size: int, distance: float, scale: float) -> None:
    assert weights([float(size)] * count, [distance] * count, scale) == pytest.approx(
        [1 / count] * count, rel=1e-12
    )


@grid
@given(
    sites=st.lists(st.tuples(image_counts, model_distances), min_size=1, max_size=6),
    scale=st.sampled_from([0.0, 1.0, 100.0, 1e4]),
    data=st.data(),
)
def test_weights_follow_the_sites(
    sites: list[tuple[int, float]], scale: float, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(sites))))
    sizes, distances = ([float(site[i]) for site in sites] for i in (0, 1))
    permuted = weights([sizes[i] for i in order], [distances[i] for i in order], scale)
    expected = weights(sizes, distances, scale)
    assert permuted == pytest.approx([expected[i] for i in order], rel=1e-12, abs=1e-300)


@grid
@given(
    distance=st.floats(0, 10),
    further=st.floats(0.1, 10),
    scale=st.sampled_from([1.0, 100.0]),
    size=image_counts,
)
def test_the_further_site_weighs_less_and_the_larger_more(
    distance: float, further: float, scale: float, size: int
) -> None:
    near, far = weights([float(size)] * 2, [distance, distance + further], scale)
    assert near > far
    small, large = weights([float(size), 2.0 * size], [distance, distance], scale)
    assert large > small


@pytest.mark.parametrize("distance", [0.0, 1.0, 1e300])
def test_a_site_of_no_images_weighs_nothing(distance: float) -> None:
    assert weights([0, 10], [distance, 3.0], 100.0) == [0.0, 1.0]
    assert weights([10, 0, 10], [1.0, distance, 1.0], 0.0) == [0.5, 0.0, 0.5]


@pytest.mark.parametrize(
    ("sizes", "distances", "scale"),
    [
        ([], [], 1.0),
        ([1.0], [1.0, 2.0], 1.0),
        ([[1.0]], [[1.0]], 1.0),
        (1.0, 1.0, 1.0),
        ([0.0, 0.0], [1.0, 1.0], 1.0),
        ([-1.0, 2.0], [1.0, 1.0], 1.0),
        ([NAN, 2.0], [1.0, 1.0], 1.0),
        ([INF, 2.0], [1.0, 1.0], 1.0),
        ([1.0, 2.0], [-1.0, 1.0], 1.0),
        ([1.0, 2.0], [NAN, 1.0], 1.0),
        ([1.0, 2.0], [INF, 1.0], 1.0),
        ([1.0, 2.0], [1.0, 1.0], -1.0),
        ([1.0, 2.0], [1.0, 1.0], NAN),
        ([1.0, 2.0], [1.0, 1.0], INF),
    ],
)
def test_weights_refuse_numbers_out_of_range(sizes: Any, distances: Any, scale: float) -> None:
    with pytest.raises(ConfigError, match="distance_weights"):
        distance_weights(torch.tensor(sizes), torch.tensor(distances), scale)


def test_weights_of_finite_numbers_are_finite() -> None:
    """However large λ d / n is, the largest weight survives."""
    assert weights([300], [1e200], 1e300) == [1.0]


# --- model_distance


def random_model(
    seed: int, tensors: int = 3, dtype: torch.dtype = torch.float32
) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    state = {f"t{i}": torch.randn(2, i + 1, generator=draw).to(dtype) for i in range(tensors)}
    return {**state, "batches": torch.randint(100, (), generator=draw)}


def test_distance_by_hand() -> None:
    """Tensors differ by (3, 4) and by 12: 5 + 12 = 17, and sqrt(25 + 144) = 13."""
    one = {"a": torch.tensor([3.0, 5.0]), "n": torch.tensor(9), "b": torch.tensor([[12.0]])}
    other = {"b": torch.tensor([[0.0]]), "a": torch.tensor([0.0, 1.0]), "n": torch.tensor(4)}
    assert model_distance(one, other) == model_distance(one, other, "sum") == 17.0
    assert model_distance(one, other, "flat") == 13.0


@grid
@given(
    seed=st.integers(0, 1000),
    tensors=st.integers(1, 5),
    dtype=st.sampled_from([torch.float16, torch.float32, torch.float64]),
)
def test_distances_equal_numpy_and_bound_each_other(
    seed: int, tensors: int, dtype: torch.dtype
) -> None:
    one = random_model(seed, tensors, dtype)
    other = random_model(seed + 1, tensors, dtype)
    differences = [
        one[key].numpy().astype(np.float64).ravel() - other[key].numpy().astype(np.float64).ravel()
        for key in one
        if key != "batches"
    ]
    flat = model_distance(one, other, "flat")
    total = model_distance(one, other, "sum")
    assert flat == pytest.approx(float(np.linalg.norm(np.concatenate(differences))), rel=1e-13)
    assert total == pytest.approx(
        sum(float(np.linalg.norm(difference)) for difference in differences), rel=1e-13
    )
    assert flat <= total * (1 + 1e-12)
    assert total <= math.sqrt(tensors) * flat * (1 + 1e-12)
    assert model_distance(other, one, "sum") == total


@pytest.mark.parametrize("norm", ["sum", "flat"])
def test_the_distance_of_equals_is_0_and_of_counters_too(norm: Literal["sum", "flat"]) -> None:
    state = random_model(0)
    assert model_distance(state, {key: value.clone() for key, value in state.items()}, norm) == 0
    assert model_distance({**state, "batches": torch.tensor(10**9)}, state, norm) == 0


def test_distances_are_computed_in_float64() -> None:
    """1e-3 of 1e5 is lost among float32's digits when squared in it; and float16 would overflow."""
    big = torch.full((1000,), 60000.0).half()
    assert model_distance({"w": big}, {"w": -big}, "flat") == pytest.approx(
        120000.0 * math.sqrt(1000), rel=1e-3
    )
    one = {"w": torch.full((10,), 2.0**24)}
    other = {"w": torch.full((10,), 2.0**24 + 2)}
    assert model_distance(one, other, "flat") == math.sqrt(40)


@pytest.mark.parametrize("norm", ["sum", "flat"])
def test_nan_is_not_hidden(norm: Literal["sum", "flat"]) -> None:
    assert math.isnan(model_distance({"w": torch.tensor([NAN])}, {"w": torch.tensor([0.0])}, norm))


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"w": torch.ones(2)}, "tensor b"),
        ({"w": torch.ones(2), "b": torch.ones(1), "c": torch.ones(1)}, "tensor c"),
        ({"w": torch.ones(2), "b": torch.ones(2)}, "tensor b"),
        ({"w": torch.ones(1, 2), "b": torch.ones(1)}, "tensor w"),
    ],
)
def test_distance_names_the_tensor_that_does_not_fit(other: dict[str, Tensor], named: str) -> None:
    state = {"w": torch.ones(2), "b": torch.ones(1)}
    with pytest.raises(ConfigError, match=named):
        model_distance(state, other)
    with pytest.raises(ConfigError, match=named):
        model_distance(other, state)


def test_distance_refuses_unknown_norms() -> None:
    with pytest.raises(ConfigError, match="'l1'"):
        model_distance(model(0), model(0), "l1")  # type: ignore[arg-type]


# --- measure


def replies_of(sizes: dict[str, tuple[int, int]]) -> list[ClientUpdate]:
    return [
        ClientUpdate(site, moved(model(1.0), site), *images, 4) for site, images in sizes.items()
    ]


@pytest.mark.parametrize("norm", ["sum", "flat"])
def test_sizes_are_images_and_distances_are_to_the_mean(norm: Literal["sum", "flat"]) -> None:
    updates = replies_of({"a": (10, 90), "b": (0, 40), "c": (50, 0)})
    sizes, distances = images_and_distances(updates, norm, 1.0)
    assert sizes.tolist() == [10, 40, 50]
    mean = weighted_average([update.state for update in updates], [10, 40, 50])
    assert distances.tolist() == [model_distance(update.state, mean, norm) for update in updates]


@grid
@given(seed=st.integers(0, 1000), n=st.integers(1, 500), m=st.integers(1, 500))
def test_of_two_sites_the_distances_are_as_the_others_images(seed: int, n: int, m: int) -> None:
    """Their mean divides the line between them in the ratio of their images."""
    updates = [
        ClientUpdate(f"{i}", random_model(seed + i, dtype=torch.float64), k, 0, 1)
        for i, k in enumerate((n, m))
    ]
    _, (one, other) = images_and_distances(updates, "sum", 1.0)
    assert one / other == pytest.approx(m / n, rel=1e-6)


# --- WFedAvg, driven by hand


def mean_of(updates: list[ClientUpdate], scale: float = 100.0, norm: str = "sum") -> dict[str, Any]:
    return plain_mean([update.state for update in updates], plain_weights(updates, scale, norm))


@pytest.mark.parametrize("warm_up", [0, 2, 9])
def test_supervised_rounds_are_equal_before_and_after_warm_up(warm_up: int) -> None:
    server = Server("wfedavg", {"rounds": 3, "warm_up": warm_up}).run()
    assert server.parts() == [(1, 0), (2, 0), (3, 0)]
    assert server.tasks(1) == dict.fromkeys(FOUR, "supervised")
    for round_ in (2, 3):
        assert server.tasks(round_) == {"site-1": "supervised", "site-3": "supervised"}
    for round_ in (1, 2, 3):
        updates = server.trained(round_)
        assert [update.site for update in updates] == ["site-1", "site-3"]
        assert_close(server.after[round_], mean_of(updates))
        assert round_ == 3 or server.of(round_ + 1).model is server.after[round_]
    assert_same(server.of(1).model, model(0.0))


@pytest.mark.parametrize(
    ("scale", "norm"), [(0.0, "sum"), (30.0, "sum"), (30.0, "flat"), (1e4, "sum")]
)
def test_the_settings_reach_the_weights_and_the_log_says_them(scale: float, norm: str) -> None:
    server = Server("wfedavg", {"distance_scale": scale, "distance_norm": norm}).run()
    for row in server.groups:
        updates = server.trained(row["round"])
        assert set(row) == {"round", "part", "group", "sites", "weights", "distances"}
        assert (row["part"], row["group"], row["sites"]) == (0, "labelled", ["site-1", "site-3"])
        assert row["weights"] == pytest.approx(
            plain_weights(updates, scale, norm), rel=1e-4, abs=1e-12
        )
        assert_close(server.after[row["round"]], mean_of(updates, scale, norm))
    assert [row["round"] for row in server.groups] == [1, 2, 3]


def test_a_huge_site_is_capped_before_distances_are_measured() -> None:
    """Its 5000 images count as 50, also in the mean from which distances are measured."""
    sites = {"site-1": (30, 0), "site-2": (20, 0), "site-3": (5000, 0)}
    options = {"rounds": 1, "largest_share": 0.5, "distance_scale": 30.0}
    server = Server("wfedavg", options, sites).run()
    capped = [replace(update, labelled=min(update.labelled, 50)) for update in server.trained(1)]
    first, second, huge = plain_weights(capped, 30.0)
    assert huge > 0.5, "so that it is limited to a half, and the others share the rest"
    halves = [first / (first + second) / 2, second / (first + second) / 2, 1 / 2]
    (row,) = server.groups
    assert row["weights"] == pytest.approx(halves, rel=1e-5)


def test_no_models_are_sent_besides_the_global_one() -> None:
    server = Server("mt_wfedavg").run()
    assert all(not task.models for exchange in server.exchanges for task in exchange.tasks.values())


def test_some_failures_leave_the_mean_of_the_others() -> None:
    sites = {**FOUR, "site-5": (60, 0)}
    server = Server(
        "wfedavg", {}, sites, fails=lambda exchange, site: exchange.round == 2 and site == "site-3"
    ).run()
    assert [update.site for update in server.trained(2)] == ["site-1", "site-5"]
    assert_close(server.after[2], mean_of(server.trained(2)))


def test_a_group_of_one_weighs_one() -> None:
    server = Server("wfedavg", {}, {"site-1": (3, 0), "site-2": (0, 5)}).run()
    assert_same(server.after[1], moved(model(0.0), "site-1", 1, 0))
    assert all(row["weights"] == [1.0] and row["distances"] == [0.0] for row in server.groups)


@pytest.mark.parametrize(
    ("name", "warm_up"),
    [
        (name, warm_up)
        for name in ("wfedavg", "fedprox", "mt_wfedavg", "rscfed", "isofed")
        for warm_up in (0, 2)
    ],
)
def test_without_a_labelled_reply_the_model_stays(name: str, warm_up: int) -> None:
    """Whatever unlabelled sites have sent."""
    server = Server(
        name,
        {"warm_up": warm_up},
        fails=lambda exchange, site: exchange.round > 1 and FOUR[site][0] > 0,
    ).run()
    assert server.state.round == 3
    assert (server.after[1]["w"] != model(0.0)["w"]).any()
    assert_same(server.after[3], server.after[1])


@pytest.mark.parametrize(
    ("tasks", "lacks"),
    [
        ({"labelled": "supervised", "unlabelled": "unsupervised"}, True),
        ({"unheard": "supervised", "unlabelled": "unsupervised"}, True),
        ({"declined": "supervised", "unlabelled": "unsupervised"}, False),
        ({"unlabelled": "unsupervised"}, False),
    ],
)
def test_only_sites_that_may_have_labels_can_lack(tasks: dict[str, str], lacks: bool) -> None:
    """One that declined, as it has none, holds up no mean of those that trained without."""
    groups = {"labelled": "labelled", "declined": "unlabelled", "unlabelled": "unlabelled"}
    state = GroupedState(1, model(0.0), groups=groups)
    trained = ClientUpdate("unlabelled", model(1.0), 0, 50, 4)
    assert state.lacks_labelled_reply(tasks, [trained]) is lacks
    with_labels = ClientUpdate("other", model(1.0), 50, 0, 4)
    assert not state.lacks_labelled_reply(tasks, [trained, with_labels])


def test_without_any_reply_the_model_stays() -> None:
    server = Server(
        "mt_wfedavg", {"warm_up": 1}, fails=lambda exchange, site: exchange.round > 1
    ).run()
    assert server.state.round == 3
    assert_same(server.after[3], server.after[1])


def test_a_federation_without_labels_ends_and_names_its_sites() -> None:
    for name in ("wfedavg", "mt_wfedavg"):
        for warm_up in (0, 2):
            with pytest.raises(
                RunError,
                match=r"round 1, sites site-1, site-2: .*with labels, found no site has labels",
            ):
                Server(name, {"warm_up": warm_up}, {"site-1": (0, 10), "site-2": (0, 20)}).run()


def test_sites_first_found_without_labels_end_no_run() -> None:
    """Two of forty sites have labels, and three are drawn, so that several rounds find none."""
    sites = {f"site-{index}": (20, 0) if index > 38 else (0, 30) for index in range(1, 41)}
    for seed in range(5):
        server = Server("wfedavg", {"rounds": 30, "participants": 3}, sites, seed).run()
        assert server.state.round == 30
        assert (server.after[30]["w"] != server.after[1]["w"]).any()


@pytest.mark.parametrize("name", ["wfedavg", "isofed"])
def test_a_silent_site_is_asked_for_three_more_rounds(name: str) -> None:
    """Unlabelled sites alone must not keep a run busy for ever."""
    sites = {"site-1": (0, 9), "site-2": (0, 9)}
    server = Server(name, {"rounds": 9}, sites, fails=lambda exchange, site: site == "site-2")
    with pytest.raises(RunError, match="none in 3 rounds in a row"):
        server.run()
    supervised = [
        exchange
        for exchange in server.exchanges
        if "supervised" in {task.name for task in exchange.tasks.values()}
    ]
    assert [set(exchange.tasks) for exchange in supervised] == [
        {"site-1", "site-2"},
        *[{"site-2"}] * 3,
    ]
    assert server.state.round == 3
    assert_same(server.state.model, model(0.0))


def test_rounds_that_average_again_are_counted_anew() -> None:
    server = Server(
        "isofed",
        {"rounds": 9},
        fails=lambda exchange, site: exchange.round % 3 != 0 and FOUR[site][0] > 0,
    ).run()
    assert server.state.round == 9


@pytest.mark.parametrize(
    ("name", "options", "draws"),
    [
        # Two rounds of warm-up, and two of all sites together.
        ("mt_wfedavg", {"rounds": 4, "warm_up": 2}, ["12", "46", "56", "26"]),
        ("wfedavg", {"rounds": 4}, ["12", "46", "23", "26"]),
        # One round of warm-up, and one of three passes.
        ("rscfed", {"rounds": 2, "sites_per_pass": 2}, ["12", "25", "25", "12"]),
    ],
)
def test_draws_of_groups_never_change(name: str, options: dict[str, Any], draws: list[str]) -> None:
    """Old runs must stay repeatable.

    By hand, as :func:`draw_participants`: after seed 7, "participants" and the round, the purpose
    is "unlabelled" where sites without labels are left out, "all" where none are, and else the
    number of the pass.
    """
    sites = {f"site-{number}": (10, 0) for number in range(1, 7)}
    server = Server(name, {"participants": 2, **options}, sites, seed=7).run()
    drawn = ["".join(site[-1] for site in exchange.tasks) for exchange in server.exchanges]
    assert drawn == draws


def test_draws_of_either_group_never_change() -> None:
    """As above. The purpose is "labelled" where sites with labels are left out."""
    labelled = {f"labelled-{number}": (10, 0) for number in range(1, 7)}
    unlabelled = {f"unlabelled-{number}": (0, 10) for number in range(1, 7)}
    options = {"rounds": 2, "participants": 2}
    # All sites answer in the first round, so that the groups are known in the second.
    sites = {**labelled, **unlabelled}
    server = Server("isofed", options, sites, seed=7, evaluated=True).run()
    assert list(server.of(2, 0).tasks) == ["unlabelled-3", "unlabelled-4"]
    assert list(server.of(2, 1).tasks) == ["labelled-4", "labelled-6"]


def test_participants_are_drawn_among_sites_with_labels() -> None:
    sites = {f"site-{i}": (10 * (i % 2), 10 * (1 - i % 2)) for i in range(1, 9)}
    runs = [
        Server("wfedavg", {"rounds": 20, "participants": 2}, sites, seed=seed).run()
        for seed in (0, 0, 1)
    ]
    drawn = [[tuple(exchange.tasks) for exchange in run.exchanges] for run in runs]
    assert drawn[0] == drawn[1] != drawn[2]
    assert all(len(names) == 2 for names in drawn[0])
    assert len(set(drawn[0])) > 4
    known: set[str] = set()
    for exchange in runs[0].exchanges:
        assert not known & set(exchange.tasks)
        known |= {site for site in exchange.tasks if not sites[site][0]}


# --- MT+wFedAvg


def test_all_sites_start_together_and_are_averaged_together() -> None:
    server = Server("mt_wfedavg", {"rounds": 3, "warm_up": 1}).run()
    assert server.parts() == [(1, 0), (2, 0), (3, 0)]
    for round_ in (2, 3):
        assert server.tasks(round_) == {
            "site-1": "supervised",
            "site-2": "unsupervised",
            "site-3": "supervised",
            "site-4": "unsupervised",
        }
        assert_same(server.of(round_).model, server.after[round_ - 1])
        updates = server.trained(round_)
        assert len(updates) == 4
        assert_close(server.after[round_], mean_of(updates))
    assert [row["group"] for row in server.groups] == ["labelled", "all", "all"]
    assert server.groups[1]["sites"] == sorted(FOUR)
    assert server.groups[1]["weights"] == pytest.approx(plain_weights(server.trained(2), 100.0))


def test_without_warm_up_an_unknown_site_declines_once() -> None:
    server = Server("mt_wfedavg", {"warm_up": 0}).run()
    assert server.tasks(1) == dict.fromkeys(FOUR, "supervised")
    assert [update.site for update in server.trained(1)] == ["site-1", "site-3"]
    assert len(server.trained(2)) == 4


@pytest.mark.parametrize(
    ("name", "evaluated"),
    [
        *((name, False) for name in ("mt_wfedavg", "rscfed", "isofed")),
        *((name, True) for name in ("wfedavg", "fedprox", "mt_wfedavg", "rscfed", "isofed")),
    ],
)
def test_a_site_that_gains_labels_trains_with_them_in_the_end(name: str, evaluated: bool) -> None:
    """Site 4 was known to have none; where its training is not asked for, an evaluation tells."""
    server = Server(
        name,
        {"rounds": 8},
        evaluated=evaluated,
        images=lambda exchange, site: (
            (9, 0) if site == "site-4" and exchange.round > 1 else FOUR[site]
        ),
    )
    server.run()
    assert server.state.groups["site-4"] == "labelled"
    assert any(
        update.site == "site-4" and update.labelled
        for exchange, updates in zip(server.exchanges, server.updates, strict=True)
        for update in updates
        if exchange.round > 2 and update.steps
    )


@pytest.mark.parametrize("site", ["site-3", "site-4"])
def test_a_site_that_changes_group_declines_just_once(site: str) -> None:
    """Site 3 loses its labels, or site 4 gains some, before round 3."""

    def images(exchange: Exchange, name: str) -> tuple[int, int]:
        return FOUR[name][::-1] if name == site and exchange.round >= 3 else FOUR[name]

    server = Server("mt_wfedavg", {"rounds": 4}, images=images).run()
    before, after = (
        ("supervised", "unsupervised") if site == "site-3" else ("unsupervised", "supervised")
    )
    assert server.tasks(3)[site] == before
    assert site not in [update.site for update in server.trained(3)]
    assert_close(server.after[3], mean_of(server.trained(3)))
    assert server.tasks(4)[site] == after
    assert site in [update.site for update in server.trained(4)]


def test_a_warm_up_site_without_labels_is_asked_no_longer() -> None:
    def images(exchange: Exchange, name: str) -> tuple[int, int]:
        return (0, 20) if name == "site-3" and exchange.round >= 2 else FOUR[name]

    server = Server("wfedavg", {"rounds": 4, "warm_up": 4}, images=images).run()
    assert "site-3" in server.of(2).tasks
    assert "site-3" not in server.of(3).tasks


# --- settings


@pytest.mark.parametrize(
    ("method", "options", "named"),
    [
        ("wfedavg", {"distance_scale": -1}, "distance_scale: "),
        ("wfedavg", {"distance_norm": "l1"}, "distance_norm: "),
        ("wfedavg", {"warm_up": -1}, "warm_up: "),
        ("wfedavg", {"adapt": True}, "adapt: unknown"),
        ("mt_wfedavg", {"temperature": 0}, "temperature: "),
        ("mt_wfedavg", {"ema_decay": 1.1}, "ema_decay: "),
        ("mt_wfedavg", {"unlabelled_weight": -0.1}, "unlabelled_weight: "),
        ("mt_wfedavg", {"unlabelled_learning_rate": 0}, "unlabelled_learning_rate: "),
        ("isofed", {"adaptation_rate": 0}, "adaptation_rate: "),
        ("isofed", {"labelled_factor": 2}, "labelled_factor: unknown"),
        ("rscfed", {"passes": 0}, "passes: "),
        ("rscfed", {"sites_per_pass": 0}, "sites_per_pass: "),
        ("rscfed", {"labelled_factor": 0}, "labelled_factor: "),
        ("rscfed", {"unlabelled_distance_scale": -1}, "unlabelled_distance_scale: "),
        ("fedprox", {"proximal_weight": -1}, "proximal_weight: "),
    ],
)
def test_wrong_settings_are_refused_by_name(
    method: str, options: dict[str, Any], named: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        Experiment.parse({"method": method, "options": options}, "job test")
    assert named in str(caught.value)


def test_defaults_are_those_of_the_authors() -> None:
    """RSCFed's README and options.py; FedProx weights by images."""
    defaults = settings_of("isofed", {}).model_dump()
    expected = {
        "batch": 64,
        "optimizer": "sgd",
        "learning_rate": 0.03,
        "momentum": 0.9,
        "weight_decay": 5e-4,
    }
    expected |= {
        "clip_gradient": 5.0,
        "class_weighting": "none",
        "participants": None,
        "images_per_round": None,
    }
    expected |= {
        "warm_up": 7,
        "distance_scale": 100.0,
        "distance_norm": "sum",
        "adapt": True,
        "adaptation_rate": 0.1,
    }
    assert {key: defaults[key] for key in expected} == expected
    assert settings_of("fedprox", {}).model_dump()["distance_scale"] == 0.0


@pytest.mark.parametrize("name", ["wfedavg", "mt_wfedavg"])
def test_fedprox_and_both_bounds_ask_alike_with_full_labels(name: str) -> None:
    """The upper bound: groups make no difference, and the mean is over all."""
    sites = {f"site-{i}": (10 * i, 0) for i in range(1, 5)}
    server = Server(name, {"rounds": 3}, sites).run()
    assert all(set(exchange.tasks) == set(sites) for exchange in server.exchanges)
    other = Server("fedprox", {"rounds": 3, "distance_scale": 100.0}, sites).run()
    assert_same(server.state.model, other.state.model)

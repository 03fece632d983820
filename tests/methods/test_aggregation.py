"""Limits to what one site counts for, and means that hostile sites cannot move.

The weighted average is tested in test_fedavg.py.
"""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedward.config import Experiment
from fedward.errors import ConfigError
from fedward.methods import settings_of
from fedward.methods.aggregation import aggregate, mean_of
from fedward.methods.algorithm import Algorithm
from fedward.methods.averages import trimmed_mean, weighted_average
from fedward.methods.distances import distance_weights, images_and_distances
from fedward.methods.fedavg import FedAvg
from fedward.methods.settings import ServerLabels, Settings
from fedward.methods.weight_limits import capped_counts, capped_weights
from fedward.methods.workflow import ClientUpdate
from fedward.registry import METHODS

grid = settings(deadline=None, max_examples=60)
COUNTS = st.lists(
    st.one_of(st.integers(0, 500), st.just(2**53), st.floats(0, 1e6)), min_size=1, max_size=8
)
SHARES = st.floats(0.05, 1.0)


def states_of(*values: float) -> list[dict[str, Tensor]]:
    return [
        {"w": torch.tensor([float(value), -float(value)]), "batches": torch.tensor(index)}
        for index, value in enumerate(values)
    ]


# --- capped_counts


@pytest.mark.parametrize(
    ("counts", "largest", "expected"),
    [
        ([10, 10, 10], 0.5, [10, 10, 10]),
        ([20, 10, 10], 0.5, [20, 10, 10]),  # exactly a half
        ([100, 10, 10], 0.5, [20, 10, 10]),  # as much as all others together
        ([100, 10, 10], 0.4, [40 / 3, 10, 10]),  # 13.3 of 33.3
        ([300, 100, 5, 5], 0.4, [20, 20, 5, 5]),  # 20 of 50, both
        ([100, 10, 10], 1.0, [100, 10, 10]),
        ([100, 1], 0.5, [100, 1]),  # two sites
        ([100, 1, 0], 0.5, [100, 1, 0]),  # two that count
        ([7], 0.5, [7]),
        ([0, 0, 0], 0.5, [0, 0, 0]),
        ([5, 3, 1], 0.1, [1, 1, 1]),  # a tenth cannot be: a third
        ([2**53, 2**53, 1, 5e-324], 1 / 3, [1, 1, 1, 0]),
    ],
)
def test_counts_worked_by_hand(counts: list[float], largest: float, expected: list[float]) -> None:
    assert capped_counts(counts, largest) == pytest.approx(expected, rel=1e-12)


@grid
@given(counts=COUNTS, largest=SHARES)
def test_no_count_is_above_its_share_and_nothing_else_changes(
    counts: list[float], largest: float
) -> None:
    capped = capped_counts(counts, largest)
    some = sum(count > 0 for count in counts)
    if some < 3:
        assert capped == counts
        return
    cap = max(largest, 1 / some) * sum(capped)
    for before, after in zip(counts, capped, strict=True):
        assert after == before or (after < before and after == max(capped))
        assert after <= cap * (1 + 1e-9)
    lowered = [after for before, after in zip(counts, capped, strict=True) if after < before]
    assert all(count >= cap * (1 - 1e-9) for count in lowered), "lowered by more than it must be"


@grid
@given(counts=COUNTS, largest=SHARES, data=st.data())
def test_order_of_sites_and_unit_of_counts_do_not_matter(
    counts: list[float], largest: float, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(counts))))
    capped = capped_counts(counts, largest)
    assert capped_counts([counts[i] for i in order], largest) == pytest.approx(
        [capped[i] for i in order], rel=1e-9
    )
    assert capped_counts([3 * count for count in counts], largest) == pytest.approx(
        [3 * c for c in capped], rel=1e-9
    )
    ranked = sorted(range(len(counts)), key=lambda i: counts[i])
    assert [capped[i] for i in ranked] == sorted(capped)


@pytest.mark.parametrize("largest", [0.0, -1.0, 1.1, math.nan])
def test_a_share_out_of_range_is_refused(largest: float) -> None:
    with pytest.raises(ConfigError, match="largest_share"):
        capped_counts([1, 2, 3], largest)


# --- trimmed_mean


@pytest.mark.parametrize(
    ("values", "trim", "expected"),
    [
        ([1, 2, 9], 0.5, 2),
        ([1, 2, 4, 9], 0.5, 3),
        ([1, 2, 9], 0.0, 4),
        ([9, 1, 2, 3, 100], 0.2, 14 / 3),  # without 1 and 100
        ([9, 1, 2, 3, 100], 0.21, 3),  # two at either end, rounded up
        ([1, 2, 9], 0.1, 2),
        ([5, 7], 0.5, 6),
        ([5], 0.5, 5),
        ([1, 3, math.inf], 0.2, 3),
    ],
)
def test_trimmed_means_worked_by_hand(values: list[float], trim: float, expected: float) -> None:
    mean = trimmed_mean(states_of(*values), trim)
    assert mean["w"].tolist() == pytest.approx([expected, -expected], rel=1e-6)
    assert mean["w"].dtype == torch.float32
    assert mean["batches"].item() == 0


@grid
@given(
    values=st.lists(
        st.lists(st.floats(-100, 100, width=32), min_size=3, max_size=3), min_size=1, max_size=9
    ),
    trim=st.floats(0, 0.5),
)
def test_each_number_is_the_mean_of_a_sorted_slice(values: list[list[float]], trim: float) -> None:
    mean = trimmed_mean([{"w": torch.tensor(row)} for row in values], trim)["w"].tolist()
    cut = min(math.ceil(round(trim * len(values), 9)), (len(values) - 1) // 2)
    for place in range(3):
        column = sorted(torch.tensor([row[place] for row in values]).tolist())
        middle = column[cut : len(column) - cut]
        assert mean[place] == pytest.approx(sum(middle) / len(middle), rel=1e-5, abs=1e-5)


@grid
@given(
    honest=st.lists(st.floats(-10, 10, width=32), min_size=3, max_size=6),
    hostile=st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=2),
    data=st.data(),
)
def test_hostile_models_stay_in_the_range_of_honest_ones(
    honest: list[float], hostile: list[float], data: st.DataObject
) -> None:
    order = data.draw(st.permutations([*honest, *hostile]))
    for trim in (0.5, len(hostile) / len(order)):
        mean = trimmed_mean(states_of(*order), trim)["w"][0].item()
        assert min(honest) - 1e-5 <= mean <= max(honest) + 1e-5
        assert mean == trimmed_mean(states_of(*sorted(order)), trim)["w"][0].item()


def test_equal_states_are_returned_exactly_and_share_no_memory() -> None:
    state = {
        "w": torch.tensor([0.1, 1e-30, 3e38]),
        "half": torch.tensor([0.1], dtype=torch.bfloat16),
    }
    mean = trimmed_mean([state] * 4, 0.25)
    for key, tensor in state.items():
        assert torch.equal(mean[key], tensor)
        assert mean[key].dtype == tensor.dtype
        assert mean[key].data_ptr() != tensor.data_ptr()


@pytest.mark.parametrize(
    ("states", "trim", "message"),
    [
        ([], 0.5, "0 states"),
        (states_of(1.0), 0.6, "trim 0.6"),
        (states_of(1.0), -0.1, "trim -0.1"),
        ([*states_of(1.0), {"w": torch.zeros(2)}], 0.5, "state 1, key 'batches'"),
        ([{"w": torch.zeros(2)}, {"w": torch.zeros(3)}], 0.5, "state 1, key 'w'"),
    ],
)
def test_what_cannot_be_averaged_is_refused(states: list[Any], trim: float, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        trimmed_mean(states, trim)


# --- the settings


def test_robust_means_count_each_site_with_weight_once() -> None:
    states = states_of(1.0, 2.0, 4.0, 100.0)
    weights = [5.0, 500.0, 1.0, 0.0]
    assert aggregate(states, weights, Settings(robust="median"))["w"][0] == 2.0
    assert aggregate(states, weights, Settings(robust="trimmed_mean"))["w"][0] == 2.0
    expected = weighted_average(states, weights)["w"]
    assert torch.equal(aggregate(states, weights, Settings())["w"], expected)


@pytest.mark.parametrize("method", METHODS)
def test_a_robust_mean_needs_weights_that_are_counts(method: str) -> None:
    options = {"robust": "median"}
    weighted_by_counts = (
        "fedavg",
        "ssfl",
        "fedperl",
        "fedmatch",
        "fedal",
        "fedprox",
        "fedirm",
    )
    if method in weighted_by_counts:
        assert Experiment(method=method, options=options)
    else:
        with pytest.raises(ConfigError, match=f"{method} cannot work with robust=median: "):
            Experiment(method=method, options=options)
    with pytest.raises(ConfigError, match="secure_aggregation"):
        Experiment(
            method=method, options={**options, "participants": None}, secure_aggregation=True
        )


def test_distance_weights_of_zero_scale_allow_a_robust_mean() -> None:
    assert Experiment(method="wfedavg", options={"robust": "trimmed_mean", "distance_scale": 0})


# --- attacks on the mean


def reply(site: str, value: float, labelled: int, steps: int = 13) -> ClientUpdate:
    return ClientUpdate(site, {"w": torch.tensor([value])}, labelled, 0, steps)


def mean_by(algorithm: Algorithm[Any], updates: list[ClientUpdate]) -> torch.Tensor:
    return mean_of(updates, "train", algorithm.weight, algorithm.settings, {}, 1.0)["w"]


def value_of(algorithm: Algorithm[Any], updates: list[ClientUpdate]) -> float:
    return mean_by(algorithm, updates).item()


@pytest.mark.proves(
    "site",
    "2^53 steps or images, reported by a site",
    "it counts for half of an average of three sites or more",
)
def test_a_site_with_huge_counts_is_half_of_the_mean() -> None:
    updates = [reply("a", 0.0, 100), reply("b", 0.0, 100), reply("c", 1.0, 2**53, steps=2**53)]
    for method in ("fedavg", "ssfl", "fedperl", "fedal"):
        assert value_of(METHODS[method](settings_of(method, {})), updates) == 0.5


@pytest.mark.proves(
    "lead",
    "2^53 images, reported by one of two sites",
    "**not covered**: each of two would count for half in any case; set `minimum_replies` to 3",
)
def test_of_two_sites_one_can_own_the_mean() -> None:
    assert value_of(FedAvg(ServerLabels()), [reply("a", 0.0, 9), reply("b", 1.0, 9, 2**53)]) == 1.0


@pytest.mark.proves(
    "site",
    "2^40 images, reported by a site where distances are weights too (IsoFed)",
    "it counts as much as all others together. **Not covered**: if the others have "
    "few images, the equation of distance weights gives it most of the average",
)
def test_a_huge_site_weighs_as_much_as_all_others_by_distance() -> None:
    honest = [reply("a", 0.0, 1000), reply("b", 0.1, 1000), reply("c", 0.2, 1000)]
    sizes, distances = images_and_distances([*honest, reply("d", 1.0, 2**40)], "sum", 0.5)
    assert sizes.tolist() == [1000, 1000, 1000, 3000]
    assert 0.5 < distance_weights(sizes, distances, 100.0)[3] < 0.55
    uncapped = images_and_distances([*honest, reply("d", 1.0, 2**40)], "sum", 1.0)
    assert distance_weights(*uncapped, 100.0)[3] > 0.999999


@pytest.mark.parametrize(
    ("weights", "sizes", "expected"),
    [
        ([0.96, 0.03, 0.01], [7.0, 7.0, 7.0], [0.5, 0.375, 0.125]),
        ([0.98, 0.01, 0.01], [7e12, 7e12, 7e12], [0.5, 0.25, 0.25]),
        ([1.0, 0.0, 0.0], [5.0, 1.0, 3.0], [0.5, 0.125, 0.375]),
        ([0.196, 0.002, 0.002], [7.0, 7.0, 7.0], [0.1, 0.05, 0.05]),
    ],
)
def test_weights_worked_by_hand(
    weights: list[float], sizes: list[float], expected: list[float]
) -> None:
    capped = capped_weights(*torch.tensor([weights, sizes], dtype=torch.float64), 0.5)
    assert capped.tolist() == pytest.approx(expected, rel=1e-10)


def test_weights_that_are_small_enough_are_returned_as_they_are() -> None:
    for weights in (torch.tensor([0.5, 0.25, 0.25]).double(), torch.tensor([0.9, 0.1]).double()):
        assert capped_weights(weights, torch.ones_like(weights), 0.5) is weights


@pytest.mark.proves(
    "site",
    "one of ten sites sends an update just under the largest that passes",
    "a median or trimmed mean (`robust`) stays among the honest models. **Not "
    "covered**: the plain mean, the default",
)
def test_one_hostile_model_of_ten_moves_only_the_plain_mean() -> None:
    draw = torch.Generator().manual_seed(0)
    model = torch.randn(1000, generator=draw)
    honest = [model + 0.01 * torch.randn(1000, generator=draw) for _ in range(9)]
    updates = [
        ClientUpdate(f"{i}", {"w": w}, 100, 0, 13) for i, w in enumerate([*honest, -99.9 * model])
    ]
    lowest = torch.stack(honest).amin(dim=0)
    highest = torch.stack(honest).amax(dim=0)
    for robust in ("median", "trimmed_mean"):
        mean = mean_by(FedAvg(ServerLabels(robust=robust)), updates)
        assert bool(((mean >= lowest) & (mean <= highest)).all())
    assert float((mean_by(FedAvg(ServerLabels()), updates) - model).norm() / model.norm()) > 9

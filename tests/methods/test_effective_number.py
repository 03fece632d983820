"""The number of equally weighted sites that an average is worth, and the levelling of weights."""

import math
from itertools import combinations, pairwise

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedward.errors import ConfigError
from fedward.methods import settings_of
from fedward.methods.aggregation import mean_of
from fedward.methods.distances import distance_weights
from fedward.methods.fedperl.algorithm import FedPerl
from fedward.methods.fedperl.settings import FedPerlSettings
from fedward.methods.rscfed import RSCFed, RSCFedSettings
from fedward.methods.selffed.participation import gain_recession_weights
from fedward.methods.settings import ServerLabels, Settings
from fedward.methods.weight_limits import (
    WeightLimits,
    capped_counts,
    capped_weights,
    effective_number,
    levelled_weights,
)
from fedward.methods.workflow import ClientUpdate, Federation
from fedward.registry import METHODS
from tiny import tiny

grid = settings(deadline=None, max_examples=200)
SIZES = st.lists(st.integers(1, 100_000), min_size=3, max_size=12)
LEAST = st.sampled_from([1.0, 5 / 3, 2.5, 10 / 3, 5.0])
DISTANCES = st.lists(st.floats(0, 1e6), min_size=12, max_size=12)
TIMES = st.lists(st.integers(0, 5000), min_size=12, max_size=12)
FEDAVG = METHODS["fedavg"](ServerLabels())
SCALES = st.one_of(st.just(0.0), st.floats(1e-3, 1e12))


def shares(weights):
    return [weight / sum(weights) for weight in weights]


def assert_worth(before, after, sizes, least):
    """The bound is reached, the sum and the order stay, and the largest share does not grow."""
    assert effective_number(after) >= least * (1 - 1e-9)
    assert sum(after) == pytest.approx(sum(before), rel=1e-12)
    ranked = sorted(range(len(before)), key=lambda site: (before[site], sizes[site] > 0))
    assert all(after[one] <= after[other] for one, other in pairwise(ranked))
    assert max(shares(after)) <= max(shares(before)) * (1 + 1e-12)
    if effective_number(before) >= least:
        assert after == before, "to the last bit"
    else:
        assert effective_number(after) == pytest.approx(least, rel=1e-9), "no more than needed"


# --- effective_number


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ([1, 1, 1], 3.0),
        ([0.5, 0.5, 8e-11], 2.0),
        ([0.5, 0.3, 0.2], 1 / 0.38),
        ([2**60, 2**60], 2.0),
        ([1e-300, 1e-300, 0.0], 2.0),
        ([7], 1.0),
        ([0.0, 0.0], 0.0),
        ([], 0.0),
    ],
)
def test_numbers_worked_by_hand(weights, expected):
    assert effective_number(weights) == pytest.approx(expected, rel=1e-9)


@grid
@given(weights=SIZES, known=st.integers(1, 4))
def test_who_subtracts_sites_is_left_with_the_rest(weights, known):
    """Whichever c sites cooperate: what remains of an average worth E is worth at least E - c."""
    worth = effective_number(weights)
    assume(known < len(weights))
    for gone in combinations(range(len(weights)), known):
        rest = [weight for site, weight in enumerate(weights) if site not in gone]
        assert effective_number(rest) >= (worth - known) * (1 - 1e-9)


def test_the_bound_on_what_is_left_is_met():
    """One site has the share 1 / 2.5; of what is left, the larger of two has 79 %."""
    rest = levelled_weights([0.9, 0.1], [1, 1], 1.5)
    assert rest == pytest.approx([0.5 + math.sqrt(1 / 12), 0.5 - math.sqrt(1 / 12)])
    all_ = [0.4, *(0.6 * weight for weight in rest)]
    assert effective_number(all_) == pytest.approx(2.5)
    assert max(rest) == pytest.approx(0.789, abs=5e-4)


@grid
@given(
    passes=st.lists(
        SIZES.filter(lambda sizes: len(sizes) >= 4).map(lambda sizes: sizes[:4]),
        min_size=1,
        max_size=4,
    )
)
def test_a_mean_of_averages_is_worth_the_least_of_them(passes):
    """As RSCFed's passes, even where the same sites are in all of them."""
    whole = [sum(weights) for weights in zip(*map(shares, passes), strict=True)]
    assert effective_number(whole) >= min(map(effective_number, passes)) * (1 - 1e-9)


# --- levelled_weights


@pytest.mark.parametrize(
    ("weights", "least", "expected"),
    [
        ([0.5, 0.3, 0.2], 2.5, [0.5, 0.3, 0.2]),  # worth 2.63
        ([0.5, 0.5, 8e-11], 2.5, [0.438743, 0.438743, 0.122515]),
        ([10, 10, 1], 2.5, [9.213594, 9.213594, 2.572811]),
        ([0.5, 0.25, 0.25], 3.0, [1 / 3, 1 / 3, 1 / 3]),
        ([1.0, 0.0, 0.0], 1.0, [1.0, 0.0, 0.0]),
        ([0.9, 0.1], 5 / 3, [0.723607, 0.276393]),
        ([5], 1.0, [5]),
    ],
)
def test_weights_worked_by_hand(weights, least, expected):
    assert levelled_weights(weights, [1] * len(weights), least) == pytest.approx(expected, abs=1e-6)


@grid
@given(counts=SIZES, largest=st.floats(0.05, 1.0), least=LEAST)
def test_counts_are_worth_enough(counts, largest, least):
    assume(len(counts) >= least)
    capped = capped_counts(counts, largest)
    levelled = levelled_weights(capped, counts, least)
    assert_worth(capped, levelled, counts, least)
    assert max(shares(levelled)) <= max(largest, 1 / len(counts)) * (1 + 1e-9)


@pytest.mark.proves(
    "lead",
    "sizes, distances or participations by which one or two sites are the average",
    "levelled: no site has more than half of a mean of three, which is worth two and "
    "a half equal ones; fewer replies are refused",
)
@grid
@given(sizes=SIZES, distances=DISTANCES, scale=SCALES, least=LEAST)
def test_weights_by_distance_are_worth_enough(sizes, distances, scale, least):
    assume(len(sizes) >= least)
    n, d = (
        torch.tensor(values, dtype=torch.float64) for values in (sizes, distances[: len(sizes)])
    )
    capped = capped_weights(distance_weights(n, d, scale), n, 0.5).tolist()
    assert_worth(capped, levelled_weights(capped, sizes, least), sizes, least)


@grid
@given(
    sizes=SIZES,
    times=st.lists(st.integers(0, 5000), min_size=12, max_size=12),
    beta=st.floats(1e-3, 1),
    least=LEAST,
)
def test_weights_by_participation_are_worth_enough(sizes, times, beta, least):
    assume(len(sizes) >= least)
    n, taken = (
        torch.tensor(values, dtype=torch.float64) for values in (sizes, times[: len(sizes)])
    )
    capped = capped_weights(gain_recession_weights(n, taken, beta), n, 0.5).tolist()
    assert_worth(capped, levelled_weights(capped, sizes, least), sizes, least)


def test_a_site_without_images_stays_without_weight():
    assert levelled_weights([90.0, 10.0, 0.0], [90, 10, 0], 2.0) == pytest.approx([50.0, 50.0, 0.0])
    of_three = levelled_weights([10.0, 10.0, 1.0], [10, 10, 1], 2.5)
    assert levelled_weights([10.0, 10.0, 1.0, 0.0], [10, 10, 1, 0], 2.5) == [*of_three, 0.0], (
        "nor does it change how far the others are levelled"
    )
    assert levelled_weights([1.0, 0.0, 0.0], [9, 1, 1], 2.5)[1] > 0.1, (
        "a weight that was rounded to 0"
    )


def test_too_few_sites_have_no_weights_that_would_do():
    with pytest.raises(ConfigError, match=r"at least 2\.5 sites with images, or steps, found 2"):
        levelled_weights([1.0, 1.0, 0.0], [1, 1, 0], 2.5)


# --- methods


def update(site, value, labelled, unlabelled=0, steps=4):
    return ClientUpdate(site, {"w": torch.tensor([float(value)])}, labelled, unlabelled, steps)


# --- both limits


def test_both_limits_worked_by_hand():
    """A cap of a half lowers 100 to 20; [20, 10, 10] are worth 8/3 sites, and 2.8 need more."""
    capped = [20.0, 10.0, 10.0]
    assert WeightLimits(0.5, 2.5).limited_counts([100.0, 10.0, 10.0]) == capped
    # 1 - a = √((1/2.8 - 1/3) / (3/8 - 1/3)) = √(4/7)
    scale = math.sqrt(4 / 7)
    levelled = [scale * weight + (1 - scale) * 40 / 3 for weight in capped]
    limits = WeightLimits(0.5, 2.8)
    assert limits.limited_counts([100.0, 10.0, 10.0]) == pytest.approx(levelled, rel=1e-12)


@pytest.mark.parametrize("share", [-1.0, 0.0, 1.5])
@pytest.mark.parametrize("sites", [2, 3])
def test_a_share_that_is_none_is_refused_whatever_the_weights(share: float, sites: int) -> None:
    """Weights that no cap would touch are no excuse."""
    limits = WeightLimits(share, 1.0)
    ones = torch.ones(sites, dtype=torch.float64)
    with pytest.raises(ConfigError, match="largest_share: expected above 0, at most 1"):
        limits.limited_weights(ones, ones)
    with pytest.raises(ConfigError, match="largest_share: expected above 0, at most 1"):
        limits.limited_counts([1.0] * sites)


def test_a_weight_rounded_to_zero_gets_its_part_and_a_count_of_zero_gets_none():
    limits = WeightLimits(0.5, 1.0)
    weights, sizes = torch.tensor([[1.0, 0.0, 0.0], [5.0, 1.0, 3.0]], dtype=torch.float64)
    assert limits.limited_weights(weights, sizes) == pytest.approx([0.5, 0.125, 0.375], rel=1e-10)
    assert limits.limited_counts([1.0, 0.0, 0.0]) == [1.0, 0.0, 0.0]


@grid
@given(sizes=SIZES, distances=DISTANCES, share=st.floats(0.34, 1.0), least=st.floats(1.0, 3.0))
def test_weights_of_every_kind_keep_to_both_limits(sizes, distances, share, least):
    limits = WeightLimits(share, least)
    n = torch.tensor(sizes, dtype=torch.float64)
    d = torch.tensor(distances[: len(sizes)], dtype=torch.float64)
    weights = distance_weights(n, d, 100.0)
    for limited in (limits.limited_counts(sizes), limits.limited_weights(weights, n)):
        assert max(shares(limited)) <= share * (1 + 1e-9)
        assert effective_number(limited) >= least * (1 - 1e-9)


def found_weights(aggregate, counts):
    """Return the weights of an average, from its values at models that are 1 in one place each."""
    return [
        aggregate([update(str(site), site == one, *counts[site]) for site in range(len(counts))])
        for one in range(3)
    ]


@pytest.mark.parametrize("method", ["fedavg", "ssfl", "fedperl", "fedal", "oneshot", "selffed"])
def test_every_mean_of_counts_is_worth_enough(method):
    algorithm = METHODS[method](settings_of(method, {}))
    counts = [(4000, 0, 4000), (4000, 0, 4000), (32, 0, 32)]

    def mean(updates, least):
        return float(
            mean_of(updates, "train", algorithm.weight, algorithm.settings, {}, least)["w"]
        )

    assert effective_number(found_weights(lambda updates: mean(updates, 1.0), counts)) < 2.02
    assert effective_number(
        found_weights(lambda updates: mean(updates, 2.5), counts)
    ) == pytest.approx(2.5, rel=1e-6)


@pytest.mark.parametrize("aggregation", ["normalised", "update"])
def test_what_stays_of_the_model_does_not_count_for_replies(aggregation):
    """SelfFed: two sites take part for the first time, one often has; few replies are needed."""
    method = METHODS["selffed"](settings_of("selffed", {"beta": 0.5, "aggregation": aggregation}))

    def mean(updates, least):
        state = method.start({"w": torch.zeros(1)})
        state.participations = {"0": 3, "1": 3, "2": 40}
        return float(method.aggregate(state, updates, least)["w"])

    counts = [(100, 0), (100, 0), (100, 0)]
    assert effective_number(
        found_weights(lambda updates: mean(updates, 1.0), counts)
    ) == pytest.approx(2.0)
    assert effective_number(
        found_weights(lambda updates: mean(updates, 2.5), counts)
    ) == pytest.approx(2.5, rel=1e-6)


MODELS = {
    "a": torch.tensor([1.0, 0.0, 0.0]),
    "b": torch.tensor([0.9, 0.1, 0.0]),
    "c": torch.tensor([0.0, 0.0, 9.0]),
}


@pytest.mark.parametrize("method", ["wfedavg", "fedprox", "mt_wfedavg", "isofed", "rscfed"])
def test_groups_log_weights_that_are_worth_enough(method):
    options = {"distance_scale": 1e9, "warm_up": 0, "rounds": 1, "largest_share": 0.5}
    algorithm = METHODS[method](settings_of(method, options))
    rows = []

    def run(least):
        rows.clear()
        state = algorithm.start({"w": torch.zeros(3)})
        record = lambda log, row: rows.append(row)  # noqa: E731
        federation = Federation([*MODELS], 1, {}, record=record, effective_replies=least)
        rounds = algorithm.rounds(state, federation)
        exchange = next(rounds)
        try:
            while True:
                replies = [
                    ClientUpdate(site, {"w": MODELS[site]}, 50, 50, 4) for site in exchange.tasks
                ]
                exchange = rounds.send(replies)
        except StopIteration:
            return [effective_number(row["weights"]) for row in rows]

    assert min(run(1.0)) < 2.7
    assert min(run(2.8)) >= 2.8 * (1 - 1e-9)


def test_a_peer_is_worth_all_sites_that_it_is_of():
    """Two sites are more than the 1.5 that an average of three leaves without one's own."""
    method = FedPerl(FedPerlSettings(committee=3))
    models = {site: {"w": torch.eye(3)[place]} for place, site in enumerate("abc")}
    for peers in ("ab", "abc"):
        (peer,) = method.peer_models(list(peers), Federation(list("abc"), 1, models)).values()
        assert effective_number(peer["w"].tolist()) == pytest.approx(len(peers))


def test_sub_averages_of_too_few_are_none():
    assert RSCFed(RSCFedSettings()).settings.sites_per_pass == 3
    assert tiny("rscfed", minimum_replies=3).effective_replies == 2.5


@pytest.mark.parametrize(
    ("replies", "expected"), [(1, 1.0), (2, 5 / 3), (3, 2.5), (4, 10 / 3), (6, 5.0)]
)
def test_a_job_asks_for_five_sixths_of_its_replies(replies, expected):
    assert tiny("fedavg", minimum_replies=replies).effective_replies == pytest.approx(
        expected, rel=1e-15
    )


# --- robust means: each reply counts once, and no weight is left to level


@pytest.mark.parametrize("robust", ["median", "trimmed_mean"])
def test_a_robust_mean_counts_each_reply_once(robust):
    choice = Settings(robust=robust)
    replies = [
        update("a", 1, 50, steps=5000),
        update("b", 3, 50, steps=5000),
        update("c", 2, 50, steps=1),
    ]
    assert float(mean_of(replies, "train", FEDAVG.weight, choice, {}, 2.5)["w"]) == 2.0


@pytest.mark.proves(
    "lead",
    "extremes from the lead's own hospital in a median of three",
    "tells no more of a hospital than the mean of the other two. **Not covered**: if "
    "one of them hardly learns, the other's update shows",
)
def test_a_median_of_three_tells_no_more_than_a_mean_of_two():
    draw = torch.Generator().manual_seed(5)
    victim, other = (torch.randn(100_000, generator=draw) for _ in range(2))
    extreme = torch.full_like(victim, 1e6)
    replies = [
        ClientUpdate(name, {"w": w}, 50, 0, 4)
        for name, w in zip("abc", (victim, other, extreme), strict=True)
    ]
    median = mean_of(replies, "train", FEDAVG.weight, Settings(robust="median"), {}, 2.5)["w"]
    assert torch.equal(median, torch.maximum(victim, other))

    def closeness(found):
        return float(torch.corrcoef(torch.stack([found, victim]))[0, 1])

    assert closeness(median) == pytest.approx(0.5 / math.sqrt(1 - 1 / math.pi), abs=0.01)
    assert closeness((victim + other) / 2) == pytest.approx(math.sqrt(0.5), abs=0.01)

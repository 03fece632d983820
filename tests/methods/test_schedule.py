"""Learning rates of rounds and steps: by hand, without jumps, and in every method."""

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from fedward.errors import ConfigError
from fedward.methods import settings_of
from fedward.methods.local import Measurement
from fedward.methods.schedule import rate_of_round, scheduled_rate, warm_up_factor
from fedward.methods.settings import Settings
from fedward.registry import METHODS

NAN = math.nan
INF = math.inf
grid = settings(deadline=None, max_examples=50)

# --- scheduled_rate


@pytest.mark.parametrize(
    ("position", "cosine", "constant"),
    [
        (0, 0, 0),
        (0.5, 0.25, 0.25),
        (1, 0.5, 0.5),
        (2, 1, 1),
        (4, (2 + math.sqrt(2)) / 4, 1),
        (6, 0.5, 1),
        (10, 0, 1),
    ],
)
def test_rates_by_hand(position: float, cosine: float, constant: float) -> None:
    """Two rounds up to 1, eight down to 0; after a quarter of these (1 + cos(π/4)) / 2."""
    assert scheduled_rate(1.0, position, 10, 2) == pytest.approx(cosine, rel=1e-14)
    assert scheduled_rate(1.0, position, 10, 2, "constant") == pytest.approx(constant, rel=1e-14)


@grid
@given(total=st.integers(1, 50), warm_up=st.floats(0, 0.9), base=st.floats(1e-6, 10))
def test_rates_rise_and_fall_without_a_jump(total: int, warm_up: float, base: float) -> None:
    turn = warm_up * total
    moments = [total * step / 1000 for step in range(1001)]
    rates = [scheduled_rate(base, moment, total, turn) for moment in moments]
    assert all(0 <= rate <= base * (1 + 1e-12) for rate in rates)
    for (before, after), moment in zip(pairwise(rates), moments[1:], strict=True):
        if moment <= turn:
            assert after > before
        elif moment - total / 1000 >= turn:
            assert after <= before + 1e-12 * base
    assert scheduled_rate(base, turn, total, turn) == pytest.approx(base, rel=1e-12)
    assert rates[-1] == pytest.approx(0, abs=1e-15)


def test_a_rate_is_one_of_the_federations_rounds() -> None:
    """A site that missed rounds 3 to 5 gets the rate of round 6 as all others do."""
    rates = [scheduled_rate(1e-3, round_ - 0.5, 20, 4) for round_ in range(1, 21)]
    assert rates.index(max(rates)) == 4
    assert min(rates) > 0


@pytest.mark.parametrize(
    ("base", "position", "total", "warm_up"),
    [
        (0, 1, 10, 2),
        (INF, 1, 10, 2),
        (NAN, 1, 10, 2),
        (1, -1, 10, 2),
        (1, 11, 10, 2),
        (1, NAN, 10, 2),
        (1, 0, 0, 0),
        (1, 0, INF, 0),
        (1, 1, 10, 10),
        (1, 1, 10, -1),
    ],
)
def test_impossible_schedules_are_refused(
    base: float, position: float, total: float, warm_up: float
) -> None:
    with pytest.raises(ConfigError, match="scheduled_rate"):
        scheduled_rate(base, position, total, warm_up)


# --- rate_of_round


def test_rates_of_two_rounds_are_those_of_their_middles() -> None:
    """(1 ± cos(π/4)) / 2; a run of one round has the rate of its middle, a half."""
    two = Settings(rounds=2)
    one = Settings(rounds=1)
    assert [rate_of_round(4.0, round_, two) for round_ in (1, 2)] == pytest.approx(
        [2 + math.sqrt(2), 2 - math.sqrt(2)]
    )
    assert rate_of_round(4.0, 1, one) == pytest.approx(2.0)


@pytest.mark.parametrize("rounds", [1, 2, 7, 500])
def test_the_last_round_learns_and_the_mean_rate_is_half(rounds: int) -> None:
    chosen = Settings(rounds=rounds)
    rates = [rate_of_round(1.0, round_, chosen) for round_ in range(1, rounds + 1)]
    assert rates[-1] > 0
    assert rates == sorted(rates, reverse=True)
    assert sum(rates) == pytest.approx(rounds / 2)


def test_a_constant_rate_is_that_of_the_papers() -> None:
    chosen = Settings(rounds=3, schedule="constant")
    assert [rate_of_round(5e-5, round_, chosen) for round_ in (1, 2, 3)] == [5e-5] * 3


@pytest.mark.parametrize("method", sorted({*METHODS} - {"selffed", "oneshot"}))
@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_every_phase_of_a_method_follows_the_schedule(method: str, schedule: str) -> None:
    """Rates relative to the first round; SelfFed has rates of its own, OneShot has none."""
    options = {"schedule": schedule, "rounds": 25} | (
        {"warm_up": 0} if "warm_up" in settings_fields(method) else {}
    )
    made = METHODS[method](settings_of(method, options))
    expected = (
        (1 + math.cos(math.pi * 20.5 / 25)) / (1 + math.cos(math.pi * 0.5 / 25))
        if schedule == "cosine"
        else 1.0
    )
    checked = 0
    for task, labelled in [("train", 9), ("supervised", 9), ("unsupervised", 0)]:
        first, later = (made.phases(task, round_, labelled) for round_ in (1, 21))
        for one, other in zip(first, later, strict=True):
            if isinstance(one.objective, Measurement):
                continue
            assert other.learning_rate / one.learning_rate == pytest.approx(expected)
            checked += 1
    assert checked


def settings_fields(method: str) -> set[str]:
    return set(METHODS[method].settings_type.model_fields)


@pytest.mark.parametrize("method", list(METHODS))
def test_labels_that_come_late_teach_as_much_as_early_ones(method: str) -> None:
    assert settings_of(method, {}).schedule == ("constant" if method == "fedal" else "cosine")


# --- warm_up_factor


def test_factors_by_hand() -> None:
    assert [warm_up_factor(step, 20, 0.2) for step in range(6)] == pytest.approx(
        [0.2, 0.4, 0.6, 0.8, 1, 1]
    )
    assert [warm_up_factor(step, 3, 1.0) for step in range(3)] == [0.25, 0.5, 0.75]


@grid
@given(steps=st.integers(1, 200), share=st.floats(0, 1))
def test_factors_rise_evenly_from_above_0_to_all(steps: int, share: float) -> None:
    factors = [warm_up_factor(step, steps, share) for step in range(steps)]
    rising = round(share * steps)
    assert [factor < 1 for factor in factors] == [True] * rising + [False] * (steps - rising)
    rises = [after - before for before, after in pairwise([0.0, *factors[:rising]])]
    assert rises == pytest.approx([1 / (rising + 1)] * rising)


@pytest.mark.parametrize(("steps", "share"), [(50, 0.0), (2, 0.2)])
def test_no_share_of_the_steps_is_no_warm_up(steps: int, share: float) -> None:
    assert {warm_up_factor(step, steps, share) for step in range(steps)} == {1.0}


@pytest.mark.parametrize(
    "change", [{"round_warm_up": -0.1}, {"round_warm_up": 1.1}, {"schedule": "linear"}]
)
@pytest.mark.parametrize("method", ["fedavg", "isofed", "fedal", "selffed"])
def test_settings_out_of_range_are_refused(method: str, change: dict) -> None:
    with pytest.raises(ValidationError, match=next(iter(change))):
        settings_of(method, change)

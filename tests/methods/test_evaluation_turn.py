"""Which exchange evaluates which model, with and without a moving average."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedward.methods import settings_of
from fedward.methods.evaluation_turn import (
    evaluates_average,
    evaluation_turn,
    rounds_of_model,
)
from fedward.methods.workflow import Turn
from fedward.registry import METHODS


def algorithm(method: str, rounds: int, decay: float) -> Any:
    options = {"rounds": rounds, "average_decay": decay}
    if method == "isofed":
        options["warm_up"] = 0
    return METHODS[method](settings_of(method, options))


@pytest.mark.parametrize(
    ("method", "decay", "turns"),
    [
        ("fedavg", 0.0, [(1, 0), (2, 0), (3, 0), (4, 0), (5, 0)]),
        ("fedavg", 0.9, [(1, 0), (1, 1), (2, 1), (3, 1), (5, 0)]),
        # A round of IsoFed has the parts 0 and 1.
        ("isofed", 0.9, [(1, 0), (1, 2), (2, 2), (3, 2), (5, 0)]),
    ],
)
def test_turns_of_a_run_of_four_rounds(
    method: str, decay: float, turns: list[tuple[int, int]]
) -> None:
    """The model before the first round and the last model are evaluated as without an average."""
    job = algorithm(method, 4, decay)
    assert [evaluation_turn(job, rounds) for rounds in range(5)] == turns
    are_of_averages = [evaluates_average(job, Turn(*turn)) for turn in turns]
    assert are_of_averages == [False, *[decay > 0] * 3, False]


@given(rounds=st.integers(1, 6), decay=st.sampled_from([0.0, 0.5]))
def test_a_turn_leads_back_to_its_model(rounds: int, decay: float) -> None:
    job = algorithm("isofed", rounds, decay)
    for finished in range(rounds + 1):
        assert rounds_of_model(job, evaluation_turn(job, finished)) == finished
    for round_ in range(1, rounds + 1):
        for part in (0, 1):
            assert rounds_of_model(job, Turn(round_, part)) == round_ - 1

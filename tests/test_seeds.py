"""Derived seeds: the same everywhere and for ever, and unrelated between purposes."""

import subprocess
import sys
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedward.seeds import derive, numpy_generator, torch_generator

PARTS = st.lists(st.one_of(st.text(max_size=8), st.integers(-(10**6), 10**6)), max_size=4)


@pytest.mark.parametrize(
    ("arguments", "seed"),
    [((0,), 3696793467068528757), ((7, "views", "site-3", 2), 2609162270686464278)],
)
def test_seeds_never_change(arguments: tuple, seed: int) -> None:
    """Old runs must stay repeatable.

    By hand: half of the first 16 hexadecimal digits of SHA-256 of "int:0", and of "int:7", "str:views", "str:site-3"
    and "int:2" with the character 0x1f between them.
    """
    assert derive(*arguments) == seed


@given(st.integers(0, 2**63), PARTS)
def test_seeds_are_63_bits_and_depend_on_the_arguments_alone(seed: int, purpose: list) -> None:
    assert 0 <= derive(seed, *purpose) < 2**63
    assert derive(seed, *purpose) == derive(seed, *purpose)


@given(PARTS, PARTS)
def test_different_purposes_give_different_seeds(one: list, other: list) -> None:
    """Also where the texts run together: ("a", "b") is not ("ab",), and 1 is not "1"."""
    assert (derive(1, *one) == derive(1, *other)) == (one == other)


def test_purposes_that_look_alike_differ() -> None:
    alike = [(1, "1"), (1, 1), (11,), (1, "1", ""), (1, "", "1"), (1, "site-1", 0), (1, "site-10"), (1, "site-1", "0")]
    assert len({derive(*each) for each in alike}) == len(alike)


def test_seeds_do_not_depend_on_the_process() -> None:
    """Python's own hashes of texts do."""
    code = "from fedward.seeds import derive; print(derive(3, 'peers', 5, 'site-1'))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": ":".join(sys.path)}
    )
    assert int(done.stdout) == derive(3, "peers", 5, "site-1")


def test_generators_repeat_and_leave_the_global_ones_alone() -> None:
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    draws = [torch.rand(4, generator=torch_generator(1, "a", 2)) for _ in range(2)]
    assert torch.equal(*draws)
    numbers = [numpy_generator(1, "a", 2).random(4) for _ in range(2)]
    assert np.array_equal(*numbers)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])
    assert torch_generator(1, "a").device.type == "cpu"


def test_streams_of_different_purposes_are_unrelated() -> None:
    """Correlations of 2000 numbers each are within five standard deviations of 0."""
    streams = [numpy_generator(1, "a", index).random(2000) for index in range(5)]
    streams += [torch.rand(2000, generator=torch_generator(1, "a", index)).numpy() for index in range(5)]
    streams += [numpy_generator(seed, "a", 0).random(2000) for seed in (2, 3)]
    for one, other in combinations(streams, 2):
        assert abs(np.corrcoef(one, other)[0, 1]) < 5 / 2000**0.5


def test_drawing_more_for_one_purpose_shifts_no_other() -> None:
    expected = torch.rand(3, generator=torch_generator(1, "b"))
    torch.rand(100, generator=torch_generator(1, "a"))
    assert torch.equal(torch.rand(3, generator=torch_generator(1, "b")), expected)

"""Derived seeds: the same everywhere and for ever, and unrelated between purposes."""

import hashlib
import hmac
import subprocess
import sys
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedward.seeds import Draws, derive, numpy_generator, torch_generator

PARTS = st.lists(st.one_of(st.text(max_size=8), st.integers(-(10**6), 10**6)), max_size=4)


@pytest.mark.parametrize(
    ("arguments", "seed"),
    [((0,), 3696793467068528757), ((7, "views", "site-3", 2), 2609162270686464278)],
)
def test_seeds_never_change(arguments: tuple, seed: int) -> None:
    """Old runs must stay repeatable.

    By hand: half of the first 16 hexadecimal digits of SHA-256 of "int:0", and of "int:7",
    "str:views", "str:site-3" and "int:2" with the character 0x1f between them.
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
    alike = [
        (1, "1"),
        (1, 1),
        (11,),
        (1, "1", ""),
        (1, "", "1"),
        (1, "site-1", 0),
        (1, "site-10"),
        (1, "site-1", "0"),
    ]
    assert len({derive(*arguments) for arguments in alike}) == len(alike)


def test_seeds_do_not_depend_on_the_process() -> None:
    """Python's own hashes of texts do."""
    code = "from fedward.seeds import derive; print(derive(3, 'peers', 5, 'site-1'))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path)},
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
    streams += [
        torch.rand(2000, generator=torch_generator(1, "a", index)).numpy() for index in range(5)
    ]
    streams += [numpy_generator(seed, "a", 0).random(2000) for seed in (2, 3)]
    for one, other in combinations(streams, 2):
        assert abs(np.corrcoef(one, other)[0, 1]) < 5 / 2000**0.5


def test_drawing_more_for_one_purpose_shifts_no_other() -> None:
    expected = torch.rand(3, generator=torch_generator(1, "b"))
    torch.rand(100, generator=torch_generator(1, "a"))
    assert torch.equal(torch.rand(3, generator=torch_generator(1, "b")), expected)


# --- with a participant's secret

SECRET = bytes(range(32))
OTHER = bytes(range(1, 33))


def test_draws_without_a_secret_follow_from_the_seed_alone() -> None:
    draws = Draws(7)
    assert draws.derive("views", "site-3", 2) == derive(7, "views", "site-3", 2)
    generator = draws.torch_generator("views", "site-3", 2)
    assert torch.equal(generator.get_state(), torch_generator(7, "views", "site-3", 2).get_state())


def test_draws_with_a_secret_never_change() -> None:
    """By hand: half of the first 16 hexadecimal digits of HMAC-SHA-256 of "int:7", "str:views" with
    0x1f between.
    """
    digest = hmac.new(SECRET, b"int:7\x1fstr:views", hashlib.sha256).hexdigest()
    assert Draws(7, SECRET).derive("views") == int(digest[:16], 16) // 2
    numbers = torch.rand(
        3, generator=Draws(7, SECRET).torch_generator("views"), dtype=torch.float64
    )
    twister = np.random.MT19937()
    key = np.random.SeedSequence(int(digest, 16)).generate_state(624)
    twister.state = {"bit_generator": "MT19937", "state": {"key": key, "pos": 624}}
    words = twister.random_raw(6).astype(np.uint64).reshape(3, 2)
    joined = (words[:, 0] << np.uint64(32) | words[:, 1]) & np.uint64(2**53 - 1)
    assert numbers.tolist() == (joined.astype(np.float64) / 2**53).tolist()


def test_each_secret_seed_and_purpose_has_draws_of_its_own() -> None:
    all_ = [Draws(seed, secret) for seed in (7, 8) for secret in (b"", SECRET, OTHER)]
    streams = [draws.torch_generator(purpose) for draws in all_ for purpose in ("a", "b")]
    assert len({tuple(torch.randperm(40, generator=stream).tolist()) for stream in streams}) == len(
        streams
    )
    assert len({draws.derive(purpose) for draws in all_ for purpose in ("a", "b")}) == len(streams)


def test_a_secret_gives_more_states_than_seeds() -> None:
    """torch takes the low 32 bits of a seed, which can be tried out; here two seeds share them."""
    one, same = (torch.Generator().manual_seed(seed) for seed in (5, 5 + 2**32))
    assert torch.equal(torch.rand(9, generator=one), torch.rand(9, generator=same))
    generator = Draws(7, SECRET).torch_generator("a")
    assert generator.initial_seed() == 0, "its state does not follow from a seed"
    state = generator.get_state()
    torch.rand(2000, generator=generator)
    assert not torch.equal(state, generator.get_state())


def test_drawing_with_a_secret_goes_on_as_any_generator() -> None:
    """Beyond the 624 words of its state, from a copy, and in any kind of number."""
    first, second = (Draws(7, SECRET).torch_generator("a") for _ in range(2))
    assert torch.equal(torch.rand(2000, generator=first), torch.rand(2000, generator=second))
    copy = torch.Generator()
    copy.set_state(first.get_state())
    for draw in (torch.randn, torch.rand):
        assert torch.equal(draw(700, generator=copy), draw(700, generator=first))
    numbers = torch.rand(100_000, generator=first)
    assert float(numbers.mean()) == pytest.approx(0.5, abs=0.005)
    assert float(numbers.var()) == pytest.approx(1 / 12, abs=0.002)


def test_a_secret_is_not_shown() -> None:
    draws = Draws(7, b"0123456789abcdef" * 2)
    assert "0123456789" not in f"{draws!r} {draws}"

"""Equations of fedward.methods.fedal."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedward.errors import ConfigError
from fedward.methods.fedal.query_rounds import annotation_budget
from fedward.methods.samplers.fedal import ensemble_entropy
from fedward.methods.samplers.selection import select

NAN = math.nan
INF = math.inf
grid = settings(deadline=None, max_examples=50)
sizes = st.tuples(
    st.integers(1, 4), st.integers(1, 6), st.integers(1, 5), st.integers(0, 10_000)
)  # T, N, K, seed


def random_probabilities(models: int, images: int, classes: int, seed: int) -> Tensor:
    """Return softmax outputs, some of them so sharp that probabilities are exactly 0."""
    draw = torch.Generator().manual_seed(seed)
    logits = torch.randn(models, images, classes, generator=draw, dtype=torch.float64)
    scales = torch.tensor([1.0, 2.0, 1e4], dtype=torch.float64)
    scale_of_image = scales[torch.randint(3, (images, 1), generator=draw)]
    return (scale_of_image * logits).softmax(dim=2)


def entropy(row: list[float]) -> float:
    return -math.fsum(value * math.log(value) for value in row if value > 0)


# --- ensemble_entropy


def test_entropy_by_hand() -> None:
    """Means of two models: (1/2, 1/2) twice, by doubt and by contradiction; (3/4, 1/4); (1, 0).

    H(3/4, 1/4) = 3/4 log 4/3 + 1/4 log 4 = 2 log 2 - 3/4 log 3.
    """
    local = torch.tensor([[0.5, 0.5], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    glob = torch.tensor([[0.5, 0.5], [0.0, 1.0], [0.5, 0.5], [1.0, 0.0]])
    entropies = ensemble_entropy(torch.stack([local, glob]))
    assert entropies.dtype == torch.float64
    two = math.log(2)
    expected = [two, two, 2 * two - 0.75 * math.log(3), 0]
    assert entropies.tolist() == pytest.approx(expected, rel=1e-15)


@grid
@given(size=sizes)
def test_entropy_equals_a_loop(size: tuple[int, int, int, int]) -> None:
    p = random_probabilities(*size)
    expected = []
    for image in range(p.shape[1]):
        rows = p[:, image].tolist()
        mean = [math.fsum(column) / len(rows) for column in zip(*rows, strict=True)]
        expected.append(entropy(mean))
    assert ensemble_entropy(p).tolist() == pytest.approx(expected, rel=1e-12, abs=1e-14)


@grid
@given(size=sizes)
def test_entropy_is_the_members_doubt_and_their_divergence(size: tuple[int, int, int, int]) -> None:
    """H(p̄) = (1/T) Σ_t H(p_t) + (1/T) Σ_t KL(p_t ‖ p̄), and both are at least 0."""
    p = random_probabilities(*size)
    single = torch.stack([ensemble_entropy(member.unsqueeze(0)) for member in p]).mean(dim=0)
    divergence = torch.special.xlogy(p, p / p.mean(dim=0).clamp_min(1e-300)).sum(dim=2).mean(dim=0)
    torch.testing.assert_close(ensemble_entropy(p), single + divergence, rtol=1e-12, atol=1e-12)
    assert bool((single >= 0).all())
    assert bool((ensemble_entropy(p) >= single - 1e-12).all())


@grid
@given(size=sizes)
def test_equal_members_are_one_model(size: tuple[int, int, int, int]) -> None:
    p = random_probabilities(*size)[:1]
    alone = ensemble_entropy(p)
    assert torch.equal(ensemble_entropy(p.expand(2, -1, -1)), alone)
    expected = [entropy(row) for row in p[0].tolist()]
    assert alone.tolist() == pytest.approx(expected, rel=1e-12, abs=1e-14)
    assert bool((alone >= 0).all())
    assert bool((alone <= math.log(p.shape[2]) + 1e-12).all())


@grid
@given(size=sizes, data=st.data())
def test_entropy_invariances(size: tuple[int, int, int, int], data: st.DataObject) -> None:
    p = random_probabilities(*size)
    models, rows, names = (torch.tensor(data.draw(st.permutations(range(n)))) for n in size[:3])
    expected = ensemble_entropy(p)[rows]
    torch.testing.assert_close(
        ensemble_entropy(p[models][:, rows][:, :, names]), expected, rtol=1e-12, atol=1e-14
    )
    batches = [ensemble_entropy(batch) for batch in p.split(2, dim=1)]
    assert torch.equal(torch.cat(batches), ensemble_entropy(p))


def test_equal_rows_have_equal_entropy_to_the_last_bit() -> None:
    for models, classes in ((2, 7), (5, 3), (9, 40)):
        p = random_probabilities(models, 1, classes, 3).expand(-1, 1001, -1)
        assert len(torch.cat([ensemble_entropy(p), ensemble_entropy(p[:, :1])]).unique()) == 1


def test_entropy_edge_cases() -> None:
    assert ensemble_entropy(torch.empty(2, 0, 3)).shape == (0,)
    assert ensemble_entropy(torch.ones(2, 4, 1)).tolist() == [0] * 4
    entropies = ensemble_entropy(torch.tensor([[[0.5, 0.5], [NAN, 0.5], [INF, 0.0], [1.2, -0.2]]]))
    assert entropies.isfinite().tolist() == [True, False, False, False]
    half = torch.tensor([[[0.5, 0.5]]], dtype=torch.float16)
    assert ensemble_entropy(half).item() == pytest.approx(math.log(2), rel=1e-15)
    assert not ensemble_entropy(torch.full((1, 1, 2), 0.5, requires_grad=True)).requires_grad


@pytest.mark.parametrize("shape", [(3, 2), (0, 3, 2), (2, 3, 0), (1, 1, 1, 1)])
def test_no_ensemble_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="models, images, classes"):
        ensemble_entropy(torch.ones(shape))


# --- annotation_budget


@pytest.mark.parametrize(
    ("pool", "total", "budget"),
    [
        (1144, 458, [46, 46, 45, 46, 46, 46, 46, 45, 46, 46]),
        (2091, 837, [84, 83, 84, 84, 84, 83, 84, 84, 83, 84]),
        (2708, 1083, [108, 109, 108, 108, 109, 108, 108, 108, 109, 108]),
        (1400, 560, [56] * 10),
    ],
)
def test_budget_of_the_papers_hospitals(pool: int, total: int, budget: list[int]) -> None:
    """Half of each hospital's training images, a tenth at the start, ten queries.

    That is 45.8, 83.6 or 83.7, 108.3 and 56 per query.
    round(1144 / 2) - 114 = 458:
    A_k = round(45.8 k) = 46, 92, 137, 183, 229, 275, 321, 366, 412, 458.
    round(2091 / 2) = 1046 (a half goes to the even number), minus 209:
    round(83.7 k) = 84, 167, 251, 335, 419 ...
    1354 - 271 = 1083: round(108.3 k) = 108, 217, 325, 433, 542 ...
    """
    numbers = annotation_budget(pool, round(0.1 * pool), 0.5, 10)
    assert sum(numbers) == total
    assert numbers == budget


@grid
@given(
    pool=st.integers(0, 500), share=st.floats(0, 1), start=st.floats(0, 1), steps=st.integers(1, 30)
)
def test_budget_equals_a_loop_and_keeps_its_promises(
    pool: int, share: float, start: float, steps: int
) -> None:
    target = round(share * pool)
    initial = int(start * target)
    budget = annotation_budget(pool, initial, share, steps)
    expected = []
    reached = 0
    for step in range(1, steps + 1):
        until = math.floor(Fraction(step * (target - initial), steps) + Fraction(1, 2))
        expected.append(until - reached)
        reached = until
    assert budget == expected
    assert sum(budget) == target - initial
    assert max(budget) - min(budget) <= 1
    assert min(budget) >= 0


@grid
@given(pool=st.integers(1, 100), steps=st.integers(1, 10), times=st.integers(1, 5))
def test_budget_of_a_multiple_is_even(pool: int, steps: int, times: int) -> None:
    assert annotation_budget(pool * steps, 0, 1.0, steps) == [pool] * steps
    assert annotation_budget(pool, 0, 1.0, 1) == [pool]
    assert annotation_budget(times * pool, times * pool, 1.0, steps) == [0] * steps


def test_budget_edge_cases() -> None:
    assert annotation_budget(0, 0, 0.5, 3) == [0, 0, 0]
    assert annotation_budget(10, 5, 0.5, 3) == [0, 0, 0]
    # A_k = round(k / 2), halves up: 1, 1, 2, 2.
    assert annotation_budget(10, 0, 0.2, 4) == [1, 0, 1, 0]
    assert annotation_budget(4, 0, 0.0, 2) == [0, 0]


# --- select


def test_select_by_hand() -> None:
    """0.9 comes first, then the two at 0.5 in their order; the third at 0.5 comes too late."""
    scores = torch.tensor([0.5, 0.1, 0.9, 0.5, 0.5])
    ids = ["e", "d", "c", "b", "a"]
    assert select(scores, ids, 3) == ["c", "e", "b"]
    assert select(scores, ids, 0) == []
    assert select(scores, ids, 9) == ["c", "e", "b", "a", "d"]
    assert select(torch.empty(0), [], 4) == []


@grid
@given(scores=st.lists(st.integers(-3, 3), max_size=40), budget=st.integers(0, 45))
def test_select_equals_a_loop(scores: list[int], budget: int) -> None:
    """The argmax of eq. (4), one image after the other; the first of several."""
    remaining = list(range(len(scores)))
    expected = []
    for _ in range(min(budget, len(scores))):
        best = remaining[0]
        for candidate in remaining:
            if scores[candidate] > scores[best]:
                best = candidate
        remaining.remove(best)
        expected.append(best)
    values = torch.tensor(scores, dtype=torch.float64)
    chosen = select(values, range(len(scores)), budget)
    assert chosen == expected
    assert sum(scores[index] for index in chosen) == sum(sorted(scores, reverse=True)[:budget])
    assert select(3 * values + 1, range(len(scores)), budget) == chosen


@grid
@given(scores=st.lists(st.floats(-9, 9), min_size=1, max_size=9, unique=True), data=st.data())
def test_select_ignores_the_order_of_images_without_ties(
    scores: list[float], data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(scores))))
    values = torch.tensor(scores, dtype=torch.float64)
    assert select(values, range(len(scores)), 4) == select(values[order], order, 4)


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_a_broken_score_is_refused_by_its_id(value: float) -> None:
    with pytest.raises(ConfigError, match="for 'b'"):
        select(torch.tensor([1.0, value, NAN]), ["a", "b", "c"], 1)


@pytest.mark.parametrize(
    ("scores", "found"), [(torch.ones(2), r"\(2,\)"), (torch.ones(1, 2), r"\(1, 2\)")]
)
def test_an_image_has_one_score(scores: Tensor, found: str) -> None:
    with pytest.raises(ConfigError, match=f"one score for each of 1 ids, found scores {found}"):
        select(scores, ["a"], 1)


def test_two_steps_of_active_learning() -> None:
    """The first query takes the contradiction and the doubt, the second the least sure of the rest.

    Means of the two models' P(class 1): a 0.5, b 0.05, c 0.4, d 0.1, e 0.5, f 0.25. Five of six
    images are to be labelled, one at the start, by two queries: 2 and 2.
    """
    local = [0.75, 0.1, 0.3, 0.2, 0.5, 0.5]
    glob = [0.25, 0.0, 0.5, 0.0, 0.5, 0.0]
    p = torch.tensor([[[1 - value, value] for value in model] for model in (local, glob)])
    ids = list("abcdef")
    chosen = []
    for budget in annotation_budget(6, 1, 5 / 6, 2):
        rows = [index for index, name in enumerate("abcdef") if name in ids]
        chosen.append(select(ensemble_entropy(p[:, rows]), ids, budget))
        ids = [name for name in ids if name not in chosen[-1]]
    assert chosen == [["a", "e"], ["c", "f"]]
    assert ids == ["b", "d"]

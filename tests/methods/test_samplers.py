"""What all samplers of fedward.methods.samplers promise, and the scores of those that score."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pools import random_pool, random_probabilities, reordered
from pydantic import ValidationError
from skactiveml.pool import average_kl_divergence, uncertainty_scores
from torch import Tensor

from fedward.errors import ConfigError, DataError
from fedward.methods.outputs import SIGMOID
from fedward.methods.samplers import sampler_of
from fedward.methods.samplers.aift import AIFT, AIFTSettings, entropy_and_diversity, majority
from fedward.methods.samplers.base import Sampler, ScoreSampler
from fedward.methods.samplers.fedal import ensemble_entropy
from fedward.methods.samplers.pool import Pool
from fedward.methods.samplers.uncertainty import Margin, bald, margin
from fedward.registry import SAMPLERS
from fedward.seeds import torch_generator

NAN = math.nan
INF = math.inf
grid = settings(deadline=None, max_examples=30)
all_samplers = pytest.mark.parametrize("name", SAMPLERS)
SCORING = [name for name, kind in SAMPLERS.items() if issubclass(kind, ScoreSampler)]
scoring_samplers = pytest.mark.parametrize("name", SCORING)
PREDICTING = [name for name in SAMPLERS if sampler_of(name).uses.models]
DESCRIBING = [name for name in SAMPLERS if sampler_of(name).uses.features != "none"]
samplers_of_features = pytest.mark.parametrize("name", DESCRIBING)
sizes = st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 5), st.integers(0, 10_000))
"""T models, N images, K classes, and a seed."""


def choose(sampler: Sampler, pool: Pool, budget: int, seed: int = 0) -> list[str]:
    return sampler.choose(pool, budget, torch_generator(seed, "sampler", "north", 1))


def score(name: str, probabilities: Tensor) -> Tensor:
    sampler = sampler_of(name)
    assert isinstance(sampler, ScoreSampler)
    return sampler.scores(probabilities)


# --- what all promise


def test_the_table() -> None:
    expected = "random local_entropy global_entropy fedal aift sa mcdal bald margin core_set"
    assert list(SAMPLERS) == expected.split()
    members = {name: sampler_of(name).uses.members for name in SAMPLERS}
    assert members == dict(zip(expected.split(), [0, 1, 1, 2, 8, 1, 3, 2, 1, 0], strict=True))
    assert sampler_of("aift", {"views": 3}).uses.members == 3
    for name in ("local_entropy", "margin", "aift", "sa"):  # the client level of the paper
        assert sampler_of(name).uses.models == ("local",)
    for name in ("global_entropy", "mcdal"):
        assert sampler_of(name).uses.models == ("global",)


@all_samplers
@grid
@given(
    images=st.integers(0, 90),
    budget=st.integers(0, 100),
    classes=st.integers(1, 5),
    seed=st.integers(0, 1000),
    labelled=st.integers(0, 3),
)
def test_exact_counts_of_distinct_ids(
    name: str, images: int, budget: int, classes: int, seed: int, labelled: int
) -> None:
    sampler = sampler_of(name)
    pool = random_pool(sampler, images, classes, seed, labelled)
    chosen = choose(sampler, pool, budget, seed)
    assert len(chosen) == min(budget, images)
    assert len(set(chosen)) == len(chosen)
    assert set(chosen) <= set(pool.ids)
    assert choose(sampler, pool, budget, seed) == chosen


@all_samplers
@grid
@given(
    images=st.integers(1, 80), classes=st.integers(1, 4), seed=st.integers(0, 1000), data=st.data()
)
def test_the_order_of_the_pool_does_not_matter(
    name: str, images: int, classes: int, seed: int, data: st.DataObject
) -> None:
    sampler = sampler_of(name)
    pool = random_pool(sampler, images, classes, seed)
    many_images_are_alike = data.draw(st.booleans())
    if many_images_are_alike:
        pool = replace(pool, probabilities=pool.probabilities[:, :1].expand(-1, images, -1))
        pool = replace(pool, features=pool.features.round())
    order = data.draw(st.permutations(range(images)))
    assert choose(sampler, reordered(pool, order), 7, seed) == choose(sampler, pool, 7, seed)


@all_samplers
def test_the_only_chance_is_the_generators(name: str) -> None:
    sampler = sampler_of(name)
    pool = random_pool(sampler, 60)
    before = torch.get_rng_state()
    generator = torch_generator(0, "sampler")
    untouched = generator.get_state()
    draws = {tuple(choose(sampler, pool, 10, seed)) for seed in range(5)}
    assert torch.equal(torch.get_rng_state(), before)
    by_chance = name in ("random", "sa")
    assert len(draws) == (5 if by_chance else 1)
    sampler.choose(pool, 10, generator)
    assert torch.equal(generator.get_state(), untouched) != by_chance


@all_samplers
def test_outputs_of_any_precision_are_taken(name: str) -> None:
    sampler = sampler_of(name)
    pool = random_pool(sampler, 30)
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        rounded = replace(
            pool, probabilities=pool.probabilities.to(dtype), features=pool.features.to(dtype)
        )
        assert len(choose(sampler, rounded, 5)) == 5


@all_samplers
def test_an_empty_pool_needs_nothing(name: str) -> None:
    assert choose(sampler_of(name), Pool("north", []), 5) == []


@all_samplers
def test_a_whole_pool_is_returned_whole(name: str) -> None:
    sampler = sampler_of(name)
    pool = random_pool(sampler, 9)
    for budget in (9, 1000):
        assert sorted(choose(sampler, pool, budget)) == sorted(pool.ids)


@scoring_samplers
def test_a_single_class_leaves_the_order_of_ids(name: str) -> None:
    sampler = sampler_of(name)
    pool = random_pool(sampler, 12, classes=1)
    assert choose(sampler, pool, 5) == sorted(pool.ids)[:5]


@scoring_samplers
@grid
@given(images=st.integers(1, 12), seed=st.integers(0, 100), data=st.data())
def test_scores_do_not_depend_on_batches_or_names_of_classes(
    name: str, images: int, seed: int, data: st.DataObject
) -> None:
    p = random_pool(sampler_of(name), images, 4, seed).probabilities
    scores = score(name, p)
    assert scores.shape == (images,)
    assert scores.dtype == torch.float64
    assert bool(scores.isfinite().all())
    assert torch.equal(torch.cat([score(name, batch) for batch in p.split(3, dim=1)]), scores)
    alike = score(name, p[:, :1].expand(-1, 203, -1))
    assert torch.equal(alike, scores[0].expand(203))
    order = data.draw(st.permutations(range(4)))
    torch.testing.assert_close(score(name, p[:, :, order]), scores, rtol=1e-12, atol=1e-14)


@all_samplers
def test_a_negative_budget_is_refused(name: str) -> None:
    sampler = sampler_of(name)
    with pytest.raises(
        ConfigError, match=f"site north, sampler {name}: expected a budget >= 0, found -1"
    ):
        choose(sampler, random_pool(sampler, 3), -1)


@all_samplers
def test_an_id_twice_is_refused(name: str) -> None:
    sampler = sampler_of(name)
    pool = replace(random_pool(sampler, 3), ids=["b", "a", "b"])
    for budget in (0, 2):
        with pytest.raises(
            DataError, match=f"site north, sampler {name}: expected every id once, found 'b' again"
        ):
            choose(sampler, pool, budget)


def assert_rows_are_refused(name: str, row: list[float], budget: int = 2) -> None:
    sampler = sampler_of(name)
    pool = replace(random_pool(sampler, 3, classes=2), ids=["b", "c", "a"])
    for image in (0, 1):
        pool.probabilities[-1, image] = torch.tensor(row)
    message = rf"site north, sampler {name}: .* for 2 of 3 images, first 'b'\. .*diverged"
    with pytest.raises(DataError, match=message):
        choose(sampler, pool, budget)


@pytest.mark.parametrize("name", PREDICTING)
def test_predictions_that_are_nan_are_refused(name: str) -> None:
    assert_rows_are_refused(name, [NAN, 1.0])


@pytest.mark.parametrize("row", [[INF, 0.0], [-0.5, 1.5], [3.0, -7.0], [0.2, 0.2]])
def test_predictions_that_are_no_distribution_are_refused(row: list[float]) -> None:
    assert_rows_are_refused("fedal", row)


def test_predictions_are_checked_where_the_budget_is_0() -> None:
    assert_rows_are_refused("fedal", [NAN, 1.0], budget=0)


def assert_shape_is_refused(name: str, shape: tuple[int, ...]) -> None:
    sampler = sampler_of(name)
    pool = replace(random_pool(sampler, 3), probabilities=torch.ones(shape))
    message = rf"expected probabilities \({sampler.uses.members}, 3, K >= 1\)"
    with pytest.raises(DataError, match=message):
        choose(sampler, pool, 1)


@pytest.mark.parametrize("name", PREDICTING)
def test_predictions_of_other_models_are_refused(name: str) -> None:
    assert_shape_is_refused(name, (9, 3, 2))


@pytest.mark.parametrize("shape", [(0, 0, 0), (3, 2), (1, 4, 2), (1, 3, 0)])
def test_predictions_of_other_images_are_refused(shape: tuple[int, ...]) -> None:
    assert_shape_is_refused("local_entropy", shape)


@samplers_of_features
@pytest.mark.parametrize(
    ("features", "labelled"),
    [
        ((0, 0), (0, 0)),
        ((3,), (0, 0)),
        ((2, 5), (1, 5)),
        ((3, 0), (0, 0)),
        ((3, 5), (1, 4)),
        ((3, 5), (5,)),
    ],
)
def test_features_of_other_images_are_refused(
    name: str, features: tuple[int, ...], labelled: tuple[int, ...]
) -> None:
    sampler = sampler_of(name)
    pool = replace(
        random_pool(sampler, 3), features=torch.ones(features), labelled=torch.ones(labelled)
    )
    with pytest.raises(DataError, match=r"site north, .*expected features \(3, D >= 1\)"):
        choose(sampler, pool, 1)


@samplers_of_features
@pytest.mark.parametrize("value", [NAN, INF])
def test_broken_features_are_refused(name: str, value: float) -> None:
    sampler = sampler_of(name)
    pool = random_pool(sampler, 3)
    pool.labelled[0, 0] = value
    with pytest.raises(DataError, match="of labelled images"):
        choose(sampler, pool, 1)
    pool.features[1, 0] = value
    with pytest.raises(DataError, match=f"site north, .*first '{pool.ids[1]}'"):
        choose(sampler, pool, 1)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("random", {"seed": 1}),
        ("aift", {"views": 0}),
        ("aift", {"majority": 0.0}),
        ("aift", {"majority": 1.5}),
        ("aift", {"diversity_weight": -1}),
        ("sa", {"uncertain_share": 1.1}),
        ("sa", {"rows": 63}),
        ("sa", {"groups": 0}),
    ],
)
def test_settings_have_bounds(name: str, options: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match=next(iter(options))):
        sampler_of(name, options)


def test_settings_are_frozen_and_names_known() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        AIFTSettings().views = 3  # type: ignore[misc]
    with pytest.raises(ConfigError, match=r"one of random, .*found 'badge'"):
        sampler_of("badge")


# --- random


def test_random_is_uniform_and_its_budgets_are_nested() -> None:
    """Each of 6 images is in half of 600 draws of 3; the deviation of its count is 12."""
    pool = Pool("north", list("abcdef"))
    draws = [choose(sampler_of("random"), pool, 3, seed) for seed in range(600)]
    counts = [sum(name in draw for draw in draws) for name in pool.ids]
    assert all(abs(count - 300) < 5 * math.sqrt(150) for count in counts)
    assert all(choose(sampler_of("random"), pool, 2, seed) == draws[seed][:2] for seed in range(20))


# --- entropy, margin, BALD


def test_entropies_choose_by_hand() -> None:
    """P(class 1) by the site's own model: a 0.5, b 0.9, c 0.1; by the global one: 0.1, 0.6, 0.9.

    The local model doubts a, the global one b. Their means are a 0.3, b 0.75 and c 0.5; on c they
    contradict each other.
    """
    local = torch.tensor([[[0.5, 0.5], [0.1, 0.9], [0.9, 0.1]]])
    glob = torch.tensor([[[0.9, 0.1], [0.4, 0.6], [0.1, 0.9]]])
    of_local = Pool("north", list("abc"), local)
    of_global = Pool("north", list("abc"), glob)
    of_both = Pool("north", list("abc"), torch.cat([local, glob]))
    assert choose(sampler_of("local_entropy"), of_local, 1) == ["a"]
    assert choose(sampler_of("global_entropy"), of_global, 1) == ["b"]
    assert choose(sampler_of("fedal"), of_both, 3) == ["c", "a", "b"]
    assert choose(sampler_of("bald"), of_both, 1) == ["c"]
    assert choose(sampler_of("margin"), of_local, 3)[0] == "a"


@grid
@given(images=st.integers(1, 9), seed=st.integers(0, 1000))
def test_equal_models_leave_the_entropy_of_one(images: int, seed: int) -> None:
    p = random_probabilities(1, images, 4, seed)
    assert torch.equal(score("fedal", p.expand(2, -1, -1)), score("local_entropy", p))
    assert torch.equal(score("global_entropy", p), score("local_entropy", p))
    assert score("bald", p.expand(2, -1, -1)).tolist() == [0] * images


def test_margin_by_hand() -> None:
    """Second largest less largest: 0.3 - 0.6, 0, 0 - 1; of two models the mean (1/2, 1/2)."""
    p = torch.tensor([[[0.1, 0.6, 0.3], [0.5, 0.0, 0.5], [0.0, 1.0, 0.0]]])
    assert margin(p).tolist() == pytest.approx([-0.3, 0, -1], abs=1e-7)
    assert margin(torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])).tolist() == [0]
    assert margin(torch.ones(1, 2, 1)).tolist() == [-1, -1]
    assert margin(torch.empty(1, 0, 3)).shape == (0,)


def test_bald_by_hand() -> None:
    """Contradiction: H(1/2, 1/2) - 0 = log 2. Common doubt: log 2 - log 2.

    (1, 0) and (1/2, 1/2) have the mean (3/4, 1/4):
    2 log 2 - 3/4 log 3 - 1/2 log 2 = 3/2 log 2 - 3/4 log 3.
    """
    p = torch.tensor([[[1.0, 0.0], [0.5, 0.5], [1.0, 0.0]], [[0.0, 1.0], [0.5, 0.5], [0.5, 0.5]]])
    two = math.log(2)
    three = math.log(3)
    assert bald(p).tolist() == pytest.approx([two, 0, 1.5 * two - 0.75 * three], rel=1e-12)
    assert bald(torch.empty(2, 0, 3)).shape == (0,)
    assert bald(torch.tensor([[[NAN, 0.5]], [[0.5, 0.5]]])).isnan().all()


@grid
@given(size=sizes)
def test_margin_and_bald_equal_loops(size: tuple[int, int, int, int]) -> None:
    p = random_probabilities(*size)
    margins = []
    informations = []
    for image in p.unbind(dim=1):
        mean = image.mean(dim=0).tolist()
        ranked = [*sorted(mean, reverse=True), 0.0]
        margins.append(ranked[1] - ranked[0])
        divergence = [
            a * math.log(a / b)
            for row in image.tolist()
            for a, b in zip(row, mean, strict=True)
            if a
        ]
        informations.append(math.fsum(divergence) / len(image))
    assert margin(p).tolist() == pytest.approx(margins, rel=1e-12, abs=1e-12)
    assert bald(p).tolist() == pytest.approx(informations, rel=1e-9, abs=1e-12)
    assert bool((bald(p) <= math.log(min(size[0], size[2])) + 1e-12).all())


@grid
@given(size=sizes.filter(lambda size: size[2] > 1))
def test_scores_equal_those_of_scikit_activeml(size: tuple[int, int, int, int]) -> None:
    """Its margin is 1 minus the difference; its mean divergence is BALD's information."""
    p = random_probabilities(*size)
    first = np.asarray(p[0])
    assert ensemble_entropy(p[:1]).tolist() == pytest.approx(
        uncertainty_scores(first, method="entropy"), rel=1e-12
    )
    assert (1 + margin(p[:1])).tolist() == pytest.approx(
        uncertainty_scores(first, method="margin_sampling"), rel=1e-9
    )
    clipped = p.clamp_min(1e-6)  # the library cuts at 1e-7
    clipped /= clipped.sum(dim=2, keepdim=True)
    expected = average_kl_divergence(np.array(clipped))
    assert bald(clipped).tolist() == pytest.approx(expected, rel=1e-9, abs=1e-12)


# --- AIFT

PATTERNS = {
    "A": [0.4, 0.4, 0.4, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.6, 0.6],
    "B": [0.0, 0.1, 0.2, 0.3, 0.4, 0.4, 0.6, 0.7, 0.8, 1.0, 1.0],
    "C": [0.0, 0.0, 0.0, 0.1, 0.1, 0.9, 0.9, 1.0, 1.0, 1.0, 1.0],
    "D": [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.9, 0.9, 0.9, 0.9],
    "F": [0.0, 0.0, 0.1, 0.1, 0.1, 0.1, 0.2, 0.2, 0.3, 0.9, 1.0],
    "G": [0.0, 0.1, 0.7, 0.8, 0.8, 0.9, 0.9, 0.9, 0.9, 1.0, 1.0],
}
"""Of Zhou et al., CVPR 2017, Table 1: probabilities of one class on 11 patches."""


def binary(values: list[float]) -> Tensor:
    """Return probabilities (m, 1, 2) with the values as P(class 1)."""
    return torch.tensor([[[1 - value, value]] for value in values], dtype=torch.float64)


def two_class_loop(
    values: list[float], share: float, entropy_weight: float, diversity_weight: float
) -> float:
    """Return eq. (3) with the majority of Sec. 3.3 for two classes, entry by entry of R."""
    mean = math.fsum(values) / len(values)
    kept = sorted(values, reverse=mean > 0.5)[: math.ceil(share * len(values))]
    eps = 2.0**-52
    total = 0.0
    for i, p in enumerate(kept):
        for j, q in enumerate(kept):
            if i == j:
                total -= entropy_weight * (p * math.log(p + eps) + (1 - p) * math.log(1 - p + eps))
            else:
                one = math.log((p + eps) / (q + eps))
                zero = math.log((1 - p + eps) / (1 - q + eps))
                total += diversity_weight * ((p - q) * one + (q - p) * zero)
    return total


def test_aift_by_hand() -> None:
    """P(class 1) on four views: 0.9, 0.5, 0.1, 0.1.

    Their mean is 0.4, so a share of 1/2 keeps both 0.1: 2 H(0.1). A share of 3/4 also keeps 0.5:
    each 0.1 differs from it by 0.4 (log 5 + log 9/5) = 0.4 log 9, counted four times.
    """
    p = binary([0.9, 0.5, 0.1, 0.1])
    doubt = -(0.9 * math.log(0.9) + 0.1 * math.log(0.1))
    assert majority(p, 0.5)[:, 0, 1].tolist() == [0.1, 0.1]
    assert majority(p, 0.75)[:, 0, 1].tolist() == [0.1, 0.1, 0.5]
    assert entropy_and_diversity(majority(p, 0.5), 1.0, 1.0).item() == pytest.approx(
        2 * doubt, rel=1e-12
    )
    three = 2 * doubt + math.log(2) + 1.6 * math.log(9)
    assert entropy_and_diversity(majority(p, 0.75), 1.0, 1.0).item() == pytest.approx(
        three, rel=1e-12
    )


@pytest.mark.parametrize(
    ("share", "views", "kept"),
    [(0.25, 8, 2), (0.25, 11, 3), (0.28, 25, 7), (1, 5, 5), (0.01, 4, 1)],
)
def test_aift_keeps_a_share_rounded_up(share: float, views: int, kept: int) -> None:
    assert len(majority(random_probabilities(views, 3, 4, 0), share)) == kept


def test_of_equally_sure_views_the_earlier_are_kept() -> None:
    """All five give the first class 1/2, and the second 0, 0.1, ..., 0.4."""
    second = torch.arange(5, dtype=torch.float64) / 10
    views = torch.stack([torch.full((5,), 0.5), second, 0.5 - second], dim=1)  # (5, 3)
    assert majority(views.unsqueeze(1), 0.4)[:, 0, 1].tolist() == [0.0, 0.1]


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize(
    ("share", "weights"), [(0.25, (1.0, 0.0)), (0.25, (0.0, 1.0)), (1.0, (1.0, 1.0))]
)
def test_aift_equals_the_papers_equation_on_its_patterns(
    pattern: str, share: float, weights: tuple[float, float]
) -> None:
    values = PATTERNS[pattern]
    sampler = AIFT(
        "aift",
        AIFTSettings(
            views=11, majority=share, entropy_weight=weights[0], diversity_weight=weights[1]
        ),
    )
    assert sampler.scores(binary(values)).item() == pytest.approx(
        two_class_loop(values, share, *weights), abs=1e-9
    )


@grid
@given(size=sizes, share=st.sampled_from([0.25, 0.5, 1.0]))
def test_aift_equals_a_loop(size: tuple[int, int, int, int], share: float) -> None:
    p = random_probabilities(*size)
    expected = []
    for image in p.unbind(dim=1):
        top = int(image.mean(dim=0).argmax())
        kept = sorted(image.tolist(), key=lambda row: -row[top])[: math.ceil(share * len(image))]
        total = 0.0
        for j, one in enumerate(kept):
            for k, other in enumerate(kept):
                if j == k:
                    total -= sum(a * math.log(a) for a in one)
                else:
                    total += 0.5 * sum(
                        (a - b) * math.log(a / b) for a, b in zip(one, other, strict=True)
                    )
        expected.append(total)
    scores = entropy_and_diversity(majority(p, share), 1.0, 0.5)
    assert scores.tolist() == pytest.approx(expected, rel=1e-9, abs=1e-12)
    order = torch.randperm(len(p), generator=torch.Generator().manual_seed(size[3]))
    torch.testing.assert_close(entropy_and_diversity(majority(p[order], share), 1.0, 0.5), scores)


@grid
@given(images=st.integers(1, 9), views=st.integers(1, 5), seed=st.integers(0, 1000))
def test_aift_of_equal_views_is_entropy(images: int, views: int, seed: int) -> None:
    p = random_probabilities(1, images, 3, seed)
    alone = AIFT("aift", AIFTSettings(views=1)).scores(p)
    torch.testing.assert_close(alone, score("local_entropy", p), rtol=1e-12, atol=1e-14)
    repeated = AIFT("aift", AIFTSettings(views=views, majority=1.0)).scores(p.expand(views, -1, -1))
    torch.testing.assert_close(repeated, views * alone, rtol=1e-12, atol=1e-12)
    spread = random_probabilities(views, images, 3, seed)
    only = AIFT("aift", AIFTSettings(views=views, majority=1.0, diversity_weight=0.0)).scores(
        spread
    )
    singles = torch.stack([ensemble_entropy(view.unsqueeze(0)) for view in spread]).sum(dim=0)
    torch.testing.assert_close(only, singles, rtol=1e-12, atol=1e-12)


def test_aift_of_opposite_views_is_finite() -> None:
    """(1, 0) against (0, 1): 2 (1 log 2^52 + 1 log 2^52) = 208 log 2, without any entropy."""
    score = entropy_and_diversity(binary([0.0, 1.0]), 1.0, 1.0)
    assert score.item() == pytest.approx(208 * math.log(2), rel=1e-12)


# --- a golden trace

GOLDEN = {
    "random": ["06 10 09", "01 05 04"],
    "local_entropy": ["10 07 04", "00 02 06"],
    "global_entropy": ["10 07 04", "00 02 06"],
    "fedal": ["00 01 08", "06 10 05"],
    "aift": ["01 00 04", "06 08 05"],
    "sa": ["08 00 01", "06 10 02"],
    "mcdal": ["02 01 06", "11 07 03"],
    "bald": ["11 07 02", "10 01 06"],
    "margin": ["08 00 06", "02 07 04"],
    "core_set": ["01 03 09", "11 00 07"],
}
"""Two steps of three labels each, from twelve images."""


@all_samplers
def test_golden_trace(name: str) -> None:
    sampler = sampler_of(name)
    pool = random_pool(sampler, 12, 3, seed=7)
    trace = []
    for step in (1, 2):
        chosen = sampler.choose(pool, 3, torch_generator(7, "sampler", "north", step))
        pool = reordered(pool, [row for row, image in enumerate(pool.ids) if image not in chosen])
        trace.append(" ".join(image.removeprefix("image-0") for image in chosen))
    assert trace == GOLDEN[name]


# --- images that show several classes, or none


def several(*images: list[float], models: int = 1) -> Pool:
    """Return a pool of images that all models predict with these probabilities."""
    rows = torch.tensor(images, dtype=torch.float64)
    names = [f"{number}" for number in range(len(images))]
    return Pool("north", names, rows.repeat(models, 1, 1), outputs=SIGMOID)


def test_entropy_of_several_classes_by_hand() -> None:
    """H(1/2) = ln 2, H(1) = 0, H(1/4) = 2 ln 2 - 3/4 ln 3; means over models, then over classes."""
    fedal = sampler_of("fedal")
    assert isinstance(fedal, ScoreSampler)
    quarter = 2 * math.log(2) - 0.75 * math.log(3)
    pool = several([0.5, 1.0], [0.25, 0.75], [0.0, 1.0], models=2)
    assert fedal.scores_of(pool).tolist() == pytest.approx([math.log(2) / 2, quarter, 0.0])
    apart = replace(
        pool,
        probabilities=torch.tensor([[[0.0, 0.5]], [[1.0, 0.0]]], dtype=torch.float64),
        ids=["x"],
    )
    assert fedal.scores_of(apart).tolist() == pytest.approx([(math.log(2) + quarter) / 2])
    assert choose(fedal, pool, 2) == ["1", "0"]


@pytest.mark.parametrize(
    "name", [name for name in SAMPLERS if not sampler_of(name).assumes_one_label]
)
@grid
@given(seed=st.integers(0, 1000), classes=st.integers(1, 4))
def test_yes_and_no_count_alike(name: str, seed: int, classes: int) -> None:
    sampler = sampler_of(name)
    draw = torch.Generator().manual_seed(seed)
    shape = (max(1, sampler.uses.members), 6, classes)
    pool = several(*([0.0] * classes for _ in range(6)))
    pool = replace(
        pool,
        probabilities=torch.rand(shape, generator=draw),
        features=torch.rand(6, 3, generator=draw),
    )
    other = replace(pool, probabilities=1 - pool.probabilities)
    if not isinstance(sampler, ScoreSampler):
        assert choose(sampler, pool, 3) == choose(sampler, other, 3)
        return
    scores = sampler.scores_of(pool)
    assert torch.allclose(scores, sampler.scores_of(other), atol=1e-5)


def test_errors_name_a_sampler_as_the_job_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package may offer a sampler of fedward under a name of its own."""
    monkeypatch.setattr(SAMPLERS, "registered", {"doubt": Margin})
    with pytest.raises(DataError, match="site north, sampler doubt: "):
        choose(sampler_of("doubt"), Pool("north", ["a", "a"]), 1)


def test_samplers_for_one_label() -> None:
    assert [name for name in SAMPLERS if sampler_of(name).assumes_one_label] == ["sa", "mcdal"]


@pytest.mark.parametrize("wrong", [NAN, -0.1, 1.1])
def test_broken_answers_of_several_classes_are_refused(wrong: float) -> None:
    message = r"probabilities in \[0, 1\], found others for 1 of 2 images, first '1'"
    with pytest.raises(DataError, match=message):
        choose(sampler_of("margin"), several([0.2, 0.9], [0.5, wrong]), 1)

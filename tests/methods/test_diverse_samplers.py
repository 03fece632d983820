"""Samplers that spread over the pool: fedward.methods.samplers.core_set and suggestive (SA)."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pools import random_pool, random_probabilities
from skactiveml.pool import k_greedy_center
from sklearn.decomposition import PCA
from torch import Tensor

from fedward.methods.samplers import core_set, sampler_of
from fedward.methods.samplers.core_set import k_centre_greedy
from fedward.methods.samplers.pool import Pool
from fedward.methods.samplers.suggestive import hashed_groups, principal_axes
from fedward.seeds import torch_generator

grid = settings(deadline=None, max_examples=50)
NOBODY = torch.empty(0, 2)


def generator(seed: int = 0) -> torch.Generator:
    return torch_generator(seed, "sampler")


def random_features(images: int, length: int, seed: int) -> Tensor:
    return torch.randn(images, length, generator=torch.Generator().manual_seed(seed))


# --- k-centre greedy


def test_centres_by_hand() -> None:
    """Points 0, 1, 4, 10 on a line, 0 labelled: 10 is farthest; then 4 is 4 away, and 1 is 1."""
    line = torch.tensor([[1.0], [4.0], [0.0], [10.0]])
    assert k_centre_greedy(line, torch.tensor([[0.0]]), 3, generator()) == [3, 1, 0]
    assert k_centre_greedy(line, torch.tensor([[0.0]]), 9, generator()) == [3, 1, 0, 2]
    assert k_centre_greedy(line, torch.tensor([[10.0]]), 1, generator()) == [2]
    assert k_centre_greedy(line, line[:1], 0, generator()) == []
    assert k_centre_greedy(NOBODY, NOBODY, 3, generator()) == []


def centres_loop(
    features: list[list[int]], centres: list[list[int]], budget: int, chosen: list[int]
) -> list[int]:
    """Algorithm 1 as printed, with squared distances of whole numbers; the first of several."""
    while len(chosen) < min(budget, len(features)):
        best = -1
        farthest = -1
        for index, point in enumerate(features):
            if index in chosen:
                continue
            all_centres = [*centres, *(features[other] for other in chosen)]
            nearest = min(
                sum((a - b) ** 2 for a, b in zip(point, centre, strict=True))
                for centre in all_centres
            )
            if nearest > farthest:
                best = index
                farthest = nearest
        chosen.append(best)
    return chosen


@grid
@given(
    images=st.integers(0, 30),
    labelled=st.integers(0, 5),
    budget=st.integers(0, 35),
    seed=st.integers(0, 10_000),
)
def test_centres_equal_a_loop(images: int, labelled: int, budget: int, seed: int) -> None:
    """Whole numbers make ties common and distances exact; small blocks make several blocks."""
    draw = torch.Generator().manual_seed(seed)
    features = torch.randint(-3, 4, (images, 2), generator=draw)
    centres = torch.randint(-3, 4, (labelled, 2), generator=draw)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(core_set, "_CENTRES_AT_ONCE", 2)
        chosen = k_centre_greedy(features.float(), centres.float(), budget, generator(seed))
    first = [] if labelled else chosen[:1]
    assert chosen == centres_loop(features.tolist(), centres.tolist(), budget, first)


def test_ties_go_to_the_lowest_position() -> None:
    """From 0, of 3, 7, 10: 10 is farthest. Then 3 and 7 are both 3 from a centre.

    7 was farther before. Of -2, 6, 4: with 6 a centre, 4 is as near as -2, which comes first.
    """
    origin = torch.zeros(1, 1)
    points = torch.tensor([[3.0], [7.0], [10.0]])
    assert k_centre_greedy(points, origin, 3, generator()) == [2, 0, 1]
    points = torch.tensor([[-2.0], [6.0], [4.0]])
    assert k_centre_greedy(points, origin, 3, generator()) == [1, 0, 2]


@pytest.mark.parametrize("seed", range(5))
def test_centres_equal_those_of_scikit_activeml(seed: int) -> None:
    features = random_features(200, 6, seed)
    labels = np.full(200, np.nan)
    labels[:20] = 0
    expected, _ = k_greedy_center(features.double().numpy(), labels, batch_size=100)
    chosen = k_centre_greedy(features[20:], features[:20], 100, generator())
    assert [20 + position for position in chosen] == expected.tolist()


@grid
@given(seed=st.integers(0, 10_000), factor=st.sampled_from([0.5, 4.0]), shift=st.integers(-4, 4))
def test_centres_ignore_shift_scale_rotation_and_repetition(
    seed: int, factor: float, shift: int
) -> None:
    draw = torch.Generator().manual_seed(seed)
    features = torch.randint(-9, 10, (40, 2), generator=draw).float()
    labelled = features[:4]
    rest = features[4:]
    chosen = k_centre_greedy(rest, labelled, 12, generator())
    turned = (factor * features + shift) @ torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
    assert k_centre_greedy(turned[4:], turned[:4], 12, generator()) == chosen
    assert k_centre_greedy(rest, labelled.repeat(3, 1).flip(0), 12, generator()) == chosen
    assert k_centre_greedy(rest, labelled, 5, generator()) == chosen[:5]


def test_the_first_centre_is_drawn_where_none_is_labelled() -> None:
    features = random_features(50, 3, 0)
    choices = [k_centre_greedy(features, NOBODY, 4, generator(seed)) for seed in range(20)]
    assert len({chosen[0] for chosen in choices}) > 5
    for first, *others in choices:
        assert k_centre_greedy(features, features[[first]], 3, generator()) == others


def test_equal_images_come_last() -> None:
    features = torch.tensor([[2.0, 1.0]]).repeat(6, 1)
    features[4] = torch.tensor([5.0, 5.0])
    features[1] = torch.tensor([2.0, 2.0])
    assert k_centre_greedy(features, features[:1], 6, generator()) == [4, 1, 0, 2, 3, 5]


def test_core_set_reads_features_only() -> None:
    sampler = sampler_of("core_set")
    pool = random_pool(sampler, 30)
    order = torch.tensor(sorted(range(30), key=lambda row: pool.ids[row]))
    expected = k_centre_greedy(pool.features[order], pool.labelled, 8, generator())
    assert sampler.choose(pool, 8, generator()) == [
        sorted(pool.ids)[position] for position in expected
    ]


# --- principal axes of images


def test_axes_by_hand() -> None:
    """Rows (0, 0), (1, 1), (2, 2) vary along (1, 1); (3, 0), (0, 0) along (1, 0), also shifted."""
    images = torch.tensor(
        [[[0, 0], [1, 1], [2, 2]], [[3, 0], [0, 0], [0, 0]], [[7, 4], [4, 4], [4, 4]], [[1, 2]] * 3]
    )
    root = math.sqrt(0.5)
    axes = principal_axes(images.byte())
    assert axes.dtype == torch.float32
    torch.testing.assert_close(
        axes, torch.tensor([[root, root], [1, 0], [1, 0], [0, 0]]), atol=1e-6, rtol=0
    )
    assert principal_axes(torch.empty(0, 4, 6)).shape == (0, 6)


@grid
@given(
    images=st.integers(1, 4),
    height=st.integers(2, 6),
    width=st.integers(1, 6),
    seed=st.integers(0, 10_000),
)
def test_axes_equal_those_of_scikit_learn(images: int, height: int, width: int, seed: int) -> None:
    pictures = torch.randn(
        images, height, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    axes = principal_axes(pictures)
    for axis, picture in zip(axes.double(), pictures, strict=True):
        component = torch.from_numpy(PCA(n_components=1).fit(picture.numpy()).components_[0])
        sign = 1.0 if component[component.abs().argmax()] > 0 else -1.0
        torch.testing.assert_close(axis, sign * component, atol=1e-4, rtol=0)
    brighter = principal_axes(3 * pictures.flip(1) + 0.5)  # other light, rows in another order
    torch.testing.assert_close(brighter, axes, atol=1e-4, rtol=0)


# --- groups by hashing


def test_opposite_directions_are_two_groups() -> None:
    """x and -x lie on different sides of every plane, and c x on the same for c > 0."""
    features = torch.tensor([[1.0, 2.0], [-1.0, -2.0], [3.0, 6.0], [0.5, 1.0], [-2.0, -4.0]])
    for seed in range(5):
        assert hashed_groups(features, 10, 30, 20, generator(seed)) == [[0, 2, 3], [1, 4]]
    assert hashed_groups(features, 10, 30, 1, generator()) == [[0, 1, 2, 3, 4]]
    assert hashed_groups(NOBODY, 10, 30, 20, generator()) == []


def test_images_of_small_groups_join_the_nearest() -> None:
    """(-0.6, 0.8) is 0.89 from the mean of the second group and 1.79 from that of the first."""
    features = torch.tensor([[1.0, 0.0]] * 4 + [[-0.6, 0.8]] + [[-1.0, 0.0]] * 3)
    assert hashed_groups(features, 10, 30, 3, generator()) == [[0, 1, 2, 3], [5, 6, 7], [4]]
    assert hashed_groups(features, 10, 30, 2, generator()) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def groups_loop(features: Tensor, bands: int, rows: int, seed: int) -> set[frozenset[int]]:
    """Compare every pair of images in every band, and join those that agree in one band."""
    planes = torch.randn(features.shape[1], bands * rows, generator=generator(seed))
    bits = (features @ planes >= 0).tolist()
    groups = [{index} for index in range(len(bits))]
    for one in range(len(bits)):
        for other in range(one):
            bandwise = [range(band * rows, (band + 1) * rows) for band in range(bands)]
            if any(all(bits[one][bit] == bits[other][bit] for bit in band) for band in bandwise):
                joined = next(group for group in groups if one in group) | next(
                    g for g in groups if other in g
                )
                groups = [group for group in groups if not group & joined] + [joined]
    return {frozenset(group) for group in groups}


@grid
@given(
    images=st.integers(0, 25),
    bands=st.integers(1, 4),
    rows=st.sampled_from([1, 3, 6, 62]),
    seed=st.integers(0, 999),
)
def test_groups_equal_a_loop(images: int, bands: int, rows: int, seed: int) -> None:
    features = random_features(images, 3, seed)
    features[: images // 5] = 0.0  # on every plane
    groups = hashed_groups(features, bands, rows, 1000, generator(seed))
    assert {frozenset(group) for group in groups} == groups_loop(features, bands, rows, seed)
    assert [len(group) for group in groups] == sorted(map(len, groups), reverse=True)
    assert all(group == sorted(group) for group in groups)
    few = hashed_groups(features, bands, rows, 2, generator(seed))
    assert len(few) == min(2, len(groups))
    assert sorted(position for group in few for position in group) == list(range(images))
    assert all(set(kept) <= set(group) for kept, group in zip(groups, few, strict=False))


# --- SA


def two_kinds(images: int, seed: int = 0) -> Pool:
    """Three of four images look one way, the fourth the other."""
    features = torch.tensor([[1.0, 2.0]]).repeat(images, 1)
    features[::4] *= -1
    names = [f"{number:03d}" for number in range(images)]
    return Pool("north", names, random_probabilities(1, images, 3, seed), features)


@pytest.mark.parametrize(("budget", "uncertain"), [(10, 7), (30, 21), (90, 63), (3, 2), (1, 0)])
def test_sa_takes_the_share_of_the_uncertain_exactly(budget: int, uncertain: int) -> None:
    pool = two_kinds(200)
    chosen = sampler_of("sa").choose(pool, budget, generator())
    confidence = pool.probabilities[0].amax(dim=1)
    least = [pool.ids[index] for index in confidence.argsort(stable=True)[:uncertain].tolist()]
    assert chosen[:uncertain] == least
    assert len(set(chosen)) == budget


@grid
@given(images=st.integers(1, 40), budget=st.integers(1, 45), seed=st.integers(0, 1000))
def test_sa_visits_the_groups_in_turn(images: int, budget: int, seed: int) -> None:
    pool = two_kinds(images, seed)
    chosen = sampler_of("sa", {"uncertain_share": 0.0}).choose(pool, budget, generator(seed))
    sizes = Counter(int(name) % 4 == 0 for name in pool.ids)
    taken = Counter(int(name) % 4 == 0 for name in chosen)
    fewer = min(taken[True], taken[False])
    assert abs(taken[True] - taken[False]) <= 1 or fewer == min(sizes[True], sizes[False])
    assert sum(taken.values()) == min(budget, images)


def test_sa_of_the_uncertain_alone_is_least_confidence() -> None:
    pool = two_kinds(40)
    draw = generator()
    before = draw.get_state()
    chosen = sampler_of("sa", {"uncertain_share": 1.0}).choose(pool, 12, draw)
    order = pool.probabilities[0].amax(dim=1).argsort(stable=True)[:12].tolist()
    assert chosen == [pool.ids[index] for index in order]
    assert torch.equal(draw.get_state(), before)


def test_sa_spreads_by_chance_of_the_generator_alone() -> None:
    pool = two_kinds(80)
    sampler = sampler_of("sa")
    draws = [sampler.choose(pool, 20, generator(seed)) for seed in range(4)]
    assert all(draw[:14] == draws[0][:14] for draw in draws)
    assert len({tuple(draw[14:]) for draw in draws}) == 4
    assert all(sampler.choose(pool, 20, generator(seed)) == draw for seed, draw in enumerate(draws))
    certain = replace(pool, probabilities=torch.full((1, 80, 3), 1 / 3))  # all alike: by id
    assert sampler.choose(certain, 20, generator())[:14] == pool.ids[:14]

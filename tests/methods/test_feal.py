"""FEAL's sampler: fedward.methods.samplers.feal."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pools import random_logits, random_pool
from scipy.special import digamma, gammaln
from torch import Tensor

from fedward.errors import DataError
from fedward.methods.samplers import Pool, feal, sampler_of
from fedward.methods.samplers.feal import (
    calibrated_uncertainty,
    concentration,
    differential_entropy,
    expected_entropy,
    relaxed,
)
from fedward.seeds import torch_generator

grid = settings(deadline=None, max_examples=50)
NAN = math.nan
INF = math.inf


def choose(pool: Pool, budget: int, **options: float) -> list[str]:
    return sampler_of("feal", options).choose(pool, budget, torch_generator(0, "sampler"))


def row(*alpha: float) -> Tensor:
    return torch.tensor([alpha], dtype=torch.float64)


# --- numbers by hand


def test_evidence_is_the_part_of_a_logit_above_0() -> None:
    logits = torch.tensor([[2.0, -3.0, 0.0]], requires_grad=True)
    alpha = concentration(logits)
    assert alpha.tolist() == [[3, 1, 1]]
    alpha.sum().backward()
    assert logits.grad is not None
    assert logits.grad.tolist() == [[1, 0, 0]]


def test_expected_entropy_by_hand() -> None:
    """ψ(n + 1) - ψ(m + 1) = 1/(m + 1) + ... + 1/n.

    α = (1, 1): 1/2. (2, 1): 2/3 · 1/3 + 1/3 (1/2 + 1/3) = 1/2. (3, 1): 3/4 · 1/4 + 1/4 (1/2 + 1/3 +
    1/4) = 11/24. Eight ones: 1/2 + ... + 1/8.
    """
    assert expected_entropy(row(1, 1)).item() == pytest.approx(1 / 2, rel=1e-12)
    assert expected_entropy(row(2, 1)).item() == pytest.approx(1 / 2, rel=1e-12)
    assert expected_entropy(row(3, 1)).item() == pytest.approx(11 / 24, rel=1e-12)
    assert expected_entropy(torch.ones(1, 8)).item() == pytest.approx(
        math.fsum(1 / n for n in range(2, 9)), rel=1e-12
    )


def test_differential_entropy_by_hand() -> None:
    """Of Dir(1, ..., 1), uniform on a simplex of volume 1/Γ(K): -lnΓ(K).

    Dir(2, 1) has density 2p on [0, 1]: -∫ 2p ln 2p dp = 1/2 - ln 2.
    """
    assert differential_entropy(row(1, 1)).item() == pytest.approx(0, abs=1e-12)
    assert differential_entropy(torch.ones(1, 8)).item() == pytest.approx(
        -math.log(5040), rel=1e-12
    )
    assert differential_entropy(row(2, 1)).item() == pytest.approx(1 / 2 - math.log(2), rel=1e-12)


def test_calibrated_uncertainty_by_hand() -> None:
    """The global model knows image 0 best, (2, 1), and image 1 not at all.

    Their scales are 0 and 1, the doubts 1/2 + 11/24.
    """
    local = torch.cat([row(1, 1), row(3, 1)])
    glob = torch.cat([row(2, 1), row(1, 1)])
    assert calibrated_uncertainty(local, glob).tolist() == pytest.approx([0, 23 / 24], rel=1e-12)


def test_relaxation_by_hand() -> None:
    """Two directions, with three images on each.

    With one neighbour the second and third image of a direction are left out. With two neighbours a
    direction is dense, too; with three it is not, and the order stands.
    """
    features = torch.tensor(
        [[1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [3.0, 0.1], [0.0, 5.0], [0.1, 4.0]]
    )
    order = torch.arange(6)
    for neighbours in (1, 2):
        assert relaxed(order, features, 2, neighbours, 0.85) == [0, 2]
        assert relaxed(order, features, 4, neighbours, 0.85)[:2] == [0, 2]
    assert relaxed(order, features, 4, 2, 0.85) == [0, 2, 1, 3], "filled up by score"
    assert relaxed(order, features, 4, 3, 0.85) == [0, 1, 2, 3]
    assert relaxed(order.flip(0), features, 2, 2, 0.85) == [5, 3]


# --- naive loops


def entropies(alpha: list[float]) -> tuple[float, float]:
    """Return the aleatoric and the epistemic uncertainty."""
    total = math.fsum(alpha)
    classes = len(alpha)
    inside = math.fsum(a / total * (digamma(total + 1) - digamma(a + 1)) for a in alpha)
    normaliser = math.fsum(gammaln(a) for a in alpha) - gammaln(total)
    rest = (total - classes) * digamma(total) - math.fsum((a - 1) * digamma(a) for a in alpha)
    return inside, normaliser + rest


@grid
@given(images=st.integers(1, 6), classes=st.integers(1, 6), seed=st.integers(0, 10_000))
def test_scores_equal_a_loop(images: int, classes: int, seed: int) -> None:
    local, glob = concentration(random_logits(2, images, classes, seed))
    local_entropies = [entropies(alpha) for alpha in local.tolist()]
    global_entropies = [entropies(alpha) for alpha in glob.tolist()]
    unknown = [epistemic for _, epistemic in global_entropies]
    assert differential_entropy(glob).tolist() == pytest.approx(unknown, rel=1e-9, abs=1e-9)
    span = max(unknown) - min(unknown)
    expected = []
    for (local_doubt, _), (global_doubt, epistemic) in zip(
        local_entropies, global_entropies, strict=True
    ):
        scale = (epistemic - min(unknown)) / span if span > 1e-12 else 1.0
        expected.append(scale * (local_doubt + global_doubt))
    if span == 0 or span > 1e-6:
        scores = calibrated_uncertainty(local, glob).tolist()
        assert scores == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_uncertainties_are_those_of_samples() -> None:
    alpha = row(4.0, 1.0, 2.5, 1.2)
    distribution = torch.distributions.Dirichlet(alpha[0])
    assert differential_entropy(alpha).item() == pytest.approx(
        distribution.entropy().item(), rel=1e-9
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        samples = distribution.sample(torch.Size([100_000]))
    mean_entropy = torch.special.entr(samples).sum(dim=1).mean().item()
    assert expected_entropy(alpha).item() == pytest.approx(mean_entropy, rel=0.01)


def relaxed_loop(
    order: list[int], features: Tensor, budget: int, neighbours: int, similarity: float
) -> list[int]:
    """Return the authors' choice, with neighbours from a full sort of exact cosines."""
    rows = features.long().tolist()
    taken: list[int] = []
    left_out: list[int] = []

    def inner_product(one: int, other: int) -> int:
        return sum(a * b for a, b in zip(rows[one], rows[other], strict=True))

    def cosine(one: int, other: int) -> float:
        squares = inner_product(one, one) * inner_product(other, other)
        return round(inner_product(one, other) / math.sqrt(squares), 9) if squares else 0.0

    for image in order:
        if len(taken) == budget:
            break
        others = [other for other in range(len(rows)) if other != image]
        nearest = sorted(others, key=lambda other: (-cosine(image, other), other))[:neighbours]
        alike = [other for other in nearest if cosine(image, other) > similarity]
        if len(alike) == neighbours and set(alike) & set(taken):
            left_out.append(image)
        else:
            taken.append(image)
    return (taken + left_out)[:budget]


@grid
@given(
    images=st.integers(0, 30),
    budget=st.integers(0, 35),
    neighbours=st.integers(1, 6),
    seed=st.integers(0, 10_000),
)
def test_relaxation_equals_a_loop(images: int, budget: int, neighbours: int, seed: int) -> None:
    """Few whole numbers make equal directions common; small blocks make several blocks."""
    draw = torch.Generator().manual_seed(seed)
    features = torch.randint(-2, 3, (images, 3), generator=draw).float()
    order = torch.randperm(images, generator=draw)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feal, "_ROWS_AT_ONCE", 3)
        chosen = relaxed(order, features, budget, neighbours, 0.81)
    assert chosen == relaxed_loop(order.tolist(), features, budget, neighbours, 0.81)


# --- degenerate cases and invariances


def test_evidence_for_one_class_lowers_both() -> None:
    alpha = torch.stack(
        [torch.tensor([evidence, 1.0, 1.0]) for evidence in (3.0, 6.0, 12.0, 100.0)]
    )
    for uncertainty in (expected_entropy, differential_entropy):
        entropies = uncertainty(alpha)
        assert bool((entropies[1:] < entropies[:-1]).all())
        assert bool((uncertainty(torch.ones(1, 3)) > entropies).all())


@grid
@given(images=st.integers(1, 9), seed=st.integers(0, 10_000), data=st.data())
def test_names_of_classes_do_not_matter(images: int, seed: int, data: st.DataObject) -> None:
    local, glob = concentration(random_logits(2, images, 4, seed))
    order = data.draw(st.permutations(range(4)))
    scores = calibrated_uncertainty(local[:, order], glob[:, order])
    torch.testing.assert_close(scores, calibrated_uncertainty(local, glob), rtol=1e-9, atol=1e-9)


def test_no_evidence_anywhere_leaves_doubt_alone() -> None:
    """All images equally known: the scale is 1, and no number is divided by 0."""
    local = concentration(random_logits(1, 5, 3, 0)[0])
    expected = expected_entropy(local) + expected_entropy(torch.ones(1, 3))
    assert torch.equal(calibrated_uncertainty(local, torch.ones(5, 3)), expected)
    assert calibrated_uncertainty(torch.ones(0, 3), torch.ones(0, 3)).shape == (0,)
    assert calibrated_uncertainty(torch.ones(2, 1), torch.ones(2, 1)).tolist() == [0, 0]


def test_equal_images_have_equal_scores() -> None:
    local, glob = concentration(random_logits(2, 1, 7, 3)).expand(-1, 203, -1)
    scores = calibrated_uncertainty(local, glob)
    assert torch.equal(scores, scores[0].expand(203))


def test_large_logits_stay_finite() -> None:
    logits = torch.tensor([[3e4, -3e4, 0.0], [1e-9, 2e4, 2e4]])
    assert bool(
        calibrated_uncertainty(*concentration(torch.stack([logits, logits]))).isfinite().all()
    )


@pytest.mark.parametrize("copies", [6, 7, 40])
def test_equal_images_are_taken_once(copies: int) -> None:
    """As long as there are others; afterwards by falling score, and of those by id."""
    features = torch.randn(60, 8, generator=torch.Generator().manual_seed(0))
    features[:copies] = torch.randn(8, generator=torch.Generator().manual_seed(1))
    order = torch.arange(60)
    chosen = relaxed(order, features, 60 - copies + 1, 5, 0.85)
    assert chosen == [0, *range(copies, 60)]
    assert relaxed(order, features, 60, 5, 0.85)[-copies + 1 :] == list(range(1, copies))


def test_without_dense_regions_the_highest_scores_are_chosen() -> None:
    pool = random_pool(sampler_of("feal"), 30)
    positions = sorted(range(30), key=pool.ids.__getitem__)
    scores = calibrated_uncertainty(*concentration(pool.logits)).tolist()
    best = sorted(positions, key=lambda position: -scores[position])[:8]
    assert choose(pool, 8, neighbours=40) == [pool.ids[position] for position in best]
    assert choose(pool, 8, similarity=0.999999) == [pool.ids[position] for position in best]


def test_scale_and_sign_of_features() -> None:
    """Lengths of features do not matter; opposite ones and features of 0 are not alike."""
    features = torch.tensor([[1.0, 1.0], [-1.0, -1.0], [0.0, 0.0], [0.0, 0.0], [7.0, 7.0]])
    assert relaxed(torch.arange(5), features, 4, 1, 0.85) == [0, 1, 2, 3]
    assert relaxed(torch.arange(5), features * torch.rand(5, 1).add(0.1), 4, 1, 0.85) == [
        0,
        1,
        2,
        3,
    ]


def test_no_gradient_is_kept() -> None:
    alpha = concentration(torch.ones(2, 3, requires_grad=True))
    assert not calibrated_uncertainty(alpha, alpha).requires_grad


# --- size, and broken input


def test_ten_thousand_images_need_no_full_matrix() -> None:
    """All dense and near each other, so that every row is looked at: blocks of 256 rows."""
    draw = torch.Generator().manual_seed(0)
    features = 1 + 0.01 * torch.randn(10_000, 16, generator=draw)
    chosen = relaxed(torch.arange(10_000), features, 9_000, 5, 0.85)
    assert len(set(chosen)) == 9_000


@pytest.mark.parametrize("value", [NAN, INF])
def test_broken_logits_are_refused(value: float) -> None:
    pool = random_pool(sampler_of("feal"), 3)
    pool.logits[1, 1, 0] = value
    with pytest.raises(
        DataError, match=rf"sampler feal: expected finite logits, .*first '{pool.ids[1]}'"
    ):
        choose(pool, 1)


@pytest.mark.parametrize("shape", [(1, 3, 2), (2, 4, 2), (2, 3), (2, 3, 0)])
def test_logits_of_other_models_or_images_are_refused(shape: tuple[int, ...]) -> None:
    pool = random_pool(sampler_of("feal"), 3)
    with pytest.raises(DataError, match=r"expected logits \(2, 3, K >= 1\)"):
        choose(Pool(pool.site, pool.ids, features=pool.features, logits=torch.ones(shape)), 1)

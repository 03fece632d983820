"""FEAL's evidential loss: fedward.methods.evidential, and FedAL with it."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.special import digamma, gammaln
from torch import Tensor

from fedward.errors import ConfigError
from fedward.methods.evidential import (
    Evidential,
    annealing,
    divergence_from_uniform,
    evidence_correction,
    evidential_loss,
    expected_cross_entropy,
)
from fedward.methods.fedal import ActiveSettings, FedAL
from fedward.methods.local import Batch, RoundInputs
from fedward.methods.requirements import Feature
from fedward.methods.samplers.feal import concentration
from fedward.methods.supervised import Supervised
from tiny import batch_norm_net

grid = settings(deadline=None, max_examples=50)
EQUAL = torch.full((2,), 0.5, dtype=torch.float64)


def rows(*given: list[float]) -> Tensor:
    return torch.tensor(given, dtype=torch.float64)


def random_case(images: int, classes: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Logits of either sign, labels and shares of the classes."""
    draw = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(images, classes, generator=draw, dtype=torch.float64)
    labels = torch.randint(classes, (images,), generator=draw)
    return logits, labels, torch.rand(classes, generator=draw, dtype=torch.float64).softmax(dim=0)


# --- numbers by hand


def test_expected_cross_entropy_by_hand() -> None:
    """ψ(S) - ψ(α_y): of (1, 1) it is 1, of (3, 1) with y = 0 1/3, with y = 1 1 + 1/2 + 1/3.

    Equal shares have a weight of 3/2 each.
    """
    for alpha, label, expected in [([1, 1], 0, 1), ([3, 1], 0, 1 / 3), ([3, 1], 1, 11 / 6)]:
        loss = expected_cross_entropy(rows(alpha), torch.tensor([label]), EQUAL)
        assert loss.item() == pytest.approx(1.5 * expected, rel=1e-12)


def test_rare_classes_count_more_by_hand() -> None:
    """Shares of 0.9 and 0.1 give weights of 1.1 and 1.9."""
    shares = rows([0.9, 0.1])[0]
    loss = expected_cross_entropy(rows([1, 1], [3, 1]), torch.tensor([0, 1]), shares)
    assert loss.item() == pytest.approx((1.1 * 1 + 1.9 * 11 / 6) / 2, rel=1e-12)


def test_divergence_by_hand() -> None:
    """Of Dir(2, 1) from uniform: the mean of ln 2p under the density 2p, which is ln 2 - 1/2.

    Evidence for y is left out.
    """
    divergence = divergence_from_uniform(rows([2, 7]), torch.tensor([1]))
    assert divergence.item() == pytest.approx(math.log(2) - 0.5, rel=1e-12)
    without_wrong_evidence = divergence_from_uniform(rows([7, 1]), torch.tensor([0]))
    assert without_wrong_evidence.item() == pytest.approx(0, abs=1e-12)


def test_correction_by_hand() -> None:
    """Logits (3, -1): S = 5, so 2/5 for each unit of the right logit; of (-2, -3) S = 2, so 1."""
    logits = rows([3, -1], [-2, -3])
    correction = evidence_correction(logits, torch.tensor([0, 1]))
    assert correction.item() == pytest.approx(-(2 / 5 * 3 + 1 * -3) / 2, rel=1e-12)


def test_the_sum_by_hand() -> None:
    """Logits (2, 1), y = 0: α = (3, 2), ψ(5) - ψ(3) = 1/3 + 1/4.

    The divergence is ln 2 - 1/2, the correction -2/5 · 2.
    """
    logits = rows([2, 1])
    labels = torch.tensor([0])
    expected = 1.5 * 7 / 12 + 0.01 * (0.3 * (math.log(2) - 0.5) - 0.8)
    assert evidential_loss(logits, labels, EQUAL, 0.3).item() == pytest.approx(expected, rel=1e-12)


def test_annealing_by_hand() -> None:
    assert [annealing(round_) for round_ in (1, 2, 6, 11, 25)] == [0, 0.1, 0.5, 1, 1]


# --- naive loops


def loss_loop(
    logits: list[list[float]], labels: list[int], shares: list[float], weight: float
) -> float:
    total = 0.0
    for z, y in zip(logits, labels, strict=True):
        alpha = [max(value, 0.0) + 1 for value in z]
        strength = math.fsum(alpha)
        classes = len(alpha)
        fit = (2 - shares[y]) * (digamma(strength) - digamma(alpha[y]))
        wrong = [1.0 if c == y else value for c, value in enumerate(alpha)]
        rest = math.fsum(wrong)
        divergence = gammaln(rest) - math.fsum(gammaln(a) for a in wrong) - gammaln(classes)
        divergence += math.fsum((a - 1) * (digamma(a) - digamma(rest)) for a in wrong)
        total += fit + 0.01 * (weight * divergence - classes / strength * z[y])
    return total / len(logits)


@grid
@given(
    images=st.integers(1, 6),
    classes=st.integers(1, 6),
    seed=st.integers(0, 10_000),
    weight=st.sampled_from([0, 0.5, 1]),
)
def test_the_loss_equals_a_loop(images: int, classes: int, seed: int, weight: float) -> None:
    logits, labels, shares = random_case(images, classes, seed)
    expected = loss_loop(logits.tolist(), labels.tolist(), shares.tolist(), weight)
    loss = evidential_loss(logits, labels, shares, weight)
    assert loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-9)


@grid
@given(classes=st.integers(2, 6), seed=st.integers(0, 10_000))
def test_the_divergence_is_that_of_torch(classes: int, seed: int) -> None:
    logits, labels, _ = random_case(1, classes, seed)
    alpha = concentration(logits)
    wrong = alpha[0].clone()
    wrong[labels[0]] = 1
    uniform = torch.distributions.Dirichlet(torch.ones(classes, dtype=torch.float64))
    expected = torch.distributions.kl_divergence(torch.distributions.Dirichlet(wrong), uniform)
    divergence = divergence_from_uniform(alpha, labels)
    assert divergence.item() == pytest.approx(expected.item(), rel=1e-9, abs=1e-9)


# --- degenerate cases and invariances


@grid
@given(images=st.integers(1, 6), seed=st.integers(0, 10_000), data=st.data())
def test_order_of_images_and_names_of_classes(images: int, seed: int, data: st.DataObject) -> None:
    logits, labels, shares = random_case(images, 4, seed)
    expected = evidential_loss(logits, labels, shares, 0.5)
    order = torch.tensor(data.draw(st.permutations(range(images))))
    torch.testing.assert_close(evidential_loss(logits[order], labels[order], shares, 0.5), expected)
    names = torch.tensor(data.draw(st.permutations(range(4))))
    places = names.argsort()
    renamed = evidential_loss(logits[:, names], places[labels], shares[names], 0.5)
    torch.testing.assert_close(renamed, expected)


def test_no_image_and_one_class_leave_nothing() -> None:
    logits = torch.empty(0, 3, requires_grad=True)
    loss = evidential_loss(logits, torch.empty(0, dtype=torch.int64), torch.ones(3) / 3, 1.0)
    loss.backward()
    assert loss.item() == 0
    alpha = torch.full((4, 1), 5.0)
    only_class = torch.zeros(4, dtype=torch.int64)
    assert expected_cross_entropy(alpha, only_class, torch.ones(1)).item() == 0


def test_half_precision_is_computed_in_single() -> None:
    """In float16 the logarithm of a gamma function of these logits would be infinite."""
    logits = torch.tensor([[20_000.0, -4.0, 30_000.0]])
    labels = torch.tensor([0])
    loss = evidential_loss(logits.half(), labels, torch.ones(3) / 3, 1.0)
    assert loss.dtype == torch.float32
    assert bool(loss.isfinite())


# --- gradients


@grid
@given(images=st.integers(1, 4), classes=st.integers(2, 4), seed=st.integers(0, 1000))
def test_gradients_are_those_of_differences(images: int, classes: int, seed: int) -> None:
    """Strengths of the correction are held fixed, so it is checked by its own equation below."""
    logits, labels, shares = random_case(images, classes, seed)
    logits = (logits + 0.01 * logits.sign()).requires_grad_()  # away from the kink at 0

    def fit_and_divergence(z: Tensor) -> Tensor:
        alpha = concentration(z)
        fit = expected_cross_entropy(alpha, labels, shares)
        return fit + divergence_from_uniform(alpha, labels)

    assert torch.autograd.gradcheck(fit_and_divergence, (logits,), eps=1e-7)


def test_the_correction_draws_up_a_right_logit_below_0() -> None:
    logits = rows([-2, 1], [4, 0.5]).requires_grad_()
    labels = torch.tensor([0, 0])
    evidence_correction(logits, labels).backward()
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad, rows([-2 / 3 / 2, 0], [-2 / 6.5 / 2, 0]))
    dead = rows([-2, 1]).requires_grad_()
    expected_cross_entropy(concentration(dead), labels[:1], EQUAL).backward()
    assert dead.grad is not None
    assert dead.grad[0, 0].item() == 0, "no other term reaches it"


def test_evidence_of_the_right_class_is_no_divergence() -> None:
    logits = rows([3, 2, -1]).requires_grad_()
    divergence_from_uniform(concentration(logits), torch.tensor([0])).backward()
    assert logits.grad is not None
    assert logits.grad[0, 0].item() == 0
    assert logits.grad[0, 1].item() > 0


# --- broken input, and the method


@pytest.mark.parametrize(
    ("logits", "labels", "shares"), [((3,), 3, 3), ((3, 2), 2, 2), ((3, 2), 3, 3)]
)
def test_shapes_that_do_not_belong_together(
    logits: tuple[int, ...], labels: int, shares: int
) -> None:
    with pytest.raises(ConfigError, match="a label an image, a share a class"):
        evidential_loss(
            torch.ones(logits), torch.zeros(labels, dtype=torch.int64), torch.ones(shares), 1.0
        )


def test_a_broken_net_is_noticed() -> None:
    logits = torch.tensor([[math.nan, 1.0]])
    assert bool(evidential_loss(logits, torch.tensor([1]), torch.ones(2) / 2, 1.0).isnan())


def test_the_objective_weights_classes_by_the_sites_labels() -> None:
    net = batch_norm_net(0, classes=3)
    labels = torch.tensor([0, 1, 2, 0])
    images = torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    inputs = RoundInputs(torch.ones(3), class_counts=torch.tensor([6, 3, 1]))
    terms = Evidential(0.5).losses(net, Batch(images, labels), inputs).terms
    assert list(terms) == ["loss_supervised"]
    torch.testing.assert_close(
        terms["loss_supervised"],
        evidential_loss(net(images), labels, torch.tensor([0.6, 0.3, 0.1]), 0.5),
    )
    assert not Evidential(0.5).losses(net, Batch(), inputs).terms


def test_a_job_chooses_the_loss_apart_from_the_sampler() -> None:
    for sampler in ("feal", "random"):
        for loss, kind in (("cross_entropy", Supervised), ("evidential", Evidential)):
            (phase,) = FedAL(ActiveSettings(sampler=sampler, loss=loss)).phases("train", 3, 10)
            assert isinstance(phase.objective, kind)
    evidential, plain = (
        FedAL(ActiveSettings(**loss)).requirements for loss in ({"loss": "evidential"}, {})
    )
    reasons = {**plain.unsupported, Feature.SEVERAL_LABELS: "loss=evidential"}
    assert evidential == replace(plain, unsupported=reasons)


@pytest.mark.parametrize(
    "options",
    [
        {"sampler": "mcdal"},
        {"class_weighting": "median_frequency"},
        {"missing_classes": "restricted"},
    ],
)
def test_settings_that_the_loss_cannot_work_with_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="weights classes itself and has no heads"):
        ActiveSettings(loss="evidential", **options)

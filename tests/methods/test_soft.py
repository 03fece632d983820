"""UDA's soft labels: targets, the divergence from them, and its gradient."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedward.errors import ConfigError
from fedward.methods.pseudo_labels import labeller_of
from fedward.methods.pseudo_labels.labeller import pseudo_label_loss
from fedward.methods.pseudo_labels.settings import FixMatchSettings
from fedward.methods.pseudo_labels.soft import Soft, soft_label_loss

grid = settings(deadline=None, max_examples=50)
CLASSES = 3


def drawn(seed: int, images: int = 5) -> tuple[Tensor, Tensor]:
    """Return logits (N, K) of strong views and probabilities (N, K) of weak ones, in float64."""
    draw = torch.Generator().manual_seed(seed)
    logits, weak = (
        2 * torch.randn(images, CLASSES, generator=draw, dtype=torch.float64) for _ in range(2)
    )
    return logits, weak.softmax(dim=1)


# --- by hand


def test_targets_by_hand() -> None:
    """Temperature 1/2 squares: (0.6, 0.3, 0.1) to (36, 9, 1) / 46; 0.6 reaches the threshold."""
    probabilities = torch.tensor([[0.6, 0.3, 0.1], [0.4, 0.4, 0.2]], dtype=torch.float64)
    labels = Soft(0.6, 0.5).label(probabilities)
    expected = [[36 / 46, 9 / 46, 1 / 46], [16 / 36, 16 / 36, 4 / 36]]
    assert labels.targets is not None
    np.testing.assert_allclose(labels.targets.numpy(), expected, rtol=1e-12)
    assert labels.labels.tolist() == [0, 0]
    assert labels.keep.tolist() == [True, False], "as confident as before sharpening"


def test_loss_by_hand() -> None:
    """Targets (3/4, 1/4) against (1/2, 1/2): log 2 minus the entropy of the target."""
    logits = torch.zeros(2, 2, dtype=torch.float64)
    targets = torch.tensor([[0.75, 0.25], [1.0, 0.0]], dtype=torch.float64)
    divergence = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    both = torch.tensor([True, True])
    first = torch.tensor([True, False])
    expected = pytest.approx((divergence + math.log(2)) / 2, rel=1e-12)
    assert soft_label_loss(logits, targets, both).item() == expected
    assert soft_label_loss(logits, targets, first).item() == pytest.approx(divergence, rel=1e-12)
    half = pytest.approx(divergence / 2, rel=1e-12)
    assert soft_label_loss(logits, targets, first, "all").item() == half


# --- a naive loop, and the gradient


@grid
@given(
    seed=st.integers(0, 1000),
    threshold=st.floats(0, 1),
    temperature=st.floats(0.1, 2),
    mean=st.sampled_from(["kept", "all"]),
)
def test_value_and_gradient_are_those_of_a_naive_loop(
    seed: int, threshold: float, temperature: float, mean: str
) -> None:
    logits, probabilities = drawn(seed)
    logits.requires_grad_()
    labels = Soft(threshold, temperature).label(probabilities)
    loss = Soft(threshold, temperature).loss(logits, labels, mean)  # type: ignore[arg-type]
    loss.backward()

    total = 0.0
    kept = 0
    gradient = np.zeros(logits.shape)
    for image, q in enumerate(probabilities.numpy()):
        if q.max() < threshold:
            continue
        kept += 1
        target = q ** (1 / temperature) / (q ** (1 / temperature)).sum()
        scores = np.exp(logits[image].detach().numpy())
        p = scores / scores.sum()
        total += sum(t * math.log(t / s) for t, s in zip(target, p, strict=True))
        gradient[image] = p - target
    divisor = max(kept, 1) if mean == "kept" else len(logits)
    assert loss.item() == pytest.approx(total / divisor, rel=1e-9, abs=1e-12)
    np.testing.assert_allclose(logits.grad, gradient / divisor, rtol=1e-8, atol=1e-12)


# --- identities


def test_as_the_temperature_falls_it_becomes_fixmatch() -> None:
    logits, probabilities = drawn(1)
    labels = Soft(0.4, 1e-3).label(probabilities)
    expected = pseudo_label_loss(logits, labels.labels, labels.keep)
    assert Soft(0.4, 1e-3).loss(logits, labels, "kept").item() == pytest.approx(expected.item())


def test_a_prediction_equal_to_its_target_has_neither_loss_nor_gradient() -> None:
    _, probabilities = drawn(2)
    logits = probabilities.log().requires_grad_()
    loss = soft_label_loss(logits, probabilities, torch.ones(5, dtype=torch.bool))
    loss.backward()
    assert loss.item() == pytest.approx(0, abs=1e-15)
    np.testing.assert_allclose(logits.grad, 0, atol=1e-16)


def test_targets_get_no_gradient_and_rows_not_kept_have_no_influence() -> None:
    logits, probabilities = drawn(3)
    keep = torch.tensor([True, False, True, False, False])
    expected = soft_label_loss(logits, probabilities, keep)
    broken = logits.clone()
    broken[1] = math.nan
    broken.requires_grad_()
    targets = probabilities.clone()
    targets[3] = math.nan
    targets.requires_grad_()
    loss = soft_label_loss(broken, targets, keep)
    loss.backward()
    assert torch.equal(loss, expected)
    assert targets.grad is None
    assert not broken.grad[~keep].any()
    kept_row = logits.clone()
    kept_row[0] = math.nan
    assert soft_label_loss(kept_row, probabilities, keep).isnan()
    nothing = soft_label_loss(logits, probabilities, torch.zeros(5, dtype=torch.bool))
    assert nothing.item() == 0


# --- broken input, and the settings


@pytest.mark.parametrize(
    ("targets", "keep"),
    [
        (torch.ones(5, 2), torch.ones(5, dtype=torch.bool)),
        (torch.ones(5, 3), torch.ones(4, dtype=torch.bool)),
        (torch.ones(5, 3), torch.ones(5)),
    ],
)
def test_what_does_not_fit_is_refused(targets: Tensor, keep: Tensor) -> None:
    with pytest.raises(ConfigError, match="targets"):
        soft_label_loss(torch.zeros(5, CLASSES), targets, keep)


def test_logits_without_a_class_are_refused() -> None:
    with pytest.raises(ConfigError, match="classes >= 1"):
        soft_label_loss(torch.zeros(5, 0), torch.zeros(5, 0), torch.ones(5, dtype=torch.bool))


def test_the_settings_choose_it_with_their_threshold_and_temperature() -> None:
    settings_ = FixMatchSettings(pseudo_labels="soft", threshold=0.5, temperature=0.7)
    _, probabilities = drawn(4)
    found = labeller_of(settings_).label(probabilities)
    expected = Soft(0.5, 0.7).label(probabilities)
    assert found.targets is not None
    assert expected.targets is not None
    assert torch.equal(found.targets, expected.targets)
    assert torch.equal(found.keep, expected.keep)
    with pytest.raises(ValueError, match="temperature"):
        FixMatchSettings(temperature=0.0)

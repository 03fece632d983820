"""The temperature: found again, against torch, and where there is none."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from fedward.evaluation.performance import counted
from fedward.evaluation.temperature import fit_temperature, log_loss, tempered

RNG = np.random.default_rng(0)


def drawn(temperature: float, images: int = 20_000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logits, their softmax, and labels drawn by the logits over the temperature."""
    logits = torch.tensor(RNG.normal(0, 3, (images, 4)), dtype=torch.float32)
    honest = (logits / temperature).double().softmax(1).numpy()
    labels = (honest.cumsum(axis=1) < RNG.random((images, 1))).sum(axis=1).clip(max=3)
    return logits.numpy(), logits.softmax(1).numpy(), labels


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.5])
def test_the_temperature_of_drawn_labels_is_found(temperature: float) -> None:
    _, probabilities, labels = drawn(temperature)
    found = fit_temperature(probabilities, labels)
    assert found == pytest.approx(temperature, rel=0.05)
    assert counted(tempered(probabilities, found), labels).confidence.calibration_error < 0.02


def test_no_other_temperature_is_better() -> None:
    _, probabilities, labels = drawn(1.7, 500)
    found = fit_temperature(probabilities, labels)
    best = log_loss(probabilities, labels, found)
    assert all(
        best <= log_loss(probabilities, labels, found * factor) for factor in (0.5, 0.99, 1.01, 2)
    )


def test_loss_and_probabilities_are_those_of_the_logits() -> None:
    logits, probabilities, labels = drawn(1.0, 200)
    over = torch.tensor(logits).double() / 1.9
    assert log_loss(probabilities, labels, 1.9) == pytest.approx(
        float(F.cross_entropy(over, torch.tensor(labels)))
    )
    np.testing.assert_allclose(tempered(probabilities, 1.9), over.softmax(1).numpy(), atol=1e-6)


def test_classes_stay_the_same() -> None:
    _, probabilities, _ = drawn(1.0, 200)
    assert np.array_equal(tempered(probabilities, 3.0).argmax(axis=1), probabilities.argmax(axis=1))


@pytest.mark.parametrize("shift", [0, 1], ids=["always right", "always wrong"])
def test_labels_that_set_no_temperature(shift: int) -> None:
    _, probabilities, _ = drawn(1.0, 300)
    assert fit_temperature(probabilities, (probabilities.argmax(axis=1) + shift) % 4) is None


@pytest.mark.parametrize(
    ("temperature", "is_found"), [(0.04, False), (0.06, True), (19.0, True), (21.0, False)]
)
def test_temperatures_from_a_twentieth_to_twenty_are_searched(
    temperature: float, is_found: bool
) -> None:
    """Two of three equal answers are right.

    Odds of two to one are most likely, e^(z / T) = 2, so that T = z / log 2.
    """
    other = 2**-temperature / (1 + 2**-temperature)  # z = T log 2
    answers = np.array([[1 - other, other]] * 3, np.float32)
    found = fit_temperature(answers, np.array([0, 0, 1]))
    assert found == (pytest.approx(temperature, rel=1e-3) if is_found else None)


def test_no_images_have_no_temperature() -> None:
    assert fit_temperature(np.empty((0, 3), np.float32), np.empty(0, np.int64)) is None


def test_a_probability_of_zero_has_a_finite_loss() -> None:
    assert 50 < log_loss(np.array([[1.0, 0.0]], np.float32), np.array([1])) < 100


def test_answers_that_are_all_right_set_no_temperature():
    """The losses underflow far from the coldest temperature, and a search would stop there."""
    sure = np.array([[1 - 1e-7, 1e-7], [0.02, 0.98], [0.97, 0.03]], np.float32)
    assert fit_temperature(sure, np.array([0, 1, 0])) is None
    assert fit_temperature(sure, np.array([0, 1, 1])) is not None

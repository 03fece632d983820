"""The temperature at which a model's confidence agrees with its accuracy."""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar  # type: ignore[import-untyped,unused-ignore]

from fedward.evaluation.arrays import Values

_SMALLEST = float(np.finfo(np.float32).tiny)
"""Smaller probabilities of a float32 network carry no information."""
COLDEST = 0.05
"""Lowest temperature that is searched."""
HOTTEST = 20.0
"""Highest temperature that is searched."""


def log_loss(
    probabilities: NDArray[np.floating], labels: NDArray[np.integer], temperature: float = 1.0
) -> float:
    """Return the mean negative log-likelihood of labels under ``softmax(log p / temperature)``.

    Args:
        probabilities: p (N, K) in [0, 1], N at least 1.
        labels: (N,) int in 0..K-1.
        temperature: above 0.

    Returns:
        In nats.
    """
    logits = _log(probabilities) / temperature
    logits -= logits.max(axis=1, keepdims=True)
    normalisers = np.log(np.exp(logits).sum(axis=1))
    return float((normalisers - logits[np.arange(len(labels)), labels]).mean())


def tempered(probabilities: NDArray[np.floating], temperature: float) -> Values:
    """Return ``softmax(log p / temperature)``, (N, K).

    That is the softmax of the network's logits divided by the temperature.
    """
    logits = _log(probabilities) / temperature
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    softmax: Values = powers / powers.sum(axis=1, keepdims=True)
    return softmax


def fit_temperature(
    probabilities: NDArray[np.floating], labels: NDArray[np.integer]
) -> float | None:
    """Return the temperature T that makes the labels of held-out images most likely.

    ``T = argmin_T -Σ_n log softmax(z_n / T)_{y_n}``; the predicted classes stay the same.
    Source: Guo et al., ICML 2017, Sec. 4.2.

    Args:
        probabilities: (N, K) float32 softmax of the logits z, of images that the model was not
            trained on.
        labels: (N,) int in 0..K-1.

    Returns:
        T > 0, above 1 for a model that was too sure. None where the labels do not determine one:
        without images, or where the best T lies outside 0.05 to 20, as for a model that is right
        about every image, or no better than chance.
    """
    # If all answers are right, a lower temperature is always better. So it is without images.
    if (probabilities.argmax(axis=1) == labels).all():
        return None
    bounds = np.log([COLDEST, HOTTEST])
    best = minimize_scalar(
        lambda log: log_loss(probabilities, labels, np.exp(log)), bounds=bounds, method="bounded"
    )
    is_at_a_bound = np.abs(bounds - best.x).min() < 1e-3
    return None if is_at_a_bound else float(np.exp(best.x))


def _log(probabilities: NDArray[np.floating]) -> Values:
    """Return logarithms, of probabilities below float32's range those of its smallest number."""
    logarithms: Values = np.log(np.maximum(np.asarray(probabilities, np.float64), _SMALLEST))
    return logarithms

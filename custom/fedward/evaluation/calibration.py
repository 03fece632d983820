"""The temperature by which a model becomes as sure as it is right."""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar  # type: ignore[import-untyped,unused-ignore]

from fedward.evaluation.classification import Array

_SMALLEST = float(np.finfo(np.float32).tiny)
"""Below it the softmax of a float32 network says nothing more."""
COLDEST = 0.05
HOTTEST = 20.0


def log_loss(
    probabilities: NDArray[np.floating], labels: NDArray[np.integer], temperature: float = 1.0
) -> float:
    """Return the mean negative log-likelihood of N > 0 labels, in nats, under ``softmax(log p /
    temperature)``.
    """
    logits = _log(probabilities) / temperature
    logits -= logits.max(axis=1, keepdims=True)
    normalisers = np.log(np.exp(logits).sum(axis=1))
    return float((normalisers - logits[np.arange(len(labels)), labels]).mean())


def tempered(probabilities: NDArray[np.floating], temperature: float) -> Array:
    """Return ``softmax(log p / temperature)`` (N, K), which is what the network's logits over it
    would give.
    """
    logits = _log(probabilities) / temperature
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    found: Array = powers / powers.sum(axis=1, keepdims=True)
    return found


def fit_temperature(
    probabilities: NDArray[np.floating], labels: NDArray[np.integer]
) -> float | None:
    """Return the temperature T by which logits are divided to make the labels of held-out images
    most likely.

    ``T = argmin_T -Σ_n log softmax(z_n / T)_{y_n}``; the predicted classes stay the same.
    Source: Guo et al., ICML 2017, Sec. 4.2.

    Args:
        probabilities: (N, K) float32 softmax of the logits z, of images that the model was not
            trained on.
        labels: (N,) int in 0..K-1.

    Returns:
        T > 0, above 1 for a model that was too sure. None where the labels set none: no image, or a
        best T outside 0.05 to 20, as where the model is right about every image, or no better than
        chance.
    """
    if (
        probabilities.argmax(axis=1) == labels
    ).all():  # the colder, the likelier; true of no image as well
        return None
    bounds = np.log([COLDEST, HOTTEST])
    best = minimize_scalar(
        lambda log: log_loss(probabilities, labels, np.exp(log)), bounds=bounds, method="bounded"
    )
    at_an_end = np.abs(bounds - best.x).min() < 1e-3
    return None if at_an_end else float(np.exp(best.x))


def _log(probabilities: NDArray[np.floating]) -> Array:
    found: Array = np.log(np.maximum(np.asarray(probabilities, np.float64), _SMALLEST))
    return found

"""Types of the arrays that metrics are computed from, and the mean of what is defined."""

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
"""Numbers of images."""
Values = NDArray[np.float64]
"""Probabilities, shares or rates."""


def mean_defined(values: Values) -> float | None:
    """Return the mean of the values that are not NaN; None where all are."""
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if len(defined) else None

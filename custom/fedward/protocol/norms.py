"""The length of an update."""

import math
from collections.abc import Mapping

import numpy as np


def norm(arrays: Mapping[str, np.ndarray]) -> float:
    """Return the L2 norm over all elements of all arrays, in float64."""
    norms = [float(np.linalg.norm(array.ravel().astype(np.float64))) for array in arrays.values()]
    return math.hypot(*norms)

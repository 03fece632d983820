"""Types of the arrays that metrics are computed from."""

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
"""Numbers of images."""
Values = NDArray[np.float64]
"""Probabilities, shares or rates."""

"""The checks of an answer's arrays: names, shapes, types, and what their numbers may be."""

import math
from collections.abc import Mapping

import numpy as np

from fedward.protocol.fields import refuse, refuse_diverged, refuse_other_names
from fedward.protocol.wire import CIPHER_VALUES, LARGEST_CIPHER, Message, cipher_name

_ROW_ROUNDING = 2e-3
"""How far probabilities of an update in float16 may be from a range, or from their sum."""


def check_arrays(
    answer: Message, site: str, role: str, model: Mapping[str, tuple[int, ...]]
) -> None:
    """Raise RefusedError unless an answer has exactly these arrays, in finite float32.

    Of numbers that are not finite it is a DivergedUpdateError.

    Args:
        answer: the answer.
        site: whose answer it is.
        role: ``diff`` or ``mean``, the beginning of the arrays' names.
        model: name -> shape of the tensors that travel.
    """
    shape_of = {f"{role}/{name}": shape for name, shape in model.items()}
    refuse_other_names(f"arrays of {site}", answer.arrays, shape_of)
    for name, shape in sorted(shape_of.items()):
        where = f"array {name} of {site}"
        array = answer.arrays.get(name)
        if array is None:
            refuse(where, f"shape {shape}", "nothing")
        if array.shape != shape or array.dtype != np.float32:
            found = f"{array.dtype} of shape {array.shape}"
            refuse(where, f"float32 of shape {shape}", found)
        if not np.isfinite(array).all():
            expected = "finite numbers; NaN or infinity mean that the site's training diverged"
            refuse_diverged(where, expected, "others")


def check_distributions(where: str, rows: np.ndarray) -> None:
    """Raise RefusedError unless rows (R, K) are distributions or 0, up to rounding in float16."""
    sums = rows.sum(axis=1)
    in_range = (rows >= -_ROW_ROUNDING) & (rows <= 1 + _ROW_ROUNDING)
    sums_to_one = np.abs(sums - 1) <= _ROW_ROUNDING
    is_zero = (np.abs(rows) <= _ROW_ROUNDING).all(axis=1)
    if not in_range.all() or not (sums_to_one | is_zero).all():
        expected = "rows of probabilities that sum to 1, or of zeros, without noise on them"
        refuse(where, expected, "others")


def check_moments(where: str, shares: np.ndarray, sums: np.ndarray, products: np.ndarray) -> None:
    """Raise RefusedError unless moments of features may be those of images, give or take noise.

    Without noise no share is below 0, all shares add up to 1, and the squared sums of all classes
    add up to at most the squared features. The server does not know whether a site has added noise,
    so that shares may be off by a half, and squared sums twice as large.

    Args:
        where: beginning of the place that an error names.
        shares: (K,), share of each class in the images.
        sums: (K, D), sum of the features x of each class, divided by the number of all images.
        products: (D (D + 1) / 2,), upper triangle of the mean of ``x xᵀ``, row by row.
    """
    width = sums.shape[1]
    # Row d of the triangle begins with the mean of x_d², and has D - d numbers.
    row_starts = np.cumsum([0, *range(width, 1, -1)])
    squared_features = products[row_starts].sum()
    are_shares = bool((shares >= -0.5).all()) and 0.5 <= shares.sum() <= 1.5
    if not are_shares or np.square(sums).sum() > 2 * squared_features:
        refuse(where, "shares, sums and products of features of some images", "others")


def check_ciphers(
    where: str, role: str, arrays: Mapping[str, np.ndarray], model: Mapping[str, tuple[int, ...]]
) -> None:
    """Raise RefusedError unless arrays are the ciphertexts of a model: ``<role>/00000`` and so on.

    Args:
        where: beginning of the place that an error names.
        role: ``cipher`` or ``sum``.
        arrays: the arrays of a message.
        model: name -> shape of the tensors that travel.
    """
    value_count = sum(math.prod(shape) for shape in model.values())
    cipher_count = math.ceil(value_count / CIPHER_VALUES)
    names = [cipher_name(role, number) for number in range(cipher_count)]
    refuse_other_names(where, arrays, names)
    for name in names:
        array = arrays.get(name)
        expected = f"1 to {LARGEST_CIPHER} bytes, as uint8"
        if array is None:
            refuse(f"{where}, {name}", expected, "nothing")
        is_bytes = array.dtype == np.uint8 and array.ndim == 1
        if not is_bytes or not 0 < array.size <= LARGEST_CIPHER:
            refuse(f"{where}, {name}", expected, f"{array.dtype} of shape {array.shape}")

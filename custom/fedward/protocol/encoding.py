"""Differences of models in a quarter or less than half of their bytes: int8 and float16 with
scales, then zlib.

An encoding is one array of bytes (uint8). The first is :data:`VERSION`, the others are a zlib
stream of three parts:

=========  =========================================================================================================
scales     float32: of a tensor in int8 one for each row, of a tensor in float16 one
float16    the values of tensors in float16, divided by their scale
int8       the values of tensors in int8, divided by the scale of their row
=========  =========================================================================================================

Tensors follow one another in the order that both ends agree on, and rows are those of the first
dimension. All is little endian. Of the first two parts all first bytes come first, then all second
ones: bytes of a kind compress well. Nothing else is said: types and shapes follow from the model,
and so does the number of bytes before they are read.

float16: the scale is a power of 2 by which the largest value comes below 2^15. Values lose what is
beyond 11 bits, and no value overflows. int8: the scale is the largest value of the row over 127,
and values are off by half a scale at most.
"""

import math
import zlib
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np

from fedward.errors import WireError
from fedward.protocol.fields import refusal

VERSION = 1
"""Of the encoding."""
_INT8 = 127
_FLOAT16 = 15
"""Values in float16 are below 2 to this power."""
_SMALLEST_EXPONENT = -126
"""Of a scale: below it, float32 loses digits."""
_LARGEST = 2.0**100
"""Of values, and thus of scales: a value times its scale is finite."""

Shape: TypeAlias = tuple[int, ...]


def encode(tensors: Iterable[np.ndarray], *, int8: bool) -> np.ndarray:
    """Return float32 tensors as bytes, uint8 of shape (n,).

    Args:
        tensors: of any shapes; read one at a time.
        int8: whether tensors of two or more dimensions become int8; all others, and without it all,
            become float16.

    Raises:
        WireError: a value that is not finite, or beyond 2^100.

    Edge cases: a row or tensor of zeros: exact. values so small that no scale can hold them: 0. no
    tensor, or one without elements: fine.
    """
    scales = list[np.ndarray]()
    halves = list[np.ndarray]()
    bytes_ = list[np.ndarray]()
    for tensor in tensors:
        if not (np.abs(tensor) <= _LARGEST).all():
            expected = "finite numbers up to 2^100"
            remedy = "Lower the learning rate, and start a new run."
            raise WireError(
                "difference of two models", expected=expected, found="others", remedy=remedy
            )
        in_rows = int8 and tensor.ndim > 1
        scale, values = _in_int8(tensor) if in_rows else _in_float16(tensor)
        scales.append(scale)
        (bytes_ if in_rows else halves).append(values.ravel())
    compressor = zlib.compressobj(
        level=1, strategy=zlib.Z_RLE
    )  # repeats are rare, so looking for them does not pay
    parts = [_planes(scales, "<f4"), _planes(halves, "<f2"), *bytes_]
    stream = [compressor.compress(part.tobytes()) for part in parts]
    return np.frombuffer(b"".join([bytes([VERSION]), *stream, compressor.flush()]), np.uint8)


def decode(
    where: str, encoded: np.ndarray, shapes: Sequence[Shape], *, int8: bool
) -> list[np.ndarray]:
    """Return the float32 tensors of these shapes that :func:`encode` was given, as far as the bytes
    tell.

    ``where`` begins the place in an error.

    Raises:
        RefusedError: other than the encoding of such tensors. Not more bytes than these have are
            decompressed.
    """
    in_rows = [int8 and len(shape) > 1 for shape in shapes]
    sizes = [math.prod(shape) for shape in shapes]
    counts = [shape[0] if rows else 1 for shape, rows in zip(shapes, in_rows, strict=True)]
    whole = sum(size for size, rows in zip(sizes, in_rows, strict=True) if rows)
    ends = [4 * sum(counts), 4 * sum(counts) + 2 * (sum(sizes) - whole)]
    raw = _decompressed(where, encoded, ends[-1] + whole)
    scales = _from_planes(raw[: ends[0]], "<f4")
    halves = _from_planes(raw[ends[0] : ends[1]], "<f2")
    if not ((scales >= 0) & (scales <= _LARGEST)).all() or not np.isfinite(halves).all():
        raise refusal(where, "finite values and scales from 0 to 2^100", "others")
    bytes_ = raw[ends[1] :].view(np.int8)
    tensors = []
    for shape, rows, size, count in zip(shapes, in_rows, sizes, counts, strict=True):
        values, rest = np.split(bytes_ if rows else halves, [size])
        scale, scales = np.split(scales, [count])
        tensors.append(
            (values.reshape(count, size // max(count, 1)) * scale[:, None]).reshape(shape)
        )
        bytes_, halves = (rest, halves) if rows else (bytes_, rest)
    return tensors


def _in_int8(tensor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    rows = tensor.reshape(len(tensor), math.prod(tensor.shape[1:]))
    scale = np.abs(rows).max(axis=1, initial=0) / np.float32(_INT8)
    values = np.divide(rows, scale[:, None], out=np.zeros_like(rows), where=scale[:, None] > 0)
    return scale, np.clip(np.rint(values), -_INT8, _INT8).astype(np.int8)


def _in_float16(tensor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    _, exponent = np.frexp(np.abs(tensor).max(initial=0))
    scale = np.ldexp(np.float32(1), max(int(exponent) - _FLOAT16, _SMALLEST_EXPONENT))
    return np.array([scale], np.float32), (tensor / scale).astype(np.float16)


def _planes(arrays: Sequence[np.ndarray], dtype: str) -> np.ndarray:
    joined = np.concatenate([np.zeros(0, dtype), *arrays], dtype=dtype)
    return joined.view(np.uint8).reshape(-1, joined.itemsize).T


def _from_planes(raw: np.ndarray, dtype: str) -> np.ndarray:
    planes = raw.reshape(np.dtype(dtype).itemsize, -1).T
    return np.ascontiguousarray(planes).view(dtype).ravel().astype(np.float32)


def _decompressed(where: str, encoded: np.ndarray, size: int) -> np.ndarray:
    """Return the bytes of the stream; RefusedError unless there are ``size``."""
    largest = size + size // 8 + 64  # of a stream that does not compress
    if encoded.dtype != np.uint8 or encoded.ndim != 1 or not 1 < encoded.size <= largest:
        raise refusal(
            where, f"2 to {largest} bytes, as uint8", f"{encoded.dtype} of shape {encoded.shape}"
        )
    content = encoded.tobytes()
    if content[0] != VERSION:
        raise refusal(where, f"version {VERSION} of the encoding", f"{content[0]}")
    stream = zlib.decompressobj()
    try:
        raw = stream.decompress(memoryview(content)[1:], size + 1)
    except zlib.error as error:
        raise refusal(where, "a zlib stream", str(error)) from error
    if len(raw) != size or not stream.eof or stream.unused_data or stream.unconsumed_tail:
        raise refusal(where, f"a whole stream of {size} bytes and nothing behind it", "another")
    return np.frombuffer(raw, np.uint8)

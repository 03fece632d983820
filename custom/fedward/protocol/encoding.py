"""The encoding of differences of models in a quarter, or less than half, of their bytes.

Values become int8 or float16 with scales, which zlib compresses. An encoding is one array of bytes
(uint8). The first byte is :data:`VERSION`, and the others are a zlib stream of three parts:

=========  ===================================================================================
scales     float32: one for each row of a tensor in int8, and one for a tensor in float16
float16    the values of tensors in float16, divided by their scale
int8       the values of tensors in int8, divided by the scale of their row
=========  ===================================================================================

Tensors follow one another in the order that both ends agree on, and rows are those of the first
dimension. All parts are little endian. In each of the first two parts, the first bytes of all
numbers come first, then all second bytes, and so on, because similar bytes compress well. Types,
shapes and the number of bytes are not encoded: they follow from the model.

For float16 the scale is a power of 2 that makes the largest value less than 2^15. Values are
rounded to 11 bits, and none overflows. For int8 the scale is the largest value of the row over 127,
and the error of a value is at most half a scale.
"""

import math
import zlib
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np

from fedward.protocol.fields import DivergedUpdateError, refusal

VERSION = 1
"""The version of the encoding."""
_INT8 = 127
"""The largest value in int8."""
_FLOAT16 = 15
"""Values in float16 are below 2 to this power."""
_SMALLEST_EXPONENT = -126
"""The smallest exponent of a scale; with a smaller one, float32 loses digits."""
_LARGEST = 2.0**100
"""The largest value, and thus the largest scale. A value times its scale is finite."""

Shape: TypeAlias = tuple[int, ...]


def encode(tensors: Iterable[np.ndarray], *, int8: bool) -> np.ndarray:
    """Return float32 tensors as bytes, uint8 of shape (n,).

    Args:
        tensors: tensors of any shapes, which are read one at a time. There may be none, and they
            may have no elements. Rows and tensors of zeros are exact, and values that are too small
            for any scale become 0.
        int8: whether tensors of two or more dimensions become int8. All other tensors become
            float16.

    Raises:
        DivergedUpdateError: a value is not finite, or beyond 2^100.
    """
    scales: list[np.ndarray] = []
    float16_values: list[np.ndarray] = []
    int8_values: list[np.ndarray] = []
    for tensor in tensors:
        if not (np.abs(tensor) <= _LARGEST).all():
            raise DivergedUpdateError(
                "difference of two models",
                "Lower the learning rate, and start a new run.",
                expected="finite numbers up to 2^100",
                found="others",
            )
        if int8 and tensor.ndim > 1:
            scale, values = _in_int8(tensor)
            int8_values.append(values.ravel())
        else:
            scale, values = _in_float16(tensor)
            float16_values.append(values.ravel())
        scales.append(scale)
    # Repeats are rare, so it does not pay to search for them.
    compressor = zlib.compressobj(level=1, strategy=zlib.Z_RLE)
    stream = [bytes([VERSION])]
    stream.append(compressor.compress(_planes(scales, "<f4").tobytes()))
    stream.append(compressor.compress(_planes(float16_values, "<f2").tobytes()))
    for values in int8_values:
        stream.append(compressor.compress(values.tobytes()))
    stream.append(compressor.flush())
    return np.frombuffer(b"".join(stream), np.uint8)


def decode(
    where: str, encoded: np.ndarray, shapes: Sequence[Shape], *, int8: bool
) -> list[np.ndarray]:
    """Return the float32 tensors of an encoding, but for what :func:`encode` rounded.

    Args:
        where: beginning of the place that an error names.
        encoded: the encoding.
        shapes: the shapes of the tensors.
        int8: as for :func:`encode`.

    Raises:
        RefusedError: it is not the encoding of such tensors. No more bytes than these have are
            decompressed.
    """
    layouts = [_Layout(shape, int8=int8) for shape in shapes]
    scale_count = sum(layout.scale_count for layout in layouts)
    int8_count = sum(layout.size for layout in layouts if layout.is_int8)
    float16_count = sum(layout.size for layout in layouts if not layout.is_int8)
    scales_end = 4 * scale_count
    float16_end = scales_end + 2 * float16_count
    raw = _decompressed(where, encoded, float16_end + int8_count)
    scales = _from_planes(raw[:scales_end], "<f4")
    float16_values = _from_planes(raw[scales_end:float16_end], "<f2")
    int8_values = raw[float16_end:].view(np.int8)
    has_valid_scales = ((scales >= 0) & (scales <= _LARGEST)).all()
    if not has_valid_scales or not np.isfinite(float16_values).all():
        raise refusal(where, "finite values and scales from 0 to 2^100", "others")
    tensors = []
    for layout in layouts:
        scale, scales = np.split(scales, [layout.scale_count])
        if layout.is_int8:
            values, int8_values = np.split(int8_values, [layout.size])
        else:
            values, float16_values = np.split(float16_values, [layout.size])
        rows = values.reshape(layout.scale_count, layout.size // max(layout.scale_count, 1))
        tensors.append((rows * scale[:, None]).reshape(layout.shape))
    return tensors


class _Layout:
    """The numbers of scales and values of one tensor in an encoding."""

    def __init__(self, shape: Shape, *, int8: bool) -> None:
        self.shape = shape
        self.size = math.prod(shape)
        self.is_int8 = int8 and len(shape) > 1
        self.scale_count = shape[0] if self.is_int8 else 1


def _in_int8(tensor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the scale of each row, and the values in int8."""
    rows = tensor.reshape(len(tensor), math.prod(tensor.shape[1:]))
    scale = np.abs(rows).max(axis=1, initial=0) / np.float32(_INT8)
    values = np.divide(rows, scale[:, None], out=np.zeros_like(rows), where=scale[:, None] > 0)
    return scale, np.clip(np.rint(values), -_INT8, _INT8).astype(np.int8)


def _in_float16(tensor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the one scale of a tensor, and its values in float16."""
    _, exponent = np.frexp(np.abs(tensor).max(initial=0))
    scale = np.ldexp(np.float32(1), max(int(exponent) - _FLOAT16, _SMALLEST_EXPONENT))
    return np.array([scale], np.float32), (tensor / scale).astype(np.float16)


def _planes(arrays: Sequence[np.ndarray], dtype: str) -> np.ndarray:
    """Return the bytes of all numbers: all first bytes, then all second bytes, and so on."""
    joined = np.concatenate([np.zeros(0, dtype), *arrays], dtype=dtype)
    return joined.view(np.uint8).reshape(-1, joined.itemsize).T


def _from_planes(raw: np.ndarray, dtype: str) -> np.ndarray:
    """Return the numbers that :func:`_planes` was given, as float32."""
    planes = raw.reshape(np.dtype(dtype).itemsize, -1).T
    return np.ascontiguousarray(planes).view(dtype).ravel().astype(np.float32)


def _decompressed(where: str, encoded: np.ndarray, size: int) -> np.ndarray:
    """Return the ``size`` bytes of the stream.

    Raises:
        RefusedError: the stream is damaged, or has another number of bytes.
    """
    # A stream that does not compress is a little larger than its bytes.
    largest = size + size // 8 + 64
    is_bytes = encoded.dtype == np.uint8 and encoded.ndim == 1
    if not is_bytes or not 1 < encoded.size <= largest:
        found = f"{encoded.dtype} of shape {encoded.shape}"
        raise refusal(where, f"2 to {largest} bytes, as uint8", found)
    content = encoded.tobytes()
    if content[0] != VERSION:
        raise refusal(where, f"version {VERSION} of the encoding", f"{content[0]}")
    stream = zlib.decompressobj()
    try:
        raw = stream.decompress(memoryview(content)[1:], size + 1)
    except zlib.error as error:
        raise refusal(where, "a zlib stream", str(error)) from error
    is_whole = stream.eof and not stream.unused_data and not stream.unconsumed_tail
    if len(raw) != size or not is_whole:
        raise refusal(where, f"a whole stream of {size} bytes and nothing behind it", "another")
    return np.frombuffer(raw, np.uint8)

"""What a compressed frame of a DICOM file says of itself: its size, and how it holds colours."""

import struct
from collections.abc import Iterator
from typing import NamedTuple

_JPEG_START = b"\xff\xd8"
_JPEG_2000_START = b"\xff\x4f\xff\x51"
_SIZES = frozenset({*range(0xC0, 0xD0), 0xF7} - {0xC4, 0xC8, 0xCC})
"""Markers of JPEG and JPEG-LS before the size of the image."""
_LOSSY_SIZES = frozenset({0xC0, 0xC1, 0xC2})
"""Those of lossy JPEG: baseline, extended and progressive."""
_FILLS_UP = 0xFF
"""A byte between two segments that means nothing."""
_ADOBE = 0xEE
"""Marker of a segment in which Adobe's programs, and many others, say how colours are held."""


class Frame(NamedTuple):
    """What a frame says of itself; zeros if it says nothing."""

    rows: int = 0
    columns: int = 0
    samples: int = 0
    """Samples a pixel."""
    photometric: str = ""
    """``RGB`` or ``YBR_FULL``, where the frame itself shows which; empty: the header knows."""


def frame_facts(frame: bytes) -> Frame:
    """Return what a JPEG, JPEG-LS or JPEG 2000 image says of itself.

    Raises:
        struct.error: a JPEG 2000 image is cut short.
    """
    return _of_jpeg(frame) if frame.startswith(_JPEG_START) else _of_jpeg_2000(frame)


def _of_jpeg_2000(frame: bytes) -> Frame:
    start = frame.find(_JPEG_2000_START)
    if start < 0:
        return Frame()
    right, bottom, left, top = struct.unpack(">4I", frame[start + 8 : start + 24])
    (samples,) = struct.unpack(">H", frame[start + 40 : start + 42])
    return Frame(bottom - top, right - left, samples)


def _of_jpeg(frame: bytes) -> Frame:
    adobe = b""
    for marker, content in _segments(frame):
        if marker == _ADOBE and content.startswith(b"Adobe"):
            adobe = content
        elif marker in _SIZES and len(content) >= 6:
            rows, columns, samples = struct.unpack(">2HB", content[1:6])
            photometric = ""
            if samples == 3 and marker in _LOSSY_SIZES:
                photometric = _photometric(adobe, content[6:])
            return Frame(rows, columns, samples, photometric)
    return Frame()


def _segments(frame: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield marker and content of the segments of a JPEG."""
    place = len(_JPEG_START)
    while place + 4 <= len(frame):
        marker = frame[place + 1]
        if marker == _FILLS_UP:
            place += 1
            continue
        length = int.from_bytes(frame[place + 2 : place + 4])
        yield marker, frame[place + 4 : place + 2 + length]
        place += 2 + length


def _photometric(adobe: bytes, components: bytes) -> str:
    """Return how a lossy JPEG holds three colours; empty where it does not show that.

    Args:
        adobe: content of Adobe's segment; empty without one.
        components: three bytes of each colour, of which the second is its sampling.
    """
    transform = adobe[11:12]
    if transform in (b"\0", b"\1"):
        return "YBR_FULL" if transform == b"\1" else "RGB"
    # Only where luminance has a component of its own do the others have fewer pixels.
    return "YBR_FULL" if len(set(components[1:9:3])) > 1 else ""

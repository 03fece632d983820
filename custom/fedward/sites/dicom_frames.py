"""What a compressed frame of a DICOM file says of itself: its size, and how it holds colours."""

import struct
from collections.abc import Iterator
from typing import NamedTuple

_JPEG_START = b"\xff\xd8"
_JPEG_2000_START = b"\xff\x4f\xff\x51"
_SIZES_OF_JPEG_2000 = 42
"""Bytes of a JPEG 2000 image to the end of its number of samples."""
_SIZES = frozenset({*range(0xC0, 0xD0), 0xF7} - {0xC4, 0xC8, 0xCC})
"""Markers of JPEG and JPEG-LS before the size of the image."""
_LOSSY_SIZES = frozenset({0xC0, 0xC1, 0xC2})
"""Those of lossy JPEG: baseline, extended and progressive."""
_FILLS_UP = 0xFF
"""A byte between two segments that means nothing."""
_SCAN = 0xDA
"""Marker before the pixels of a JPEG."""
_CODING = 0x52
_TILE = 0x90
"""Markers of JPEG 2000: how the image is coded, and its first part, after which pixels come."""
_ADOBE = 0xEE
"""Marker of a segment in which Adobe's programs, and many others, say how colours are held."""


class Frame(NamedTuple):
    """What a frame says of itself; zeros if it says nothing."""

    rows: int = 0
    columns: int = 0
    samples: int = 0
    """Samples a pixel."""
    photometric: str = ""
    """``RGB`` or ``YBR_FULL``, where the frame itself shows which; empty: the header knows.

    It is what decoders return. Those of JPEG 2000 undo the transform of colours that the frame
    names.
    """


def frame_facts(frame: bytes) -> Frame:
    """Return what a JPEG, JPEG-LS or JPEG 2000 image says of itself; zeros for other bytes."""
    return _of_jpeg(frame) if frame.startswith(_JPEG_START) else _of_jpeg_2000(frame)


def _of_jpeg_2000(frame: bytes) -> Frame:
    start = frame.find(_JPEG_2000_START)
    if start < 0 or len(frame) < start + _SIZES_OF_JPEG_2000:
        return Frame()
    right, bottom, left, top = struct.unpack(">4I", frame[start + 8 : start + 24])
    (samples,) = struct.unpack(">H", frame[start + 40 : start + 42])
    photometric = ""
    for marker, content in _segments(frame[start:], before=_TILE):
        # The fifth byte says whether colours are transformed: ITU-T T.800, table A.14.
        if marker == _CODING and content[4:5] == b"\1":
            photometric = "RGB"
    return Frame(bottom - top, right - left, samples, photometric)


def _of_jpeg(frame: bytes) -> Frame:
    adobe = b""
    for marker, content in _segments(frame, before=_SCAN):
        if marker == _ADOBE and content.startswith(b"Adobe"):
            adobe = content
        elif marker in _SIZES and len(content) >= 6:
            rows, columns, samples = struct.unpack(">2HB", content[1:6])
            photometric = ""
            if samples == 3 and marker in _LOSSY_SIZES:
                photometric = _photometric(adobe, content[6:])
            return Frame(rows, columns, samples, photometric)
    return Frame()


def _segments(frame: bytes, before: int) -> Iterator[tuple[int, bytes]]:
    """Yield marker and content of the segments of a JPEG or JPEG 2000 before one with a marker."""
    # Both begin with a marker that has no content.
    place = len(_JPEG_START)
    while place + 4 <= len(frame):
        marker = frame[place + 1]
        if marker == _FILLS_UP:
            place += 1
            continue
        if marker == before:
            return
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

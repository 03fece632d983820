"""Image files that cameras and detectors write, and Pillow does not."""

import zlib

import numpy as np
from PIL.TiffImagePlugin import ImageFileDirectory_v2

ODD_TAGS = {
    "resolution": (0x011A, "high", 2),
    "width": (0x0100, "wide", 2),
    "software": (0x0131, 1.5, 12),
}


def odd_exif(what: str) -> bytes:
    """Return EXIF with a quarter turn and a value of a wrong type, which Pillow cannot rewrite."""
    tag, value, kind = ODD_TAGS[what]
    tags = ImageFileDirectory_v2()
    tags[0x0112] = 6
    tags[tag] = value
    tags.tagtype[tag] = kind
    return b"Exif\0\0II*\0\x08\0\0\0" + tags.tobytes(8)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return (
        len(content).to_bytes(4, "big")
        + kind
        + content
        + zlib.crc32(kind + content).to_bytes(4, "big")
    )


def deep_png(values: np.ndarray, colour: int) -> bytes:
    """Return a PNG of 16 bits a channel, which Pillow cannot write, from (H, W, C) uint16 values.

    ``colour`` is PNG's number of a colour type.
    """
    height, width, _ = values.shape
    head = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([16, colour, 0, 0, 0])
    lines = b"".join(b"\0" + line.astype(">u2").tobytes() for line in values)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*part) for part in parts)


def deep_tiff(values: np.ndarray) -> bytes:
    """Return an uncompressed TIFF of 16 bits a channel, from (H, W, 3) uint16 values."""
    tags = ImageFileDirectory_v2()
    height, width, channels = values.shape
    content = values.astype("<u2").tobytes()
    tags[0x0100] = width
    tags[0x0101] = height
    tags[0x0102] = (16, 16, 16)  # bits of each channel
    tags[0x0103] = 1  # no compression
    tags[0x0106] = 2  # RGB
    tags[0x0115] = channels
    tags[0x0116] = height  # rows of the one strip
    tags[0x011C] = 1  # channels beside each other
    tags[0x0111] = 0  # place of the strip; Pillow adds the offset of what follows the tags
    tags[0x0117] = len(content)
    return b"II*\0\x08\0\0\0" + tags.tobytes(8) + content


def grey_tiff(values: np.ndarray, photometric: int) -> bytes:
    """Return an uncompressed grey TIFF of (H, W) values of any type, little-endian.

    ``photometric`` is 0 if the lowest value is white, and 1 if it is black.
    """
    tags = ImageFileDirectory_v2()
    height, width = values.shape
    content = values.tobytes()
    tags[0x0100] = width
    tags[0x0101] = height
    tags[0x0102] = 8 * values.dtype.itemsize  # bits
    tags[0x0103] = 1  # no compression
    tags[0x0106] = photometric
    tags[0x0115] = 1  # channels
    tags[0x0116] = height  # rows of the one strip
    tags[0x0153] = {"u": 1, "i": 2, "f": 3}[values.dtype.kind]
    tags[0x0111] = 0  # place of the strip; Pillow adds the offset of what follows the tags
    tags[0x0117] = len(content)
    return b"II*\0\x08\0\0\0" + tags.tobytes(8) + content

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
    """Return EXIF with a quarter turn, and beside it a value of a wrong type: Pillow reads but
    cannot rewrite it.
    """
    tag, value, kind = ODD_TAGS[what]
    tags = ImageFileDirectory_v2()
    tags[0x0112], tags[tag] = 6, value
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
    """Return a PNG of 16 bits a channel, which Pillow cannot write: (H, W, C) uint16, PNG's number
    of a colour type.
    """
    height, width, _ = values.shape
    head = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([16, colour, 0, 0, 0])
    lines = b"".join(b"\0" + line.astype(">u2").tobytes() for line in values)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*part) for part in parts)


def deep_tiff(values: np.ndarray) -> bytes:
    """Return a TIFF of 16 bits a channel without compression, which Pillow cannot write: (H, W, 3)
    uint16 values.
    """
    tags = ImageFileDirectory_v2()
    tags[0x0100], tags[0x0101], tags[0x0102], tags[0x0103] = (
        values.shape[1],
        values.shape[0],
        (16, 16, 16),
        1,
    )
    tags[0x0106], tags[0x0115], tags[0x0116], tags[0x011C] = 2, 3, values.shape[0], 1
    content = values.astype("<u2").tobytes()
    tags[0x0111], tags[0x0117] = 0, len(content)  # Pillow adds the offset of what follows the tags
    return b"II*\0\x08\0\0\0" + tags.tobytes(8) + content

"""The checks of a returned file before it is read: it is a file, and no larger than needed."""

import stat
from pathlib import Path

LARGEST = 100 * 1024 * 1024
"""The most bytes of a returned file, which hold several hundred thousand answers."""


def require_file(path: Path) -> None:
    """Refuse a path that cannot be read to its end.

    Raises:
        OSError: there is no file, but nothing, a pipe, a device or a folder; or the file has more
            than :data:`LARGEST` bytes.
    """
    state = path.stat()
    if not stat.S_ISREG(state.st_mode):
        raise OSError(0, "no file, but a pipe, a device or a folder")
    if state.st_size > LARGEST:
        raise OSError(0, f"{state.st_size} bytes, where {LARGEST} are the most")

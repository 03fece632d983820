"""What a file that came back must be before it is read: a file, and no larger than a queue can
need.
"""

import stat
from pathlib import Path

LARGEST = 100 * 1024 * 1024
"""Bytes of a returned file: some hundred thousand answers."""


def require_file(path: Path) -> None:
    """Refuse what cannot be read to its end.

    Raises:
        OSError: there is nothing, or a pipe, a device or a folder, or it has more than
            :data:`LARGEST` bytes.
    """
    state = path.stat()
    if not stat.S_ISREG(state.st_mode):
        raise OSError(0, "no file, but a pipe, a device or a folder")
    if state.st_size > LARGEST:
        raise OSError(0, f"{state.st_size} bytes, where {LARGEST} are the most")

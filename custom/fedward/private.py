"""Files for their owner alone, whatever the umask: patients' images, their ids, and what a site has
spent.
"""

import os
from pathlib import Path

_FILE = 0o600
_FOLDER = 0o700


def opener(path: str, flags: int) -> int:
    """Open a file with mode 0600, also one that was there with another: ``open(path, "wb",
    opener=opener)``.
    """
    number = os.open(path, flags, _FILE)
    os.fchmod(number, _FILE)
    return number


def make_folder(folder: Path) -> None:
    """Make a folder with mode 0700, and so those above it that are missing; one that is there stays
    as it is.
    """
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(mode=_FOLDER, exist_ok=True)


def shut(path: Path) -> None:
    """Give a file mode 0600; a folder 0700, with all that is in it."""
    for each in [path, *path.rglob("*")] if path.is_dir() else [path]:
        each.chmod(_FOLDER if each.is_dir() else _FILE)

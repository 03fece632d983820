"""Paths that FLARE's simulator can pass on to its processes.

The simulator writes the command of a site's process as one text and splits it at spaces, as a shell
does. Spaces, quotes, backslashes and ``#`` in a path would cut the path into pieces; the simulator
then waits for a minute for a process that has ended.
"""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from fedward.errors import ConfigError


def is_plain(path: Path | str) -> bool:
    """Return whether a path stays whole where FLARE splits its commands."""
    try:
        return shlex.split(str(path), comments=True) == [str(path)]
    except ValueError:  # a quote without its partner
        return False


@contextmanager
def plain_path(folder: Path) -> Iterator[Path]:
    """Yield a plain absolute path of a folder: its own, or a link to it for the ``with`` block.

    Args:
        folder: an existing folder.

    Raises:
        ConfigError: the path of Python or of the folder for temporary files is not plain.
    """
    _refuse(Path(sys.executable), "Python", "Install fedward in another folder.")
    folder = folder.resolve()
    if is_plain(folder):
        yield folder
        return
    with TemporaryDirectory(prefix="fedward-") as temporary:
        link = Path(temporary) / "folder"
        _refuse(link, "temporary files", "Set TMPDIR to another folder.")
        link.symlink_to(folder, target_is_directory=True)
        yield link


def _refuse(path: Path, purpose: str, remedy: str) -> None:
    if not is_plain(path):
        raise ConfigError(
            f"FLARE's simulator cannot work with the path of {purpose}, {path}: it splits paths at "
            "spaces, quotes, backslashes and #",
            f"{remedy} `fedward run` works with any path.",
        )

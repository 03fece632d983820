"""Files and folders that are there when all of them is written, and not before."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedward.storage.disk import make_folder, replace


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Yield where to write a file or folder that lies under ``path`` when the block ends well, and else nowhere.

    An OSError of the block that names no file, as a full disk's, names ``path``.
    """
    make_folder(path.parent)
    partial = path.with_name(f"{path.name}.partial")
    _remove(partial)
    try:
        yield partial
        replace(partial, path)
    except OSError as error:
        error.filename = error.filename or str(path)
        raise
    finally:
        _remove(partial)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)

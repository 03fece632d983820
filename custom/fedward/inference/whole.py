"""Files and folders that are there when all of them is written, and not before."""

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fedward.errors import ConfigError
from fedward.sites.decoding import ENDINGS
from fedward.sites.files import is_dicom, is_volume
from fedward.storage.disk import make_folder, replace


def require_own_place(out: Path, run: Path, read: Iterable[Path | None]) -> None:
    """Refuse to write over what a command reads, or into a run, whose audit log would then no
    longer fit it.

    Args:
        out: what will be written.
        run: the run folder.
        read: files and folders that the command reads besides; None: nothing. An image in such a
            folder is no place.

    Raises:
        ConfigError: ``out`` is one of these, lies in the run folder, or is no file: a device that
            is replaced, such as ``/dev/null``, is gone for all programs of the machine.
    """
    place = out.resolve()
    remedy = "Name another file."
    if place.is_relative_to(run.resolve()):
        raise ConfigError(
            f"{out}", expected="a place outside of the run folder", found=f"{run}", remedy=remedy
        )
    if not out.exists():
        return
    if not (out.is_file() or out.is_dir()):
        raise ConfigError(
            f"{out}", expected="a file to write", found="a device or a pipe", remedy=remedy
        )
    image = out.suffix.lower() in ENDINGS or is_volume(out) or is_dicom(out)
    for path in read:
        if path is None or not path.exists():
            continue
        if path.samefile(out) or (path.is_dir() and image and place.is_relative_to(path.resolve())):
            raise ConfigError(
                f"{out}", expected="a file to write", found="one that is read", remedy=remedy
            )


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Yield where to write a file or folder that lies under ``path`` when the block ends well, and
    else nowhere.

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

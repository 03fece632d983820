"""Files and folders that appear when they are written completely, and not before."""

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fedward.disk import make_folder, replace, unwritable
from fedward.errors import ConfigError
from fedward.sites.decoding import ENDINGS
from fedward.sites.files import is_dicom, is_volume

_PREFIX = ".fedward-writing-"
"""Beginning of the name of a temporary folder."""


def _no_result(_: Path) -> bool:
    return False


def require_own_place(
    out: Path,
    run: Path,
    read: Iterable[Path | None],
    is_result: Callable[[Path], bool] = _no_result,
) -> None:
    """Refuse to write over a file that is not the command's own, or into the run folder.

    A changed run folder would no longer match its audit log.

    Args:
        out: the file or folder to write.
        run: the run folder.
        read: files and folders that the command also reads, or None. An image in such a folder is
            not written over, either.
        is_result: whether a file is an earlier result of the same command, which is replaced; by
            default none is.

    Raises:
        ConfigError: ``out`` is one of these, another file, in the run folder, below a file or in a
            folder that cannot be written, or not a file: a device that is replaced, such as
            ``/dev/null``, is gone for all programs of the machine.
    """
    place = out.resolve()
    remedy = "Name another file."
    if place.is_relative_to(run.resolve()):
        raise ConfigError(
            f"{out}", remedy, expected="a place outside of the run folder", found=f"{run}"
        )
    reason = unwritable(out.parent)
    if reason:
        raise ConfigError(
            f"{out}", remedy, expected="a place in a folder that can be written", found=reason
        )
    if not out.exists():
        return
    if not (out.is_file() or out.is_dir()):
        raise ConfigError(f"{out}", remedy, expected="a file to write", found="a device or a pipe")
    for path in read:
        if path is not None and path.exists() and _is_read(out, path):
            raise ConfigError(
                f"{out}", remedy, expected="a file to write", found="one that is read"
            )
    if out.is_file() and not is_result(out):
        raise ConfigError(
            f"{out}",
            "Name another file, or remove this one.",
            expected="a new file, or one that this command may replace",
            found="another file",
        )


def _is_read(out: Path, path: Path) -> bool:
    """Return whether ``out`` is a file or folder that is read, or an image in such a folder."""
    if path.samefile(out):
        return True
    inside = path.is_dir() and out.resolve().is_relative_to(path.resolve())
    return inside and (out.suffix.lower() in ENDINGS or is_volume(out) or is_dicom(out))


@contextmanager
def appears_whole(path: Path) -> Iterator[Path]:
    """Yield where to write a file or folder that becomes ``path`` when the block ends well.

    It lies in a temporary folder beside ``path``. If the block fails, nothing remains. An OSError
    that names no file, such as that of a full disk, or one in that folder is made to name ``path``.
    """
    make_folder(path.parent)
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=_PREFIX) as temporary:
            partial = Path(temporary) / path.name
            yield partial
            replace(partial, path)
    except OSError as error:
        if not error.filename or _PREFIX in f"{error.filename}":
            error.filename = str(path)
        raise

"""Image files in a folder: which files are images, of what kind, and whether paths stay inside."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from fedward.sites.decoding import ENDINGS, BadRow
from fedward.text import natural


def is_dicom(path: Path) -> bool:
    """Return whether a readable file begins as DICOM files do, whatever its ending."""
    try:
        with path.open("rb") as file:
            return file.read(132)[128:] == b"DICM"
    except OSError:
        return False


def series_files(folder: Path) -> list[Path]:
    """Return the DICOM files directly in a folder, by name; empty for anything but a folder."""
    if not folder.is_dir():
        return []
    return [path for path in sorted(folder.iterdir()) if is_dicom(path)]


def is_volume(path: Path) -> bool:
    """Return whether a path is a NIfTI volume, by its ending, or the folder of a series."""
    return path.name.lower().endswith((".nii", ".nii.gz")) or path.is_dir()


def locate(folder: Path, name: str) -> Path:
    """Return the file a row names, or the folder of a DICOM series, if it lies in the folder.

    Raises:
        BadRow: the path is absolute, leaves the folder (``..`` or a link), or is neither.
    """
    if not name or "\0" in name:
        raise BadRow(f"expected the path of an image, found {name!r}")
    root = folder.resolve()
    if Path(name).is_absolute():
        raise BadRow(f"expected a path relative to {folder}, found {name!r}")
    try:
        path = (root / name).resolve()
        if not path.is_relative_to(root):
            raise BadRow(f"expected a path inside {folder}, found {name!r}, which leaves it")
        if not path.is_file() and not series_files(path):
            found = "a folder without DICOM files" if path.is_dir() else "none"
            raise BadRow(f"expected an image file, found {found} at {name!r}")
    except OSError as error:
        raise BadRow(f"expected an image file at {name!r}, found {error.strerror}") from None
    return path


def is_image(path: Path) -> bool:
    """Return whether a path is an image, a volume or the folder of a series.

    Images and volumes are recognised by their endings, DICOM files by their content.
    """
    return path.suffix.lower() in ENDINGS or is_volume(path) or is_dicom(path)


def files_below(folder: Path) -> list[Path]:
    """Return all files in a folder and its sub-folders except hidden ones, in natural order."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")]
    return sorted(files, key=lambda path: natural(path.as_posix()))


def volumes_in(files: Sequence[Path], single_images: Path | None = None) -> list[Path]:
    """Return the files, with each series replaced by its folder.

    A folder that directly holds two or more DICOM files is a series, unless it is the folder
    ``single_images``.
    """
    dicom_files = Counter(path.parent for path in files if is_dicom(path))
    volumes = []
    for path in files:
        folder = path.parent
        in_series = dicom_files[folder] > 1 and folder != single_images
        volumes.append(folder if in_series else path)
    return list(dict.fromkeys(volumes))

"""What kind of image a path is, and whether it lies where it may."""

from pathlib import Path

from fedward.sites.decoding import BadRow


def is_dicom(path: Path) -> bool:
    """Return whether a file that can be read begins as DICOM files do, whatever its name ends in."""
    try:
        with path.open("rb") as file:
            return file.read(132)[128:] == b"DICM"
    except OSError:
        return False


def series_files(folder: Path) -> list[Path]:
    """Return the DICOM files directly in a folder, by name; none where it is no folder."""
    return [path for path in sorted(folder.iterdir()) if is_dicom(path)] if folder.is_dir() else []


def is_volume(path: Path) -> bool:
    """Return whether a path is a NIfTI volume, by the ending of its name, or a folder, which is one
    of a series.
    """
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
            there = "a folder without DICOM files" if path.is_dir() else "none"
            raise BadRow(f"expected an image file, found {there} at {name!r}")
    except OSError as error:
        raise BadRow(f"expected an image file at {name!r}, found {error.strerror}") from None
    return path

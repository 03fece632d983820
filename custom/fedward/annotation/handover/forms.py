"""The formats by name, and which of them a returned file is in."""

from collections.abc import Callable, Sequence
from pathlib import Path

from fedward.annotation.handover import csv_file, label_studio, monai_label
from fedward.annotation.handover.content import Content, Exported, appears_whole
from fedward.annotation.records import Return

FORMS = ("csv", "label-studio", "monai-label")


def read(path: Path) -> Return:
    """Read a file or folder that came back: a folder is MONAI Label's, ``.json`` Label Studio's, anything else a CSV.

    Raises:
        DataError: it cannot be read at all.
    """
    if path.is_dir():
        return monai_label.read(path)
    return label_studio.read(path) if path.suffix.lower() == ".json" else csv_file.read(path)


def written(path: Path) -> float:
    """Return when a returned file was last written, in seconds since 1970."""
    return (path / monai_label.INDEX if path.is_dir() else path).stat().st_mtime


def write(form: str, path: Path, content: Content, classes: Sequence[str], picture: Callable[[str], bytes]) -> Exported:
    """Write the queue in one of :data:`FORMS`; see :meth:`fedward.annotation.Queue.export`."""
    with appears_whole(path) as target:
        if form == "csv":
            return Exported(path, csv_file.write(target, content))
        if form == "label-studio":
            # Label Studio gets the folder's final path, not the temporary one.
            return Exported(path, *label_studio.write(target, path.name, content, classes, picture))
        return Exported(path, *monai_label.write(target, content, picture))

"""The queue as files for other programs and other people, and their answers as files back.

``csv``: one file, a row for each decision and each image that still waits. ``label-studio``: a
folder with tasks for what waits, results for what is decided, the labelling configuration and the
pictures. ``monai-label``: a datastore folder as MONAI Label's server keeps it.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from fedward.annotation.handover import csv_file, label_studio, monai_label
from fedward.annotation.handover.content import Content, Exported, appears_whole, write_pictures
from fedward.annotation.records import Return

__all__ = ["FORMS", "Content", "Exported", "read", "write", "written"]

FORMS = ("csv", "label-studio", "monai-label")


def read(path: Path) -> Return:
    """Read a file or folder that came back: a folder is MONAI Label's, ``.json`` Label Studio's,
    anything else a CSV.

    Raises:
        DataError: it cannot be read at all.
    """
    if path.is_dir():
        return monai_label.read(path)
    return label_studio.read(path) if path.suffix.lower() == ".json" else csv_file.read(path)


def written(path: Path) -> float:
    """Return when a returned file was last written, in seconds since 1970."""
    return (path / monai_label.INDEX if path.is_dir() else path).stat().st_mtime


def write(
    form: str, path: Path, content: Content, classes: Sequence[str], picture: Callable[[str], bytes]
) -> Exported:
    """Write the queue in one of :data:`FORMS`; see :meth:`fedward.annotation.Queue.export`."""
    with appears_whole(path) as target:
        if form == "csv":
            return Exported(path, csv_file.write(target, content))
        shown, unseen = write_pictures(target / "images", content.ids, picture)
        if form == "label-studio":
            # Label Studio gets the folder's final path, not the temporary one.
            label_studio.write(target, path.name, content, classes, shown)
        else:
            monai_label.write(target, content, shown)
        return Exported(path, len(shown), tuple(unseen))

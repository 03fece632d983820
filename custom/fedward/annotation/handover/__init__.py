"""The queue as files for other programs and people, and the files with answers that they return.

There are three formats:

- ``csv`` is one file with a row for each decision and each image that still waits.
- ``label-studio`` is a folder with tasks for the images that wait, results for the decided ones,
  the labelling configuration and the pictures.
- ``monai-label`` is a datastore folder as MONAI Label's server keeps it.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from fedward.annotation.handover import csv_file, label_studio, monai_label
from fedward.annotation.handover.content import Content, Exported, appears_whole, write_pictures
from fedward.annotation.records import Return

__all__ = ["FORMS", "Content", "Exported", "read", "write", "written"]

FORMS = ("csv", "label-studio", "monai-label")


def read(path: Path) -> Return:
    """Read a returned file or folder.

    A folder is read as MONAI Label's, a file with the ending ``.json`` as Label Studio's, and any
    other file as a CSV.

    Raises:
        DataError: it cannot be read at all.
    """
    if path.is_dir():
        return monai_label.read(path)
    if path.suffix.lower() == ".json":
        return label_studio.read(path)
    return csv_file.read(path)


def written(path: Path) -> float:
    """Return when a returned file was last written, in seconds since 1970."""
    file = path / monai_label.INDEX if path.is_dir() else path
    return file.stat().st_mtime


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

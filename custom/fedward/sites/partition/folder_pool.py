"""A pool that is a folder with one sub-folder of image files for each class, perhaps below train, val and test."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from PIL import Image

from fedward.errors import DataError
from fedward.sites.decoding import BadRow
from fedward.sites.dicom import is_dicom
from fedward.sites.images import locate
from fedward.sites.partition.image_pool import SPLIT_NAMES, ListedImage, image_pool, refuse_many
from fedward.sites.partition.pool import Pool, natural
from fedward.sites.rendering import PLAIN, Rendering
from fedward.sites.volumes import is_volume


def read_folder(folder: Path, classes: Sequence[str] = (), rendering: Rendering = PLAIN) -> Pool:
    """Read a folder whose sub-folders are the classes; an image's id is its path.

    Where the sub-folders are called train, val and test, or some of these, the classes are below them. Images may lie
    deeper in the folder of their class. What is no image (:func:`is_image`) is left out. A folder called ``unlabelled``
    is no class.

    Raises:
        DataError: there are no such folders, no images in them, or see
            :func:`fedward.sites.partition.image_pool.image_pool`.
    """
    places = _class_folders(folder)
    files = [(label, split, path) for label, split, place in places for path in files_below(place)]
    images = [(label, split, path) for label, split, path in files if is_image(path)]
    if not images:
        expected, remedy = "images in a folder for each class", "Name another folder, or a CSV."
        found = f"{', '.join(sorted(path.name for path in folder.iterdir())):.200}" or "nothing"
        raise DataError(f"{folder}", expected=expected, found=found, remedy=remedy)
    listed, bad = list[ListedImage](), list[str]()
    for label, split, path in images:
        name = path.relative_to(folder).as_posix()
        try:
            locate(folder, name)
            name.encode()
        except (BadRow, UnicodeEncodeError) as problem:
            bad.append(f"{name!r}: {problem}")
        else:
            listed.append(ListedImage(name, name, label, split=split))
    others = len(files) - len(images)
    notes = [f"Files that are left out, as their endings are not those of images: {others}."] if others else []
    notes += refuse_many(f"{folder}", bad, len(images), "Copy or rename these files.")
    if tables := sorted(path.name for path in folder.glob("*.csv")):
        notes += [f"{', '.join(tables)} in {folder} is not read. If it lists the images, name it as SOURCE."]
    return image_pool(folder.resolve().name, folder, listed, classes, {}, rendering, notes)


def image_endings() -> set[str]:
    """Return the endings of image files that are read, in lower case."""
    return {ending for ending, kind in Image.registered_extensions().items() if kind in Image.OPEN}


def is_image(path: Path) -> bool:
    """Return whether a file is an image or a volume, by its ending, or DICOM, by its content."""
    return path.suffix.lower() in image_endings() or is_volume(path) or is_dicom(path)


def _class_folders(folder: Path) -> Iterator[tuple[str, str, Path]]:
    """Yield class, split and folder, in natural order."""
    inside = _folders(folder)
    if inside and all(path.name.lower() in SPLIT_NAMES for path in inside):
        for split in inside:
            for path in _folders(split):
                yield path.name, SPLIT_NAMES[split.name.lower()], path
    else:
        for path in inside:
            yield path.name, "", path


def _folders(folder: Path) -> list[Path]:
    found = [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
    return sorted(found, key=lambda path: natural(path.name))


def files_below(folder: Path) -> list[Path]:
    """Return all files in a folder and below that are not hidden, in natural order."""
    found = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")]
    return sorted(found, key=lambda path: natural(path.as_posix()))

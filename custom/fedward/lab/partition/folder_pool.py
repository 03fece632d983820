"""A pool that is a folder with one sub-folder of image files for each class, perhaps below train,
val and test.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from fedward.errors import DataError
from fedward.lab.partition.image_pool import SPLIT_NAMES, ListedImage, image_pool, refuse_many
from fedward.lab.partition.pool import Pool
from fedward.sites.decoding import BadRow
from fedward.sites.files import files_below, is_image, locate, volumes_in
from fedward.sites.rendering import PLAIN, Rendering
from fedward.text import natural


def read_folder(folder: Path, classes: Sequence[str] = (), rendering: Rendering = PLAIN) -> Pool:
    """Read a folder whose sub-folders are the classes; an image's id is its path.

    Where the sub-folders are called train, val and test, or some of these, the classes are below
    them. Images may lie deeper in the folder of their class. What is no image (:func:`fedward.sites.files.is_image`) is
    left out. A folder called ``unlabelled`` is no class. Where volumes are wanted, a folder below a
    class's with several DICOM files is one; see
    :func:`fedward.sites.files.volumes_in`.

    Raises:
        DataError: there are no such folders, no images in them, or see
            :func:`fedward.lab.partition.image_pool.image_pool`.
    """
    places = list(_class_folders(folder))
    files = [
        (label, split, path) for label, split, place in places for path in _files(place, rendering)
    ]
    images = [(label, split, path) for label, split, path in files if is_image(path)]
    if not images:
        expected = "images in a folder for each class"
        remedy = "Name another folder, or a CSV."
        found = f"{', '.join(sorted(path.name for path in folder.iterdir())):.200}" or "nothing"
        raise DataError(f"{folder}", expected=expected, found=found, remedy=remedy)
    listed = list[ListedImage]()
    bad = list[str]()
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
    notes = (
        [f"Files that are left out, as their endings are not those of images: {others}."]
        if others
        else []
    )
    notes += refuse_many(f"{folder}", bad, len(images), "Copy or rename these files.")
    tables = sorted(path.name for path in folder.glob("*.csv"))
    if tables:
        notes += [
            f"{', '.join(tables)} in {folder} is not read. If it lists the images, name it as SOURCE."
        ]
    series = sum(
        path.is_dir() for _, _, place in places for path in volumes_in(files_below(place), place)
    )
    if series:
        told = (
            "is one volume"
            if rendering.slices
            else "has as many images: if they are CT or MR series, give --slices"
        )
        notes += [f"Each of {series} folders with several DICOM files {told}."]
    return image_pool(folder.resolve().name, folder, listed, classes, {}, rendering, notes)


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


def _files(place: Path, rendering: Rendering) -> list[Path]:
    files = files_below(place)
    return volumes_in(files, single_images=place) if rendering.slices else files


def _folders(folder: Path) -> list[Path]:
    found = [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
    return sorted(found, key=lambda path: natural(path.name))

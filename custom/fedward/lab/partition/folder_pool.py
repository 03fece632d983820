"""A pool that is a folder with a sub-folder of images for each class, perhaps in each split."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from fedward.errors import DataError, listed
from fedward.lab.partition.image_pool import SPLIT_NAMES, ListedImage, image_pool, refuse_many
from fedward.lab.partition.label_choices import NO_CHOICES, LabelChoices, require_decided
from fedward.lab.partition.pool import Pool, is_label
from fedward.sites.decoding import BadRow
from fedward.sites.files import LeftOut, files_below, is_image, locate, volumes_in
from fedward.sites.rendering import PLAIN, Rendering
from fedward.text import natural


class _ClassFolder(NamedTuple):
    label: str
    split: str
    """Empty where the data set has no splits of its own."""
    path: Path


def read_folder(
    folder: Path,
    classes: Sequence[str] = (),
    rendering: Rendering = PLAIN,
    choices: LabelChoices = NO_CHOICES,
) -> Pool:
    """Read a folder whose sub-folders are the classes; an image's id is its path.

    Where the sub-folders are called train, val and test, or some of these, the classes are below
    them; where all folders in those of the classes are, they are the splits. Images may lie deeper
    in the folder of their class. Files that are no images (:class:`fedward.sites.files.LeftOut`)
    are left out. A folder called ``unlabelled`` is not a class. Where volumes are wanted, a folder
    below a class's with several DICOM files is one; see :func:`fedward.sites.files.volumes_in`.

    Args:
        folder: of the classes.
        classes: those to use; empty: all.
        rendering: how files become images.
        choices: what names of folders mean that could mean several things.

    Raises:
        ConfigError: see :func:`~fedward.lab.partition.label_choices.require_decided`.
        DataError: there are no such folders, no images in them, a folder's name must be decided, or
            see :func:`fedward.lab.partition.image_pool.image_pool`.
    """
    class_folders = list(_class_folders(folder))
    images: list[ListedImage] = []
    problems: list[str] = []
    left_out = LeftOut()
    for class_folder in class_folders:
        for path in left_out.images(_files(class_folder.path, rendering)):
            name = path.relative_to(folder).as_posix()
            try:
                locate(folder, name)
                name.encode()
            except (BadRow, UnicodeEncodeError) as problem:
                problems.append(f"{name!r}: {problem}")
            else:
                images.append(ListedImage(name, name, class_folder.label, split=class_folder.split))
    words = [image.label for image in images if is_label(image.label)]
    require_decided(f"{folder}", words, choices, classes)
    images = [_with_meaning(image, choices) for image in images]
    total = len(images) + len(problems)
    if not total:
        names = sorted(path.name for path in folder.iterdir())
        raise DataError(
            f"{folder}",
            "Name another folder, or a CSV.",
            expected="images in a folder for each class",
            found=f"{', '.join(names):.200}" or "nothing",
        )
    notes = left_out.notes()
    notes += refuse_many(f"{folder}", problems, total, "Copy or rename these files.")
    notes += _folder_notes(folder, class_folders, rendering)
    return image_pool(folder.resolve().name, folder, images, classes, {}, rendering, notes)


def _folder_notes(
    folder: Path, class_folders: Sequence[_ClassFolder], rendering: Rendering
) -> list[str]:
    """Return notes of tables that are not read, and of series."""
    notes = []
    beside = _images_beside(folder, class_folders)
    if beside:
        notes.append(f"Images that lie in no folder of a class and are left out: {beside}.")
    empty = [
        class_folder.path.relative_to(folder).as_posix()
        for class_folder in class_folders
        if not any(map(is_image, files_below(class_folder.path)))
    ]
    if empty:
        notes.append(f"Folders without an image, which are no classes: {listed(empty)}.")
    tables = sorted(path.name for path in folder.glob("*.csv"))
    if tables:
        notes.append(
            f"{', '.join(tables)} in {folder} is not read. If it lists the images, name it as "
            "SOURCE."
        )
    series = sum(_series_in(class_folder.path) for class_folder in class_folders)
    if series:
        meaning = "has as many images: if they are CT or MR series, give --slices"
        if rendering.slices:
            meaning = "is one volume"
        notes.append(f"Each of {series} folders with several DICOM files {meaning}.")
    return notes


def _with_meaning(image: ListedImage, choices: LabelChoices) -> ListedImage:
    """Return an image with the class that its folder's name means."""
    return replace(image, label="".join(choices.decided([image.label])))


def _images_beside(folder: Path, class_folders: Sequence[_ClassFolder]) -> int:
    """Return how many images lie directly in the folder, or in that of a split."""
    places = {folder, *(class_folder.path.parent for class_folder in class_folders)}
    return sum(path.is_file() and is_image(path) for place in places for path in place.iterdir())


def _class_folders(folder: Path) -> Iterator[_ClassFolder]:
    """Yield the folders of the classes, in natural order.

    Raises:
        DataError: some folders are called as splits and others are not.
    """
    inside = _folders(folder)
    splits = [path for path in inside if path.name.lower() in SPLIT_NAMES]
    if splits and len(splits) < len(inside):
        raise DataError(
            f"{folder}",
            "Move the other folders elsewhere, or into those of the splits.",
            expected="a folder for each class, or folders of splits alone, as train and test",
            found=f"{', '.join(path.name for path in inside):.200}",
        )
    in_classes = [path for class_folder in inside for path in _folders(class_folder)]
    if in_classes and all(path.name.lower() in SPLIT_NAMES for path in in_classes):
        for path in in_classes:
            yield _ClassFolder(path.parent.name, SPLIT_NAMES[path.name.lower()], path)
    elif splits:
        for split_folder in inside:
            split = SPLIT_NAMES[split_folder.name.lower()]
            for path in _folders(split_folder):
                yield _ClassFolder(path.name, split, path)
    else:
        for path in inside:
            yield _ClassFolder(path.name, "", path)


def _files(class_folder: Path, rendering: Rendering) -> list[Path]:
    """Return the files of a class; where volumes are wanted, a series is its folder."""
    files = files_below(class_folder)
    return volumes_in(files, single_images=class_folder) if rendering.slices else files


def _series_in(class_folder: Path) -> int:
    """Return the number of folders below a class's that hold a series."""
    return sum(path.is_dir() for path in volumes_in(files_below(class_folder), class_folder))


def _folders(folder: Path) -> list[Path]:
    """Return the folders in a folder that are not hidden, in natural order."""
    folders = [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
    return sorted(folders, key=lambda path: natural(path.name))

"""A pool that is a folder with a sub-folder of images for each class, perhaps in each split."""

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from fedward.errors import DataError, in_shell, listed, option
from fedward.lab.partition.faults import Faults
from fedward.lab.partition.image_pool import ListedImage, image_pool, refuse_many
from fedward.lab.partition.label_choices import NO_CHOICES, LabelChoices, with_decisions
from fedward.lab.partition.left_out import LEFT_OUT_FILE
from fedward.lab.partition.pool import ClassesError, LeftOutImage, Origin, Pool, is_label
from fedward.sites.decoding import BadRow
from fedward.sites.files import (
    LeftOut,
    conversion,
    conversions,
    files_below,
    is_file_or_unreachable,
    is_hidden,
    is_image,
    locate,
    volumes_in,
)
from fedward.sites.image_columns import lists_images
from fedward.sites.rendering import PLAIN, Rendering
from fedward.sites.split import split_named
from fedward.text import composed, natural

_MOST_NAMED = 5
"""Files of a folder that an error names."""
_MASK = re.compile(r"[ _-](mask|seg|segmentation|superpixels)([ _-]?\d+)?$", re.IGNORECASE)
"""How the name of a mask ends, beside the image that has the rest as its name."""


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
    *,
    resplit: bool = False,
    faults: Faults,
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
        resplit: whether folders of splits count for nothing.
        faults: gets what a person must decide, and the pool is by the likeliest decisions.

    Raises:
        ConfigError: see :func:`~fedward.lab.partition.label_choices.with_decisions`.
        DataError: there are no such folders or no images in them; a CSV in the folder lists its
            images, and no ``classes`` say that the folders are the classes; or see
            :func:`fedward.lab.partition.image_pool.image_pool`.
    """
    class_folders = list(_class_folders(folder))
    if not classes:
        _refuse_list(folder, class_folders)
        _require_classes_on_top(folder, class_folders)
    images, problems, others = _listed(folder, class_folders, rendering)
    words = [image.label for image in images if is_label(image.label)]
    choices = with_decisions(f"{folder}", words, choices, classes, faults)
    images = [_with_meaning(image, choices) for image in images]
    if resplit:
        images = [replace(image, split="") for image in images]
    total = len(images) + len(problems)
    if len({image.label for image in images} - {""}) < 2 and not problems:
        _refuse_folders(folder, class_folders, images, others)
    unusable = [LeftOutImage(Origin(name), problem) for name, problem in problems.items()]
    with faults.noted():
        refuse_many(f"{folder}", unusable, total, "Copy or rename these files.")
    if not images:
        faults.refuse()
    notes = [*others.folder_notes(), *_folder_notes(folder, class_folders, rendering)]
    beside = [path for path in _files_beside(folder, class_folders) if is_image(path)]
    reasons = {
        **{path.relative_to(folder).as_posix(): why for path, why in others.reasons.items()},
        **problems,
        **{path.relative_to(folder).as_posix(): "in no folder of a class" for path in beside},
    }
    with faults.noted_unless(ClassesError):
        pool = image_pool(
            name=folder.resolve().name,
            folder=folder,
            images=images,
            classes=classes,
            columns={},
            rendering=rendering,
            notes=notes,
        )
        left_out = [LeftOutImage(Origin(name), why) for name, why in reasons.items()]
        pool = replace(pool, left_out=(*left_out, *pool.left_out))
        return replace(pool, doubts=tuple(_doubts(folder, len(beside), total)))
    raise faults.together()


def _listed(
    folder: Path, class_folders: Sequence[_ClassFolder], rendering: Rendering
) -> tuple[list[ListedImage], dict[str, str], LeftOut]:
    """Return the images, name and problem of others, and files that are no images, or masks."""
    images: list[ListedImage] = []
    problems: dict[str, str] = {}
    left_out = LeftOut()
    first_of: dict[Path, ListedImage] = {}
    for class_folder in class_folders:
        paths = left_out.images(_files(class_folder.path, rendering, left_out))
        pictures = _without_masks(paths)
        for mask in sorted(set(paths).difference(pictures)):
            left_out.reasons[mask] = "a mask beside the image whose name it begins with"
        for path in pictures:
            name = path.relative_to(folder).as_posix()
            try:
                file = locate(folder, name)
                name.encode()
            except UnicodeEncodeError:
                problems[name] = "expected a name in UTF-8, found another: rename it"
            except BadRow as problem:
                problems[name] = str(problem)
            else:
                image = ListedImage(name, name, class_folder.label, split=class_folder.split)
                _require_one_label(folder, first_of.setdefault(file, image), image)
                images.append(image)
    # Of the files beside the folders of classes, those count that could become images.
    left_out.images([path for path in _files_beside(folder, class_folders) if conversion(path)])
    return images, problems, left_out


def _require_one_label(folder: Path, first: ListedImage, image: ListedImage) -> None:
    """Raise DataError if two paths of a folder name one file, but have other labels."""
    if image.label != first.label:
        raise DataError(
            f"{folder}",
            "Remove the links.",
            expected="one label for each image",
            found=f"{first.image} ({first.label}) and {image.image} ({image.label}), which are "
            "one file",
        )


def _refuse_list(folder: Path, class_folders: Sequence[_ClassFolder]) -> None:
    """Raise DataError if a CSV in a folder lists its images: the folders may be hospitals."""
    lists = [table for table in _tables(folder) if lists_images(table, folder)]
    if not lists:
        return
    names = list(dict.fromkeys(each.label for each in class_folders if is_label(each.label)))
    remedy = f"Name the CSV: `{_cut_by(lists[0])}`, with the same options."
    if len(names) > 1:
        remedy += f" If the folders are the classes, write {option('classes', *names)}."
    folders = f"beside the folders {listed(names)}" if names else "and no folder of a class"
    raise DataError(
        f"{folder}",
        remedy,
        expected="a CSV of images, or a folder for each class",
        found=f"{listed(table.name for table in lists)}, whose rows name images of this folder, "
        f"{folders}",
    )


def _tables(folder: Path) -> list[Path]:
    """Return the CSVs directly in a folder, without those that an earlier cut has written."""
    return [
        path
        for path in sorted(folder.glob("*.csv"))
        if path.name != LEFT_OUT_FILE and not path.with_suffix(".yaml").exists()
    ]


def _cut_by(table: Path) -> str:
    """Return how the caller cuts the images that a CSV lists, without the options."""
    if in_shell():
        return shlex.join(["fedward", "partition", f"{table}"])
    return f"fedward.partition({json.dumps(f'{table}', ensure_ascii=False)}, ...)"


def _require_classes_on_top(folder: Path, class_folders: Sequence[_ClassFolder]) -> None:
    """Raise DataError if what is below the folders of classes may be the classes.

    So it is where each of several hospitals or folds has the same folders, and no images beside.
    """
    upper = list(dict.fromkeys(class_folder.label for class_folder in class_folders))
    if len(upper) < 2:
        return
    names_below = [{path.name for path in _folders(each.path)} for each in class_folders]
    alike = all(names == names_below[0] for names in names_below)
    if len(names_below[0]) < 2 or not alike:
        return
    for class_folder in class_folders:
        if any(path.is_file() and is_image(path) for path in class_folder.path.iterdir()):
            return
    lower = sorted(names_below[0], key=natural)
    raise DataError(
        f"{folder}",
        f"If the classes are {listed(upper)}, write {option('classes', *upper)}. If they are "
        f"{listed(lower)}, list the images in a CSV, or cut the folder of each into sites.",
        expected="a folder for each class",
        found=f"the same folders ({listed(lower)}) in each of {listed(upper)}",
    )


def _without_masks(paths: Sequence[Path]) -> list[Path]:
    """Return the paths without masks that lie beside their image, as ``1_mask.png``."""
    stems = {path.parent / _stem(path) for path in paths}
    pictures = []
    for path in paths:
        stem = _MASK.sub("", _stem(path))
        if stem == _stem(path) or path.parent / stem not in stems:
            pictures.append(path)
    return pictures


def _stem(path: Path) -> str:
    """Return a file's name without its ending, which of volumes may be ``.nii.gz``."""
    return path.stem.removesuffix(".nii")


def _refuse_folders(
    folder: Path,
    class_folders: Sequence[_ClassFolder],
    images: Sequence[ListedImage],
    left_out: LeftOut,
) -> None:
    """Raise DataError for a folder with images of fewer than two classes."""
    names = sorted(path.name for path in folder.iterdir())
    found = f"{', '.join(names[:_MOST_NAMED])}" or "nothing"
    if len(names) > _MOST_NAMED:
        found += f" and {len(names) - _MOST_NAMED} more"
    if images:
        found = f"images of {images[0].label or 'none'} alone"
    remedy = "Name another folder, or a CSV."
    inside = _folders(folder)
    for place in (*inside, *(class_folder.path for class_folder in class_folders)):
        if len(inside) == 1 and len(_folders(place)) > 1:
            remedy = f"If the classes are below, name {place}."
            break
    notes = left_out.notes()
    if notes:
        formats = "" if conversions(left_out.reasons) else "Convert images to PNG."
        remedy = f"{' '.join(notes)} {remedy} {formats}".rstrip()
    raise DataError(
        f"{folder}",
        remedy,
        expected="images in a folder for each class, of two or more",
        found=found,
    )


def _folder_notes(
    folder: Path, class_folders: Sequence[_ClassFolder], rendering: Rendering
) -> list[str]:
    """Return notes of empty folders and of series."""
    notes = []
    empty = [
        class_folder.path.relative_to(folder).as_posix()
        for class_folder in class_folders
        if not any(map(is_image, files_below(class_folder.path)))
    ]
    if empty:
        notes.append(f"Folders without an image, which are no classes: {listed(empty)}.")
    series = sum(_series_in(class_folder.path) for class_folder in class_folders)
    if series:
        meaning = f"has as many images: if they are CT or MR series, give {option('slices')}"
        if rendering.slices:
            meaning = "is one volume"
        notes.append(f"Folders with several DICOM files: {series}. Each {meaning}.")
    return notes


def _doubts(folder: Path, beside: int, used: int) -> list[str]:
    """Return what lies in the folder and is not used: images beside the classes, and tables.

    Args:
        folder: of the classes.
        beside: number of images beside the classes.
        used: number of images in the folders of the classes.
    """
    doubts = []
    if beside:
        doubts.append(
            "Images that lie in no folder of a class and are left out: "
            f"{beside} of {beside + used}."
        )
    for table in _tables(folder):
        doubts.append(
            f"{table.name} is not read. If it lists the images, cut by it: "
            f"`{_cut_by(table)}`, with the same options."
        )
    return doubts


def _with_meaning(image: ListedImage, choices: LabelChoices) -> ListedImage:
    """Return an image with the class that its folder's name means."""
    return replace(image, label="".join(choices.decided([image.label])))


def _files_beside(folder: Path, class_folders: Sequence[_ClassFolder]) -> list[Path]:
    """Return the files that lie directly in the folder, or in that of a split."""
    places = {folder, *(class_folder.path.parent for class_folder in class_folders)}
    return sorted(
        path for place in places for path in place.iterdir() if is_file_or_unreachable(path)
    )


def _class_folders(folder: Path) -> Iterator[_ClassFolder]:
    """Yield the folders of the classes, in natural order.

    Raises:
        DataError: some folders are called as splits and others are not.
    """
    inside = _folders(folder)
    splits = [path for path in inside if split_named(path.name)]
    if splits and len(splits) < len(inside):
        raise DataError(
            f"{folder}",
            "Rename folders of splits to train, val and test. Move the others elsewhere, or into "
            "these.",
            expected="a folder for each class, or folders of splits alone, as train and test",
            found=f"{', '.join(path.name for path in inside):.200}",
        )
    in_classes = [path for class_folder in inside for path in _folders(class_folder)]
    if in_classes and all(split_named(path.name) for path in in_classes):
        for path in in_classes:
            yield _ClassFolder(_label(path.parent), split_named(path.name), path)
    elif splits:
        for split_folder in inside:
            split = split_named(split_folder.name)
            for path in _folders(split_folder):
                yield _ClassFolder(_label(path), split, path)
    else:
        for path in inside:
            yield _ClassFolder(_label(path), "", path)


def _label(class_folder: Path) -> str:
    """Return the label that the name of a folder is."""
    return composed(class_folder.name.strip())


def _files(class_folder: Path, rendering: Rendering, left_out: LeftOut) -> list[Path]:
    """Return the files of a class; where volumes are wanted, a series is its folder."""
    files = left_out.files_below(class_folder)
    return volumes_in(files, single_images=class_folder) if rendering.slices else files


def _series_in(class_folder: Path) -> int:
    """Return the number of folders below a class's that hold a series."""
    return sum(path.is_dir() for path in volumes_in(files_below(class_folder), class_folder))


def _folders(folder: Path) -> list[Path]:
    """Return the folders in a folder that are not hidden, in natural order."""
    folders = [path for path in folder.iterdir() if path.is_dir() and not is_hidden(path)]
    return sorted(folders, key=lambda path: natural(path.name))

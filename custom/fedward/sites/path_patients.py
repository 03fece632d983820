"""Patients that paths of images name, as ``patient00001/study1/view1_frontal.jpg`` does."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import PurePosixPath

from fedward.sites.patient_names import patient_names
from fedward.sites.patient_words import PATIENT_WORDS, are_of_few
from fedward.sites.split import split_named

_WORDS = "|".join([*(f"{word}s?" for word in sorted(PATIENT_WORDS)), "sub"])
"""Words before the number of a patient, or of what is as good as one."""
_FEWEST_FOLDERS = 5
_NUMBER = r"(?:\d[0-9a-z]*|[ _.-]+\(?[a-z]{0,2}\d[0-9a-z]*\)?)"
_IN_NAME = re.compile(rf"(?:^|[ _.-])((?:{_WORDS}){_NUMBER}|p\d{{4,}})(?=[ _.-]|$)", re.IGNORECASE)
"""A patient in the name of a folder or file, such as ``sub-01`` in ``sub-01_T1w``."""


def patients_in_paths(paths: Sequence[str], labels: Sequence[str] = ()) -> Sequence[str]:
    """Return the patient that each path names; empty where it names none.

    The deepest folder that is called as a patient counts, or else the file's name. Patients of one
    name in different folders are different, except in folders of splits and of labels: those that
    are called as their images' label, or lie at a depth at which each label has one folder. Of
    several spellings (:func:`fedward.sites.patient_names.patient_names`) one is returned. All are
    empty if fewer than two patients are named, or each has a single image.

    Args:
        paths: of the images, with slashes.
        labels: of the images, whose folders may be named so; empty: there are none.
    """
    words = labels or [""] * len(paths)
    depths = _depths_of_labels(paths, words)
    in_folders = _in_one_spelling(
        _in_folders(path, label, depths) for path, label in zip(paths, words, strict=True)
    )
    patients = in_folders if _tells(in_folders) else _in_one_spelling(map(_in_file, paths))
    return patients if _tells(patients) else [""] * len(paths)


def patients_in_paths_note(paths: Sequence[str], groups: Collection[str]) -> list[str]:
    """Return a note of patients that paths name where no images stay together; else nothing.

    Args:
        paths: of a site's images.
        groups: what images stay together with; as many as paths where each stands alone.
    """
    patients = set(patients_in_paths(paths)) - {""}
    if len(set(groups)) < len(paths) or not patients:
        return []
    return [
        f"Paths seem to name {len(patients)} patients, such as {min(patients)}, and no column says "
        "so. Images of one patient may be in training and in test, and the numbers too good. Give "
        "the CSV a column of patients, and name it: columns: {group: NAME}."
    ]


def folders_of_few(paths: Sequence[str], labels: Sequence[str]) -> list[str]:
    """Return the folders of images if each may be a patient's, whatever they are called; else none.

    They are five or more and more than twice the classes, and hold 2 to 20 images on average.

    Args:
        paths: of the images, with slashes.
        labels: of the images.
    """
    folders = [f"{PurePosixPath(path).parent}" for path in paths]
    different = sorted(set(folders))
    few = len(different) < max(_FEWEST_FOLDERS, 2 * len(set(labels)) + 1)
    mean = len(paths) / max(1, len(different))
    return different if not few and mean >= 2 and are_of_few(folders) else []


def _in_one_spelling(patients: Iterable[str]) -> Sequence[str]:
    """Return the patients of images, each in one of its spellings."""
    return patient_names(list(patients)).of_rows


def _tells(patients: Sequence[str]) -> bool:
    """Return whether two patients or more are named, and one of them several times."""
    counts = Counter(patient for patient in patients if patient)
    return len(counts) > 1 and max(counts.values()) > 1


def _depths_of_labels(paths: Sequence[str], labels: Sequence[str]) -> set[int]:
    """Return the depths, from 0 at the top, at which each label has one folder of its own.

    The folder ``cov`` may hold the images whose label is COVID-19 in a table.
    """
    folders = [PurePosixPath(path).parts[:-1] for path in paths]
    depths = set()
    for depth in range(min(map(len, folders), default=0)):
        pairs = {(above[depth], label) for above, label in zip(folders, labels, strict=True)}
        different_folders = {folder for folder, _ in pairs}
        if len(different_folders) == len(pairs) == len(set(labels)) > 1:
            depths.add(depth)
    return depths


def _in_folders(path: str, label: str, depths_of_labels: Collection[int]) -> str:
    """Return the patient of the deepest folder that names one, below the folders above it."""
    upper = PurePosixPath(path).parts[:-1]
    for depth in range(len(upper) - 1, -1, -1):
        match = _IN_NAME.search(upper[depth])
        if match:
            above = [
                part
                for place, part in enumerate(upper[:depth])
                if not split_named(part) and part.strip() != label and place not in depths_of_labels
            ]
            return "/".join([*above, match[1]])
    return ""


def _in_file(path: str) -> str:
    """Return the patient that the name of a file names, below its folders."""
    *upper, name = PurePosixPath(path).parts
    match = _IN_NAME.search(name.partition(".")[0])
    if not match:
        return ""
    return "/".join([*(part for part in upper if not split_named(part)), match[1]])

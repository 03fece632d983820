"""Pictures and patients in several splits, and pictures with several labels, at any sites."""

import hashlib
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedward.labels import NO_FINDING, SEPARATOR, Labels
from fedward.sites.data import Images, SiteData
from fedward.sites.decoding import Pixels
from fedward.sites.files import is_dicom, is_series
from fedward.sites.headers import dicom_patients
from fedward.text import count

_MOST_NAMED = 3
"""Pictures with several labels that a note names."""


class Place(NamedTuple):
    """Where an image is."""

    site: str
    split: str
    """``train``, ``val`` or ``test``."""
    sample: str
    """The image's id at its site."""
    label: str = ""
    """What the image shows, in words; empty where no label is seen."""
    patient: str = ""
    """Whose a DICOM file is, where a column of the site that is called as of patients says so."""


class Seen(NamedTuple):
    """The images of several sites, for leaks between them."""

    pictures: list[tuple[bytes, Place]]
    """Hash and place of each image."""
    dicom: list[tuple[Path, Place]]
    """DICOM file and place of each image that is of one."""
    tests: list[tuple[Labels, Sequence[str]]]
    """Labels of each site's test images, and what is evaluated as one, as in :class:`Images`."""


def digest(pixels: Pixels) -> bytes:
    """Return a hash of one image's pixels, as the network sees them."""
    return hashlib.sha256(np.ascontiguousarray(pixels).tobytes()).digest()


def sets_of(data: SiteData) -> dict[str, Images]:
    """Return the sets that a site's images are divided into, by their names in reports."""
    return {
        "labelled": data.labelled,
        "unlabelled": data.unlabelled,
        "val": data.val,
        "test": data.test,
    }


def split_of(set_name: str) -> str:
    """Return the split that one of the sets of :func:`sets_of` belongs to."""
    return set_name if set_name in ("val", "test") else "train"


def pictures(data: SiteData) -> Iterator[tuple[bytes, Place]]:
    """Yield the hash and the place of each image of a site."""
    for name, images in sets_of(data).items():
        for sample, pixels, label in zip(images.ids, images.pixels, images.labels, strict=True):
            shown = _in_words(label, data.classes)
            yield digest(pixels), Place(data.site, split_of(name), sample, shown)


def _in_words(label: np.integer[Any] | Labels, classes: Sequence[str]) -> str:
    """Return the classes that a label shows; empty for none that is known."""
    if np.min(label) < 0:
        return ""
    if isinstance(label, np.ndarray):
        shown = [name for name, value in zip(classes, label, strict=True) if value]
        return SEPARATOR.join(shown) or NO_FINDING
    return classes[int(label)]


def dicom_images(
    data: SiteData, files: Mapping[str, Path], patient_of: Mapping[str, str]
) -> Iterator[tuple[Path, Place]]:
    """Yield the file and the place of each image of a site that is of a DICOM file.

    A file of several images is yielded once for each split that has one of them.

    Args:
        data: the site's images.
        files: sample id -> its file of any kind, or folder of a series.
        patient_of: sample id -> whose it is, or an empty text.
    """
    dicom = {sample: path for sample, path in files.items() if is_dicom(path) or is_series(path)}
    places = dict[Place, None]()
    for name, images in sets_of(data).items():
        for image in images.ids:
            sample = file_of(image, dicom)
            if sample in dicom:
                place = Place(data.site, split_of(name), sample, patient=patient_of[sample])
                places[place] = None
    for place in places:
        yield dicom[place.sample], place


def patients(images: Sequence[tuple[Path, Place]]) -> Iterator[tuple[int, Place]]:
    """Yield a number for the patient of each DICOM file, and its place.

    Files whose patient nobody knows (:func:`fedward.sites.headers.dicom_patients`) are left out.
    So are those whose patient is of several in a site's column of patients, which counts.
    """
    for number, places in _numbered(images).items():
        if not _of_several(places):
            for place in places:
                yield number, place


def several_patients_notes(images: Sequence[tuple[Path, Place]]) -> list[str]:
    """Return a note of patients of headers who are several in a column; nothing without one."""
    several = list(filter(None, map(_of_several, _numbered(images).values())))
    if not several:
        return []
    first, other = several[0][:2]
    return [
        f"Patients by DICOM headers who are several by a site's column, which counts: "
        f"{len(several)}, such as that of {first.sample} and {other.sample} ({first.site}). If "
        "these are one patient, correct the column."
    ]


def _numbered(images: Sequence[tuple[Path, Place]]) -> dict[int, list[Place]]:
    """Return number of a patient by DICOM headers -> the places of the files."""
    found = dicom_patients((path for path, _ in images), (place.site for _, place in images))
    places_of = defaultdict[int, list[Place]](list)
    for number, (_, place) in zip(found.numbers, images, strict=True):
        if number is not None:
            places_of[number].append(place)
    return places_of


def _of_several(places: Sequence[Place]) -> list[Place]:
    """Return a place of each patient whom a site's column names; none if it names one at most."""
    first_of = defaultdict[str, dict[str, Place]](dict)
    for place in places:
        if place.patient:
            first_of[place.site].setdefault(place.patient, place)
    return next((list(own.values()) for own in first_of.values() if len(own) > 1), [])


def repeated(named: Iterable[tuple[Hashable, Place]]) -> list[list[Place]]:
    """Return the places of each picture or patient that occurs more than once, in their order."""
    places_of = defaultdict[Hashable, list[Place]](list)
    for name, place in named:
        places_of[name].append(place)
    return [places for places in places_of.values() if len(places) > 1]


def contradictions(named: Iterable[tuple[bytes, Place]]) -> list[list[Place]]:
    """Return the places of each picture that is seen with several labels, once for each label.

    ``named``: hash and place of each image, of one site or of several.
    """
    found = []
    for places in repeated((name, place) for name, place in named if place.label):
        first_of_label = {place.label: place for place in reversed(places)}
        if len(first_of_label) > 1:
            firsts = set(first_of_label.values())
            found.append([place for place in places if place in firsts])
    return found


def contradiction_notes(found: Sequence[Sequence[Place]]) -> list[str]:
    """Return how many pictures have several labels, with the first; nothing without one."""
    if not found:
        return []
    examples = []
    for places in found[:_MOST_NAMED]:
        images = [
            f"{place.sample} ({place.site}, {place.split}: {place.label})" for place in places
        ]
        examples.append(" and ".join(images))
    verb = "has" if len(found) == 1 else "have"
    return [
        f"CONTRADICTION: {count(len(found), 'picture')} {verb} several labels: "
        f"{'; '.join(examples)}. Decide which is right, and correct the others or take them out"
    ]


def leak(places: Sequence[Place]) -> bool:
    """Return whether these places are in more than one split."""
    return len({place.split for place in places}) > 1


def leaks_between(
    named: Iterable[tuple[bytes, Place]], dicom: Sequence[tuple[Path, Place]]
) -> dict[str, list[list[Place]]]:
    """Return the places of each ``picture`` and each ``patient`` that is in several splits.

    Args:
        named: hash and place of each image, of one site or of several.
        dicom: DICOM file and place of each image that is of one.
    """
    repeated_of = {"picture": repeated(named), "patient": repeated(patients(dicom))}
    return {
        what: [places for places in groups if leak(places)] for what, groups in repeated_of.items()
    }


def leak_counts(
    leaks_of: Mapping[str, Sequence[Sequence[Place]]],
) -> dict[str, dict[str, int]]:
    """Return what a run records of :func:`leaks_between`: numbers of ``picture`` and ``patient``.

    They are by the names of :class:`fedward.storage.info.Leaks`. A kind without leaks is left out.
    """
    return {
        what: {
            "in_several_splits": len(leaks),
            "in_training_and_test": sum(map(_is_trained_and_tested, leaks)),
        }
        for what, leaks in leaks_of.items()
        if leaks
    }


def _is_trained_and_tested(places: Sequence[Place]) -> bool:
    return {"train", "test"} <= {place.split for place in places}


def leak_notes(leaks_of: Mapping[str, Sequence[Sequence[Place]]]) -> list[str]:
    """Return how many pictures, and how many patients, are in several splits, with an example."""
    notes = []
    for what, leaks in leaks_of.items():
        if leaks:
            first = leaks[0][0]
            other = next(place for place in leaks[0] if place.split != first.split)
            verb = "is" if len(leaks) == 1 else "are"
            notes.append(
                f"LEAK: {count(len(leaks), what)} {verb} in several of training, validation and "
                f"test, such as {first.sample} ({first.site}, {first.split}) and {other.sample} "
                f"({other.site}, {other.split}). {_consequence(leaks)}"
            )
    return notes


def _consequence(leaks: Sequence[Sequence[Place]]) -> str:
    """Return which numbers leaks make too good."""
    tested = sum(map(_is_trained_and_tested, leaks))
    if not tested:
        return "None is in training and test, but a round is chosen by numbers that are too good"
    verb = "is" if tested == 1 else "are"
    return f"{tested} {verb} in training and test: the test numbers will be too good"


def file_of(image: str, files: Mapping[str, Path]) -> str:
    """Return the sample id of an image's file: its own id, or what comes before ``#NUMBER``."""
    return image if image in files else image.rpartition("#")[0]

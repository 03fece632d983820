"""A site's half of a survey: counts of its images, in fives, and only of common classes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, compress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedward.client.respondent import Respondent
from fedward.client.site_data import DataSource
from fedward.errors import WireError
from fedward.evaluation.in_fives import (
    BRIGHTNESS,
    CONTRAST,
    MOST_SIZES,
    MOST_VALUES,
    OTHERS,
    SIDES,
    by_interval,
    by_value,
    common,
    in_fives,
    is_short,
)
from fedward.label_kinds import kind_of_labels
from fedward.protocol import answer_checks
from fedward.protocol.requests import Request, SurveyRequest
from fedward.protocol.wire import Message
from fedward.security.sums import CountedImage, ImageSet, image_set
from fedward.seeds import numpy_generator
from fedward.sites.dark_images import nearly_black
from fedward.sites.data import Images, SiteData
from fedward.sites.facts import Fact, Size, read_facts
from fedward.sites.leaks import digest
from fedward.sites.site_file import ManifestSite, NpzSite, read_site_file
from fedward.sites.split import labelled_share
from fedward.training.learner import Aborted
from fedward.views.colour import LUMA

_LUMA = np.array(LUMA, np.float32)
"""Weights of red, green and blue in a grey value, by ITU-R 601."""
_IMAGES_AT_ONCE = 1024
"""Images whose brightness is computed together."""


class SurveyClient(Respondent):
    """Answers the request of a survey at one site."""

    answers = (SurveyRequest,)

    def _work(self, request: Request, message: Message, aborted: Aborted) -> Message:
        """Return the answer to a request for a survey, checked as it may leave the site.

        Raises:
            WireError: the request carries a model, or the answer is not what may leave.
            PolicyError: counts of nearly the same images were reported before.
            DataError: the site's files cannot be used.
        """
        assert isinstance(request, SurveyRequest)
        if message.arrays:
            raise WireError(
                "request for a survey",
                "Server and sites must run the same version of fedward.",
                expected="no arrays",
                found=f"{len(message.arrays)}",
            )
        source = self.source
        # The images are read once, so that the ledger holds the set that is counted.
        data = _images_of(source)
        self.admission.grant_sums(request.run, "survey", surveyed(data))
        survey = _survey_at(source, data)
        meta = {"site": source.site, "round": request.round, "survey": survey}
        if source.file is None:
            meta["synthetic"] = True
        answer = Message(meta)
        answer_checks.check_survey_answer(answer, source.site, source.experiment.data.classes)
        return answer


def _images_of(source: DataSource) -> SiteData:
    """Return the images that a source gives, with every label of the site.

    Raises:
        ConfigError, DataError: as :meth:`fedward.client.site_data.DataSource.read`.
    """
    return source.read(class_totals=False) if source.file is None else source.whole()


def _survey_at(source: DataSource, data: SiteData) -> dict[str, Any]:
    """Return the survey of the images that were read from a source.

    Raises:
        DataError: the site's files cannot be used.
    """
    if source.file is not None:
        return survey_file(source.file, data)
    height, width, channels = data.labelled.pixels.shape[1:]
    fact = Fact(Size(width, height, channels == 1))
    facts = dict[str, Fact]()
    for images in (data.labelled, data.unlabelled, data.val, data.test):
        facts |= dict.fromkeys(images.ids, fact)
    return survey_of(data, facts)


def surveyed(data: SiteData) -> ImageSet:
    """Return the set of images that a survey of a site counts."""
    parts = (
        ("train", data.labelled),
        ("train", data.unlabelled),
        ("val", data.val),
        ("test", data.test),
    )
    return image_set(
        chain.from_iterable(counted_images(images, data.classes, split) for split, images in parts)
    )


def counted_images(
    images: Images, classes: Sequence[str], split: str = "train"
) -> Iterator[CountedImage]:
    """Yield images as the ledger of sums compares them.

    A class counts by its name, which a site's files decide. Its place among the classes is the
    job's choice.

    Args:
        images: images with one label each, or none.
        classes: the job's names of classes.
        split: the split that the images are in.
    """
    # Patients are named whether or not the job evaluates by patient.
    owners = images.patients or images.ids
    for name, pixels, label, owner in zip(
        images.ids, images.pixels, images.labels.tolist(), owners, strict=True
    ):
        # An image without a patient is the same once another one has a patient.
        patient = "" if owner in (name, name.rpartition("#")[0]) else owner
        # The length says where the patient ends.
        owned = f"{len(patient)} {patient}"
        yield CountedImage(
            cell=f"{split} {classes[label]}" if label >= 0 else split,
            name=f"{owned} {name}",
            content=owned.encode() + np.ascontiguousarray(pixels).tobytes(),
        )


def survey_file(site_file: Path, whole: SiteData) -> dict[str, Any]:
    """Return the survey of the images that a site file describes.

    Args:
        site_file: describes the images.
        whole: these images with every label of the site, also those that ``labelled`` in its file
            hides.

    Raises:
        DataError: the site's files cannot be used.
    """
    file = read_site_file(site_file)
    columns = file.survey_columns if isinstance(file, ManifestSite) else ()
    facts = read_facts(file, whole.classes, kind_of_labels(whole.labelled.labels))
    return survey_of(_as_trained(file, whole, facts), facts, columns)


def _as_trained(
    file: ManifestSite | NpzSite, whole: SiteData, facts: Mapping[str, Fact]
) -> SiteData:
    """Return the images without those of rare classes, and without labels that the site hides.

    Rare classes are removed first. In the other order a hidden label would let an image of a rare
    class pass for an unlabelled one.
    """
    if file.labelled == 1.0:
        return whole
    labelled = _of_common_classes(whole.labelled, facts)
    label_of_file: dict[str, int] = {}
    for name, label in zip(labelled.ids, labelled.labels.tolist(), strict=True):
        label_of_file[_file_of(name, facts)] = label
    if isinstance(file.labelled, float):
        # The share is drawn among files, because the frames of a file have one label together.
        rng = numpy_generator(file.split.seed, "labelled")
        labels = np.array(list(label_of_file.values()), np.int64)
        is_used = labelled_share(labels, file.labelled, rng)
        used_files = set(compress(label_of_file, is_used))
    else:
        used_files = set(file.labelled)
    visible_labels = {}
    for name in labelled.ids:
        file_name = _file_of(name, facts)
        if file_name in used_files:
            visible_labels[name] = label_of_file[file_name]
    return replace(whole, labelled=labelled).with_labels(visible_labels)


def survey_of(
    data: SiteData, facts: Mapping[str, Fact], columns: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the fields of :class:`~fedward.protocol.messages.SurveyCounts` of a site, as JSON.

    Images of a class that fewer than five patients have in a split are in no count, and so are
    unlabelled ones: the survey is the same for 0 to 4 of them. Where the site does not say whose
    images are, each file counts as a patient. All counts of the others are multiples of five; see
    :mod:`fedward.evaluation.in_fives`.

    Args:
        data: the site's images. Brightness is the mean and contrast the standard deviation of an
            image's grey values from 0 to 1, as the job decodes it.
        facts: sample id of a file -> what else the site's files say of its images; it may be
            missing for some.
        columns: names of the columns whose values are in ``facts``.
    """
    labelled = _of_common_classes(data.labelled, facts)
    unlabelled = _of_common_classes(data.unlabelled, facts)
    val = _of_common_classes(data.val, facts)
    test = _of_common_classes(data.test, facts)
    sets = (labelled, unlabelled, val, test)
    splits = ([labelled, unlabelled], [val], [test])
    names = [name for images in sets for name in images.ids]
    fact_of_image = [_fact(name, facts) for name in names]
    owners = _owners(names, facts)
    sizes = list[Size]()
    owners_of_sizes = list[str]()
    for fact, owner in zip(fact_of_image, owners, strict=True):
        if fact.size:
            sizes.append(fact.size)
            owners_of_sizes.append(owner)
    colours = ["grey" if size.grey else "colour" for size in sizes]
    counts_of_colours = by_value(colours, owners_of_sizes, 2)
    shorter_sides = np.array([min(size.width, size.height) for size in sizes], np.float64)
    levels = np.concatenate([_brightness_and_contrast(images.pixels) for images in sets])
    counts_of_columns = {}
    for place, column in enumerate(columns):
        if is_short(column):
            values = [fact.told[place] if fact.told else "" for fact in fact_of_image]
            counts_of_columns[column] = by_value(values, owners, MOST_VALUES)
    classes = len(data.classes)
    return {
        "labelled": _by_class(labelled, classes),
        "val": _by_class(val, classes),
        "test": _by_class(test, classes),
        "unlabelled": in_fives(len(unlabelled)),
        "patients": _patients(splits, facts),
        "sizes": _sizes(sizes, owners_of_sizes),
        "sides": by_interval(shorter_sides, SIDES),
        "grey": counts_of_colours.get("grey", 0),
        "colour": counts_of_colours.get("colour", 0),
        "brightness": by_interval(levels[:, 0], BRIGHTNESS),
        "contrast": by_interval(levels[:, 1], CONTRAST),
        "dark": in_fives(sum(int(nearly_black(images.pixels).sum()) for images in sets)),
        "repeated": in_fives(_repeated(splits)),
        "columns": counts_of_columns,
    }


def _of_common_classes(images: Images, facts: Mapping[str, Fact]) -> Images:
    """Return the images of classes that five patients or more have.

    To have no label counts as a class.
    """
    labels = images.labels.tolist()
    common_labels = common(labels, _owners(images.ids, facts))
    if common_labels.issuperset(labels):  # a copy may be large
        return images
    return images.taken(np.flatnonzero([label in common_labels for label in labels]))


def _owners(names: Sequence[str], facts: Mapping[str, Fact]) -> list[str]:
    """Return whose each image is: a patient's, or else its file's own."""
    return [_fact(name, facts).group or _file_of(name, facts) for name in names]


def _fact(name: str, facts: Mapping[str, Fact]) -> Fact:
    """Return what the site's files say of an image; an empty fact if they say nothing."""
    return facts.get(_file_of(name, facts), Fact())


def _file_of(name: str, facts: Mapping[str, Fact]) -> str:
    """Return the sample id of the file that an image is of.

    It is the image's own, or what comes before the number of its frame.
    """
    if name in facts or "#" not in name:
        return name
    return name.rpartition("#")[0]


def _by_class(images: Images, classes: int) -> list[int]:
    """Return the number of labelled images of each class, in fives."""
    return [in_fives(int(count)) for count in np.bincount(images.labels, minlength=classes)]


def _patients(splits: Sequence[Sequence[Images]], facts: Mapping[str, Fact]) -> list[int]:
    """Return the number of patients in each split, in fives; [] if the site names no patient."""
    patients = []
    for split in splits:
        groups = {_fact(name, facts).group for images in split for name in images.ids}
        patients.append(groups - {""})
    if not any(patients):
        return []
    return [in_fives(len(groups)) for groups in patients]


def _sizes(sizes: Sequence[Size], owners: Sequence[str]) -> list[dict[str, int]]:
    """Return the commonest sizes with their numbers of images, the commonest first."""
    texts = [f"{size.width} {size.height}" for size in sizes]
    counts = by_value(texts, owners, MOST_SIZES)
    reported = []
    for text, images in sorted(counts.items(), key=lambda pair: -pair[1]):
        if text != OTHERS:
            width, height = map(int, text.split())
            reported.append({"width": width, "height": height, "images": images})
    return reported


def _brightness_and_contrast(pixels: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Return mean and standard deviation of the grey values of images (N, H, W, C), (N, 2)."""
    parts = [np.zeros((0, 2))]
    for start in range(0, len(pixels), _IMAGES_AT_ONCE):
        images = pixels[start : start + _IMAGES_AT_ONCE].astype(np.float32) / 255
        grey = images @ _LUMA if images.shape[-1] == len(_LUMA) else images[..., 0]
        values = grey.reshape(len(grey), -1).astype(np.float64)
        parts.append(np.stack([values.mean(axis=1), values.std(axis=1)], axis=1))
    return np.concatenate(parts)


def _repeated(splits: Sequence[Sequence[Images]]) -> int:
    """Return how many validation and test images are also in an earlier split.

    Images are compared pixel by pixel, as decoded.
    """
    earlier = set[bytes]()
    repeated = 0
    for split in splits:
        hashes = [digest(image) for images in split for image in images.pixels]
        repeated += sum(image_hash in earlier for image_hash in hashes)
        earlier.update(hashes)
    return repeated

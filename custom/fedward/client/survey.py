"""What a site tells in a survey: counts of its images, in fives, of common classes alone."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import chain, compress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedward.client.admission import Admission
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
from fedward.protocol import wire_checks
from fedward.protocol.requests import SurveyRequest
from fedward.protocol.wire import Message
from fedward.security.sums import ImageSet, image_set
from fedward.seeds import numpy_generator
from fedward.sites.data import Images, SiteData
from fedward.sites.facts import Fact, Size, read_facts
from fedward.sites.site_file import ManifestSite, NpzSite, read_site_file
from fedward.sites.split import labelled_share

_GREY = np.array([0.299, 0.587, 0.114], np.float32)
"""ITU-R 601, as where a colour image becomes a grey one."""
_AT_ONCE = 1024
"""Images whose brightness is computed together."""


def answer_survey(
    asked: SurveyRequest, request: Message, source: DataSource, admission: Admission
) -> Message:
    """Return the answer to a request for a survey, checked as it may leave the site.

    Args:
        asked: what the request says; the site's policy has admitted it.
        request: the message, which must carry no arrays.
        source: of the site's images, which are read now.
        admission: notes that the counts of these images are told.

    Raises:
        WireError: the request carries a model, or the answer is not what may leave.
        PolicyError: counts of nearly the same images were told before.
        DataError: the site's files cannot be used.
    """
    if request.arrays:
        raise WireError(
            "request for a survey",
            expected="no arrays",
            found=f"{len(request.arrays)}",
            remedy="Server and sites must run the same version of fedward.",
        )
    admission.grant_sums(asked.run, "survey", surveyed(source))
    meta = {"site": source.site, "round": asked.round, "survey": survey_at(source)}
    if source.file is None:
        meta["synthetic"] = True
    answer = Message(meta)
    wire_checks.check_survey_answer(answer, source.site, source.experiment.data.classes)
    return answer


def survey_at(source: DataSource) -> dict[str, Any]:
    """Return the survey of the images that a source gives; raises as its :meth:`~DataSource.read`
    does.
    """
    file = source.file
    if file is None:
        data = source.read(class_totals=False)
        height, width, channels = data.labelled.pixels.shape[1:]
        ids = (
            name
            for images in (data.labelled, data.unlabelled, data.val, data.test)
            for name in images.ids
        )
        return survey_of(data, dict.fromkeys(ids, Fact(Size(width, height, channels == 1))))
    return survey_file(file, source.whole())


def surveyed(source: DataSource) -> ImageSet:
    """Return the set of images that a survey of a source tells of; raises as :func:`survey_at`
    does.
    """
    data = source.read(class_totals=False) if source.file is None else source.whole()
    splits = {"train": (data.labelled, data.unlabelled), "val": (data.val,), "test": (data.test,)}
    return image_set(
        chain.from_iterable(
            hashable(images, name) for name, parts in splits.items() for images in parts
        )
    )


def hashable(images: Images, split: str = "train") -> Iterator[tuple[str, bytes, bytes]]:
    """Yield of each image its id, its pixels, and what else sums tell of it: its label, its split,
    whose it is.
    """
    owners = images.groups or ("",) * len(images)
    for name, pixels, label, owner in zip(
        images.ids, images.pixels, images.labels, owners, strict=True
    ):
        yield (
            name,
            np.ascontiguousarray(pixels).tobytes(),
            f"{split} {label.tolist()} {owner}".encode(),
        )


def survey_file(site_file: Path, whole: SiteData) -> dict[str, Any]:
    """Return the survey of the images that a site file describes; DataError where its files cannot
    be used.

    ``whole``: these, with every label that the site has, also those that its ``labelled`` hides.
    """
    file = read_site_file(site_file)
    columns = file.survey_columns if isinstance(file, ManifestSite) else ()
    facts = read_facts(file, whole.classes, kind_of_labels(whole.labelled.labels))
    return survey_of(_as_trained(file, whole, facts), facts, columns)


def _as_trained(
    file: ManifestSite | NpzSite, whole: SiteData, facts: Mapping[str, Fact]
) -> SiteData:
    """Return the images without those of rare classes, then hide the labels that the site does not
    use.

    In the other order a hidden label would let an image of a rare class pass for an unlabelled one.
    """
    if file.labelled == 1.0:
        return whole
    common_ones = _common(whole.labelled, facts)
    files = {
        _file_of(name, facts): label
        for name, label in zip(common_ones.ids, common_ones.labels, strict=True)
    }
    if isinstance(file.labelled, float):
        rng = numpy_generator(file.split.seed, "labelled")
        used = {
            *compress(
                files, labelled_share(np.array([*files.values()], np.int64), file.labelled, rng)
            )
        }
    else:
        used = set(file.labelled)
    seen = {
        name: int(files[of]) for name in common_ones.ids if (of := _file_of(name, facts)) in used
    }
    return replace(whole, labelled=common_ones).with_labels(seen)


def survey_of(
    data: SiteData, facts: Mapping[str, Fact], columns: Sequence[str] = ()
) -> dict[str, Any]:
    """Return what :class:`~fedward.protocol.messages.SurveyCounts` says of a site, as JSON.

    Images of a class that fewer than five patients have in a split are in no count, and so are
    unlabelled ones: the survey is the same for 0 to 4 of them. Where the site does not say whose
    images are, each file counts as a patient. All counts of the others are multiples of five; see
    :mod:`fedward.evaluation.in_fives`.

    Args:
        data: the site's images. Brightness is the mean and contrast the standard deviation of an
            image's grey values from 0 to 1, as the job decodes it.
        facts: sample id of a file -> what the site's files say of its images besides; it may be
            missing for some.
        columns: names of those in ``facts``.
    """
    sets = {
        name: _common(getattr(data, name), facts)
        for name in ("labelled", "unlabelled", "val", "test")
    }
    splits = ([sets["labelled"], sets["unlabelled"]], [sets["val"]], [sets["test"]])
    names = [name for images in sets.values() for name in images.ids]
    known = [_fact(name, facts) for name in names]
    owners = _owners(names, facts)
    sized = [(fact.size, owner) for fact, owner in zip(known, owners, strict=True) if fact.size]
    kinds = by_value(
        ["grey" if size.grey else "colour" for size, _ in sized], [owner for _, owner in sized], 2
    )
    levels = np.concatenate([_levels(images.pixels) for images in sets.values()])
    patients = [
        {fact.group for images in split for fact in _facts(images, facts)} - {""}
        for split in splits
    ]
    return {
        **{name: _by_class(sets[name], len(data.classes)) for name in ("labelled", "val", "test")},
        "unlabelled": in_fives(len(sets["unlabelled"])),
        "patients": [in_fives(len(groups)) for groups in patients] if any(patients) else [],
        "sizes": _sizes(sized),
        "sides": by_interval(np.array([min(size[:2]) for size, _ in sized], np.float64), SIDES),
        **{kind: kinds.get(kind, 0) for kind in ("grey", "colour")},
        "brightness": by_interval(levels[:, 0], BRIGHTNESS),
        "contrast": by_interval(levels[:, 1], CONTRAST),
        "repeated": in_fives(_repeated(splits)),
        "columns": {
            name: by_value(
                [fact.told[place] if fact.told else "" for fact in known], owners, MOST_VALUES
            )
            for place, name in enumerate(columns)
            if is_short(name)
        },
    }


def _common(images: Images, facts: Mapping[str, Fact]) -> Images:
    """Return the images of the classes, no class being one of them, that five patients or more
    have.
    """
    kept = common(labels := images.labels.tolist(), _owners(images.ids, facts))
    if kept.issuperset(labels):  # a copy may be large
        return images
    return images.taken(np.flatnonzero([label in kept for label in labels]))


def _owners(names: Sequence[str], facts: Mapping[str, Fact]) -> list[str]:
    """Return whose each image is: a patient's, else its file's own."""
    return [_fact(name, facts).group or _file_of(name, facts) for name in names]


def _facts(images: Images, facts: Mapping[str, Fact]) -> list[Fact]:
    return [_fact(name, facts) for name in images.ids]


def _fact(name: str, facts: Mapping[str, Fact]) -> Fact:
    return facts.get(_file_of(name, facts), Fact())


def _file_of(name: str, facts: Mapping[str, Fact]) -> str:
    """Return the sample id of the file that an image is of: itself, or what comes before the number
    of its frame.
    """
    return name if name in facts or "#" not in name else name.rpartition("#")[0]


def _by_class(images: Images, classes: int) -> list[int]:
    return [in_fives(int(count)) for count in np.bincount(images.labels, minlength=classes)]


def _sizes(sized: Sequence[tuple[Size, str]]) -> list[dict[str, int]]:
    """Return the commonest sizes, the commonest first."""
    texts = [f"{size.width} {size.height}" for size, _ in sized]
    owners = [owner for _, owner in sized]
    counts = sorted(by_value(texts, owners, MOST_SIZES).items(), key=lambda pair: -pair[1])
    told = [(*map(int, text.split()), images) for text, images in counts if text != OTHERS]
    return [dict(zip(("width", "height", "images"), each, strict=True)) for each in told]


def _levels(pixels: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Return mean and standard deviation of the grey values of each image (N, H, W, C), as (N, 2)."""
    found = [np.zeros((0, 2))]
    for start in range(0, len(pixels), _AT_ONCE):
        part = pixels[start : start + _AT_ONCE].astype(np.float32) / 255
        grey = part @ _GREY if part.shape[-1] == len(_GREY) else part[..., 0]
        flat = grey.reshape(len(grey), -1).astype(np.float64)
        found.append(np.stack([flat.mean(axis=1), flat.std(axis=1)], axis=1))
    return np.concatenate(found)


def _repeated(splits: Sequence[Sequence[Images]]) -> int:
    """Return how many validation and test images are also, pixel by pixel as decoded, in an earlier
    split.
    """
    seen = set[bytes]()
    again = 0
    for split in splits:
        here = [sha256(image.tobytes()).digest() for images in split for image in images.pixels]
        again += sum(image in seen for image in here)
        seen.update(here)
    return again

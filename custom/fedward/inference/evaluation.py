"""Evaluates a model on one site's labelled images, and returns aggregates only."""

import logging
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedward.code_version import code_version
from fedward.config import DataSpec
from fedward.errors import ConfigError, DataError, UnreadableJsonError, offering
from fedward.evaluation.class_groups import fold, group_places
from fedward.evaluation.evaluated_images import images_of_common_classes
from fedward.evaluation.patients import unit_answers
from fedward.evaluation.performance import answered, counted, referral
from fedward.evaluation.small_counts import (
    SMALLEST_COUNT,
    common_findings,
)
from fedward.evaluation.temperature import fit_temperature, log_loss, tempered
from fedward.inference.model import TrainedModel
from fedward.inference.prediction import answers_of, probabilities_of
from fedward.json_text import read_json_file
from fedward.label_kinds import LabelKind
from fedward.seeds import numpy_generator
from fedward.sites import Images, SiteData, load_site
from fedward.sites.assemble import require_one_label
from fedward.text import count
from fedward.training.machine import device_of, threads_limited

Split = Literal["test", "val", "train"]
FORMAT = 1
"""Version of the JSON that an evaluation writes."""

_LONGEST_EVALUATION = 100_000_000
"""The most bytes that an evaluation may have."""
_log = logging.getLogger(__name__)


def is_evaluation(file: Path) -> bool:
    """Return whether a file has what :func:`evaluate` returns, as JSON."""
    if file.stat().st_size > _LONGEST_EVALUATION:
        return False
    try:
        content = read_json_file(file)
    except UnreadableJsonError:
        return False
    return isinstance(content, dict) and {"model", "site", "split", "temperature"} <= content.keys()


@offering()
def evaluate(
    model: TrainedModel,
    site_file: Path,
    split: Split = "test",
    groups: Mapping[str, Sequence[str]] | None = None,
    unit: Literal["image", "patient"] | None = None,
) -> dict[str, Any]:
    """Return how good a model is on one split of a site's labelled images, as plain JSON values.

    The site need not have taken part in the run. Images of a class with fewer than five in the
    split are omitted before classes are grouped (:mod:`fedward.evaluation.small_counts`). For a
    multi-label model such classes are omitted, but no images. Intervals take images, or patients,
    as independent of each other.

    For the test split, a temperature is fitted on the site's validation images; a multi-label model
    has one for each class. Only the numbers under ``temperature`` use it.

    Args:
        model: returned by :func:`fedward.load_model` without a calibration.
        site_file: the site's file, which maps its labels to the classes of the model.
        split: which images are evaluated; of ``train`` those with a label.
        groups: name -> classes that count as one; by default each class counts on its own.
        unit: whether images or patients are counted; a patient's answer is the mean of the
            probabilities of the patient's images (:mod:`fedward.evaluation.patients`). By default
            the job decides.

    Raises:
        ConfigError: the groups are not made of all classes; or there are groups, or patients are
            counted, for a multi-label model.
        DataError: the site's data cannot be used, or no class has five images in the split.
    """
    classes = model.classes
    label_kind = model.label_kind
    unit = unit or model.experiment.data.evaluate_by
    if not label_kind.exclusive:
        _refuse_groups_and_patients(groups, unit)
    # Index of each class's group; without groups each class is one.
    group_of_class = group_places(groups, classes) if groups else list(range(len(classes)))
    names = list(groups) if groups else list(classes)
    spec = model.experiment.data.model_copy(update={"evaluate_by": unit})
    with tempfile.TemporaryDirectory(prefix="fedward-") as cache:
        data = _site_data(site_file, spec, Path(cache))
        images = _evaluated_images(data, split)
        evaluated_classes = label_kind.evaluated_classes(images.labels, len(classes))
        if not evaluated_classes.any():
            raise _too_few_images(data.site, split, unit, label_kind)
        probabilities = _predicted(model, data, images)
        temperature = None
        if split == "test" and label_kind.exclusive:
            temperature = _temperature(model, data, images, probabilities, group_of_class)
        elif split == "test":
            temperature = _temperatures(model, data, images, probabilities)
    scores: NDArray[np.floating]
    if label_kind.exclusive:
        scores, labels = fold(*unit_answers(probabilities, images), group_of_class)
    else:
        # The probabilities that each class is shown; those that it is not are at index 1.
        scores = probabilities[:, :, 0]
        labels = images.labels
    return {
        "format": FORMAT,
        "fedward": code_version(),
        "model": {
            "sha256": model.sha256,
            "method": model.experiment.method,
            "classes": list(classes),
        },
        "site": data.site,
        "split": split,
        "unit": unit,
        "patients_have_several_images": len(set(images.patients)) < len(images.patients),
        "groups": {name: list(members) for name, members in groups.items()} if groups else None,
        "not_evaluated": [
            name
            for name, is_evaluated in zip(classes, evaluated_classes, strict=True)
            if not is_evaluated
        ],
        **label_kind.performance(scores, labels, names, numpy_generator(0, "bootstrap")),
        "log_loss": log_loss(scores, labels) if label_kind.exclusive else None,
        "temperature": temperature,
    }


def _refuse_groups_and_patients(groups: Mapping[str, Sequence[str]] | None, unit: str) -> None:
    """Raise ConfigError if classes are grouped, or patients counted, for a multi-label model.

    There each class, at each image, is evaluated as a question of its own.
    """
    if not groups and unit == "image":
        return
    option = "--groups" if groups else f"--by {unit}"
    raise ConfigError(
        f"{option} is not for a multi-label model",
        f"Remove {option}: each class and each image is a question of its own.",
    )


def _site_data(site_file: Path, spec: DataSpec, cache: Path) -> SiteData:
    """Return a site's images, and log a warning about rows that cannot be used."""
    data = load_site(site_file, spec, cache)
    unused_rows = sum(row.counted for row in data.rejected)
    if unused_rows:
        _log.warning(
            "site %s: %s cannot be used or counted; `fedward doctor SITE_FILE` says why",
            data.site,
            count(unused_rows, "row"),
        )
    return data


def _evaluated_images(data: SiteData, split: Split) -> Images:
    """Return the images of a split that are evaluated: of ``train`` those with a label."""
    images: Images = data.labelled if split == "train" else getattr(data, split)
    require_one_label(data.site, images)
    return images_of_common_classes(images)


def _too_few_images(site: str, split: Split, unit: str, label_kind: LabelKind) -> DataError:
    """Return the error for a split in which no class has enough images."""
    wanted = f"a class with at least {SMALLEST_COUNT} labelled {unit}s"
    if label_kind.fewest_others:
        wanted += f", and {label_kind.fewest_others} without it,"
    return DataError(
        f"site {site} does not have {wanted} in its {split} split",
        "Name another split with --split, or set more images apart in the site file (split).",
    )


def _predicted(model: TrainedModel, data: SiteData, images: Images) -> NDArray[np.float32]:
    """Return probabilities (N, K), or of a multi-label model those of yes and no (N, K, 2)."""
    device = device_of(data.device, f"site {data.site}")
    predicted = probabilities_of if model.label_kind.exclusive else answers_of
    with threads_limited(data.threads):
        return predicted(model.to(device), images.pixels, device)


def _temperature(
    model: TrainedModel,
    data: SiteData,
    images: Images,
    probabilities: NDArray[np.float32],
    group_of_class: Sequence[int],
) -> dict[str, Any] | None:
    """Return the temperature that suits the validation images, and the calibration with it.

    Args:
        model: a model whose images show one class each.
        data: the site's data, with its validation images.
        images: the test images, of which the calibration is reported.
        probabilities: (N, K), the model's answers for the test images.
        group_of_class: index of each class's group.

    Returns:
        Plain JSON values; None if the validation images determine no temperature.
    """
    held_out = images_of_common_classes(data.val)
    value = fit_temperature(_predicted(model, data, held_out), held_out.labels)
    if value is None:
        return None
    scores, labels = fold(*unit_answers(tempered(probabilities, value), images), group_of_class)
    confidence = counted(scores, labels).confidence
    return {
        "value": value,
        "split": "val",
        "images": len(held_out),
        "calibration_error": confidence.calibration_error,
        "log_loss": log_loss(scores, labels),
        "referral": referral(confidence),
    }


def _temperatures(
    model: TrainedModel, data: SiteData, images: Images, probabilities: NDArray[np.float32]
) -> dict[str, Any] | None:
    """Return a temperature for each class of a multi-label model, and the calibration with it.

    Classes with too few images in the validation or test split have none. The result is None if no
    class has a temperature.
    """
    held_out = _predicted(model, data, data.val)
    by_class: dict[str, Any] = {}
    for place in np.flatnonzero(common_findings(data.val.labels) & common_findings(images.labels)):
        # Answers are (yes, no), so the index of the right answer is 0 for a class that is shown.
        right_answers = 1 - data.val.labels[:, place]
        value = fit_temperature(held_out[:, place], right_answers)
        if value is not None:
            scores = tempered(probabilities[:, place], value)[:, 0]
            shown = images.labels[:, place]
            by_class[model.classes[place]] = {"value": value, **answered(scores, shown)}
    if not by_class:
        return None
    return {"split": "val", "images": len(data.val), "classes": by_class}

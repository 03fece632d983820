"""The fields of an answer beside its arrays, as types that refuse all other fields.

Both ends read an answer's meta as one of these models before anything in it is used. Fields that
are not named here are refused, so labels, ids, paths and pixels cannot leave a site. Checks that
need the job or the request are in :mod:`fedward.protocol.answer_checks`.
"""

from typing import Annotated, Literal, TypeAlias, TypeVar

from pydantic import AfterValidator, FailFast, Field

from fedward.cards import EXPECTED_TEXT, is_card_text
from fedward.evaluation.subgroups import EXPECTED_NAME, is_group_name
from fedward.protocol.fields import Count, Expected, Few, Number, Part, Said, Sha256, Text, Whole

Split: TypeAlias = Literal["val", "test"]
"""The splits of a site's images that models are evaluated on."""
_Minutes: TypeAlias = Annotated[Number, Field(ge=0), Expected("a number of 0 or more")]

_Counts: TypeAlias = Annotated[list[Count], FailFast(), Expected("counts of 0 or more")]
_CountsByClass: TypeAlias = Annotated[list[_Counts], FailFast(), Expected("lists of counts")]


_Fives: TypeAlias = Annotated[
    int, Field(ge=0, le=10_000_000, multiple_of=5), Expected("a count in fives")
]
_ListOfFives: TypeAlias = Annotated[list[_Fives], FailFast(), Expected("counts in fives")]


def _group_name(text: str) -> str:
    if not is_group_name(text):
        raise ValueError
    return text


_GroupName: TypeAlias = Annotated[str, AfterValidator(_group_name), Expected(EXPECTED_NAME)]


def _card_text(text: str) -> str:
    if not is_card_text(text):
        raise ValueError
    return text


class MetricValue(Part):
    """One number of a model on a site's images."""

    split: Annotated[Split, Expected("val or test")]
    name: Text
    """Name of the metric; for one class of the job with the class, as in ``f1/MEL``."""
    value: Number | None
    """None if it is not defined, or not reported."""
    n: Count
    """The number of images that it was computed on."""
    classes: Annotated[list[str], Expected("names of classes")]
    """The classes among these images, as far as the site reports them."""


class SubgroupsOfColumn(Part):
    """Right answers by the groups of one column that the site's file names.

    :mod:`fedward.evaluation.subgroups` has the rule that they obey.
    """

    column: _GroupName
    groups: Annotated[list[_GroupName], FailFast(), Expected("names of groups")]
    images: _CountsByClass
    right: _CountsByClass


class Clusters(Part):
    """What images of patients are worth in intervals (:mod:`fedward.evaluation.clusters`)."""

    patients: _ListOfFives
    effective: _Counts
    all_patients: _Fives
    all_effective: Count


class BinnedCounts(Part):
    """Counts of a model's predictions on a site's test images.

    :meth:`fedward.evaluation.answer_counts.AnswerCounts.to_wire` describes each field. Lists by
    class are in the job's order. An interval or cell has no images, or five and more.
    """

    images: _Counts
    found: _Counts
    mistaken: _Counts
    cells: Annotated[list[_Counts], FailFast(), Expected("rows of two classes and their images")]
    scores: _CountsByClass
    inside: _CountsByClass
    sure: _Counts
    right: _Counts
    confidence: Annotated[list[Number], FailFast(), Expected("finite numbers")]
    subgroups: Annotated[list[SubgroupsOfColumn] | None, Said] = None
    """Set if the site's file names columns of subgroups, and its policy lets the counts out."""
    clusters: Annotated[Clusters | None, Said] = None
    """Set if the site names patients or lesions, and each image is evaluated by itself."""


_Pixels: TypeAlias = Annotated[int, Field(ge=1, le=1_000_000), Expected("a number of pixels")]


class ImageSize(Part):
    """Images of one size on disk."""

    width: _Pixels
    height: _Pixels
    images: _Fives


class SurveyCounts(Part):
    """Counts of a site's images; :func:`~fedward.client.survey.survey_of` describes them.

    Lists by class are in the job's order. The intervals are those of
    :mod:`fedward.evaluation.in_fives`.
    """

    labelled: _ListOfFives
    """Labelled training images, by class."""
    unlabelled: _Fives
    """Training images without a label."""
    val: _ListOfFives
    """Validation images, by class."""
    test: _ListOfFives
    """Test images, by class."""
    patients: _ListOfFives
    """Patients in training, validation and testing; empty if the site's file names no patients."""
    sizes: Annotated[list[ImageSize], FailFast()]
    sides: _ListOfFives
    grey: _Fives
    colour: _Fives
    brightness: _ListOfFives
    contrast: _ListOfFives
    dark: _Fives
    """Images that show next to nothing (:mod:`fedward.sites.dark_images`)."""
    repeated: _Fives
    """Validation and test images that are also in another split."""
    columns: Annotated[
        dict[str, Annotated[dict[str, _Fives], Few]], Few, Expected("counts in fives by value")
    ]


_CardText: TypeAlias = Annotated[str, AfterValidator(_card_text), Expected(EXPECTED_TEXT)]


class SiteCard(Part):
    """What a site states about its images, where its policy lets it out."""

    texts: Annotated[dict[str, _CardText], Few, Expected("texts by field")]
    """Field of :data:`fedward.cards.SITE_ITEMS` -> text."""
    unusable: _Fives
    """Rows of the site's files that cannot be used."""


class LabelCounts(Part):
    """Counts of a site's labels in active learning."""

    asked: Count
    """Images that this exchange asked for."""
    bought: Count
    """Labels that the run has received so far."""
    waiting: Count
    """Images that were asked for and have no label yet."""
    cannot_tell: Count
    """Images whose class readers could not tell."""
    unusable: Count
    """Answers that are not classes of the job, or about images that the site does not train on."""


class _Reply(Part):
    """The fields that every answer has."""

    site: Text
    round: Whole
    restarts: Count = 0
    """How often the site's process was started again."""


class ErrorAnswer(_Reply):
    """The answer of a site that has not carried out its request."""

    error: Text
    """The reason."""
    refused: Annotated[bool, Said, Expected("true")] = False
    """Whether the site's policy forbids the job, so that another request would be refused too."""
    diverged: Annotated[bool, Said, Expected("true")] = False
    """Whether the site's training diverged."""


class WaitingAnswer(_Reply):
    """The answer of a site whose administrator has not approved the job yet."""

    waiting: Sha256
    """The job's digest."""


class MeanAnswer(_Reply):
    """The answer of a site that has decrypted a sum of updates."""


class SurveyAnswer(_Reply):
    """The answer of a site that has counted its images."""

    survey: SurveyCounts
    synthetic: Annotated[bool, Said, Expected("true")] = False
    """Whether the images are drawn by fedward, instead of those that a site file names."""


class Answer(_Reply):
    """The answer of a site that has trained, evaluated a model, or both."""

    labelled: Count
    """Labelled training images."""
    unlabelled: Count
    """Training images without a label."""
    steps: Count
    """Optimiser steps."""
    train: Annotated[dict[str, Number], Few, Expected("finite numbers by name")]
    """Means of losses and other scalars of the training steps."""
    metrics: Annotated[list[MetricValue], FailFast()]
    binned: Annotated[BinnedCounts | None, Said] = None
    """Set if the model is evaluated on test images of a class that may be reported."""
    label_counts: Annotated[LabelCounts | None, Said] = None
    """Set in active learning."""
    minutes: Annotated[_Minutes | None, Said, Expected("a number of 0 or more")] = None
    """The cost of the site's labels, if its file names the cost of one."""
    synthetic: Annotated[bool, Said, Expected("true")] = False
    """Whether the images are drawn by fedward, instead of those that a site file names."""
    card: Annotated[SiteCard | None, Said] = None
    """Set if the site's policy lets its card out."""
    key: Annotated[Sha256 | None, Said] = None
    """Fingerprint of the key that the ciphertexts were made with."""


ReplyT = TypeVar("ReplyT", bound=_Reply)

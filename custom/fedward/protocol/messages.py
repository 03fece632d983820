"""What an answer says beside its arrays, as types that are closed to everything else.

Both ends read an answer's meta as one of these models before anything in it is used. What has no
name here is refused, so labels, ids, paths and pixels cannot leave a site. Checks that need the job
or the request are in :mod:`fedward.protocol.wire_checks`.
"""

from typing import Annotated, Literal, TypeAlias, TypeVar

from pydantic import FailFast, Field

from fedward.protocol.fields import Count, Expected, Few, Number, Part, Said, Sha256, Text, Whole

Split: TypeAlias = Literal["val", "test"]
"""Of a site's images, those that models are evaluated on."""
_Minutes: TypeAlias = Annotated[Number, Field(ge=0), Expected("a number of 0 or more")]

_Counts: TypeAlias = Annotated[list[Count], FailFast(), Expected("counts of 0 or more")]
_CountsByClass: TypeAlias = Annotated[list[_Counts], FailFast(), Expected("lists of counts")]


class Metric(Part):
    """One number of a model on a site's images."""

    split: Annotated[Split, Expected("val or test")]
    name: Text
    """Of a metric of all images, or of one class of the job as in ``f1/MEL``."""
    value: Number | None
    """None where it is not defined, or not reported."""
    n: Count
    """Images it was computed on."""
    classes: Annotated[list[str], Expected("names of classes")]
    """Those present among the images, as far as the site tells."""


class BinnedCounts(Part):
    """Counts of a model's answers on a site's test images;
    :class:`~fedward.evaluation.binned.Binned` says of what.

    Lists by class are in the job's order. No interval and no cell has fewer than five images,
    unless it has none.
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


_Fives: TypeAlias = Annotated[
    int, Field(ge=0, le=10_000_000, multiple_of=5), Expected("a count in fives")
]
_ListOfFives: TypeAlias = Annotated[list[_Fives], FailFast(), Expected("counts in fives")]
_Pixels: TypeAlias = Annotated[int, Field(ge=1, le=1_000_000), Expected("a number of pixels")]


class ImageSize(Part):
    """Images of one size on disk."""

    width: _Pixels
    height: _Pixels
    images: _Fives


class SurveyCounts(Part):
    """What a site's images are; :func:`~fedward.client.survey.survey_of` says what is counted.

    Lists by class are in the job's order, intervals those of :mod:`fedward.evaluation.in_fives`.
    """

    labelled: _ListOfFives
    unlabelled: _Fives
    val: _ListOfFives
    test: _ListOfFives
    """Images by class; unlabelled ones are of no class."""
    patients: _ListOfFives
    """In training, validation and testing; empty where the site does not say whose images are."""
    sizes: Annotated[list[ImageSize], FailFast()]
    sides: _ListOfFives
    grey: _Fives
    colour: _Fives
    brightness: _ListOfFives
    contrast: _ListOfFives
    repeated: _Fives
    """Validation and test images that are also in another split."""
    columns: Annotated[
        dict[str, Annotated[dict[str, _Fives], Few]], Few, Expected("counts in fives by value")
    ]


class LabelCounts(Part):
    """A site's labels under active learning."""

    asked: Count
    """Images asked about in this exchange."""
    bought: Count
    """Labels that came in the run so far."""
    waiting: Count
    """Images asked about that have no label yet."""
    cannot_tell: Count
    """Images that were looked at, and nobody could tell."""
    unusable: Count
    """Answers that are no class of the job, or about images the site does not train on."""


class _Reply(Part):
    site: Text
    round: Whole
    restarts: Count = 0
    """How often the site's process was started again."""


class ErrorAnswer(_Reply):
    """Of a site that has not done what it was asked."""

    error: Text
    refused: Annotated[bool, Said, Expected("true")] = False
    """The site's policy forbids the job, so that asking again is of no use."""


class WaitingAnswer(_Reply):
    """Of a site whose administrator has not approved the job yet."""

    waiting: Sha256
    """The job's digest."""


class MeanAnswer(_Reply):
    """Of a site that has decrypted a sum of updates."""


class SurveyAnswer(_Reply):
    """Of a site that has counted what its images are."""

    survey: SurveyCounts
    synthetic: Annotated[bool, Said, Expected("true")] = False
    """Its images are drawn by fedward, and not those that a site file names."""


class Answer(_Reply):
    """Of a site that has trained, evaluated a model, or both."""

    labelled: Count
    unlabelled: Count
    """Training images."""
    steps: Count
    """Optimiser steps."""
    train: Annotated[dict[str, Number], Few, Expected("finite numbers by name")]
    """Means of losses and other scalars of the training steps."""
    metrics: Annotated[list[Metric], FailFast()]
    binned: Annotated[BinnedCounts | None, Said] = None
    """Where the model is evaluated and the site has test images of a class that may be told."""
    label_counts: Annotated[LabelCounts | None, Said] = None
    minutes: Annotated[_Minutes | None, Said, Expected("a number of 0 or more")] = None
    """What its labels cost, where the site's file says what one costs."""
    synthetic: Annotated[bool, Said, Expected("true")] = False
    """Its images are drawn by fedward, and not those that a site file names."""
    key: Annotated[Sha256 | None, Said] = None
    """Fingerprint of the key that the ciphertexts were made with."""


ReplyT = TypeVar("ReplyT", bound=_Reply)

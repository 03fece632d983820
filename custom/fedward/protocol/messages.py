"""What a message says beside its arrays, as types that are closed to everything else.

Both ends read a message's meta as one of these models before anything in it is used. Nothing is coerced: ``"1"``,
``True`` and ``1.0`` are no counts. What has no name here is refused, so labels, ids, paths and pixels cannot leave a
site. Checks that need the job or the request are in :mod:`fedward.protocol.wire_checks`.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    GetCoreSchemaHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import CoreSchema, ErrorDetails, core_schema

from fedward.errors import WireError
from fedward.methods.samplers import SCORE_INTERVALS
from fedward.terminal import shown

_LARGEST_COUNT = 10_000_000
"""Of images, steps or labels at one site."""
_LARGEST_NUMBER = int(np.finfo(np.float32).max)
"""Sums and squares of such numbers stay finite in float64."""
_MOST_NAMES = 50
"""In any part of a message."""
_FORMS = {"missing": "a value", "extra_forbidden": "no further name", "invalid_key": "no further name"}
_FORMS |= {"model_type": "values by name", "list_type": "a list"}
"""Kind of a fault in a message's form -> what was expected."""


class RefusedError(WireError):
    """A message is not what the wire list allows.

    ``found`` quotes it, and must not leave the site whose answer it is; ``where`` and ``expected`` quote nothing.
    """


@dataclass(frozen=True)
class _Expected:
    """Says what a value must be, in place of pydantic's own texts: some of those tell what was found."""

    text: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.custom_error_schema(handler(source), "expected", custom_error_message=self.text)


def _require(kept: bool) -> None:
    if not kept:
        raise ValueError  # without a text: none but those here may leave a site


def _few(value: Any) -> Any:
    """Refuse more names than any message has before each is looked at: describing them would fill the memory."""
    _require(not isinstance(value, dict) or len(value) <= _MOST_NAMES)
    return value


def _number(value: Any) -> Any:
    """Refuse what pydantic takes for a float because it can be made one, as arrays of one element can."""
    _require(isinstance(value, int | float))
    return value


def _said(value: Any) -> Any:
    _require(value is not None and value is not False)
    return value


_Said = AfterValidator(_said)
"""Of a field that may be left out: where it is there, it says something."""

_Few = BeforeValidator(_few)

Split: TypeAlias = Literal["val", "test"]
"""Of a site's images, those that models are evaluated on."""
_Text: TypeAlias = Annotated[str, _Expected("text")]
_Count: TypeAlias = Annotated[int, Field(ge=0, le=_LARGEST_COUNT), _Expected("a count of 0 or more")]
_Whole: TypeAlias = Annotated[int, Field(ge=-_LARGEST_COUNT, le=_LARGEST_COUNT), _Expected("a whole number")]
_Number: TypeAlias = Annotated[
    Annotated[int, Field(ge=-_LARGEST_NUMBER, le=_LARGEST_NUMBER)]
    | Annotated[float, Field(ge=-_LARGEST_NUMBER, le=_LARGEST_NUMBER, allow_inf_nan=False)],
    BeforeValidator(_number),
    _Expected("a finite number"),
]
_Minutes: TypeAlias = Annotated[_Number, Field(ge=0), _Expected("a number of 0 or more")]
_Sha256: TypeAlias = Annotated[str, Field(pattern="^[0-9a-f]{64}$"), _Expected("64 hexadecimal digits")]
_Scores: TypeAlias = Annotated[
    list[_Count],
    Field(min_length=SCORE_INTERVALS, max_length=SCORE_INTERVALS),
    _Expected(f"{SCORE_INTERVALS} counts of 0 or more"),
]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _few_names(cls, value: Any) -> Any:
        return _few(value)


class Metric(_Part):
    """One number of a model on a site's images."""

    split: Annotated[Split, _Expected("val or test")]
    name: _Text
    """Of a metric of all images, or of one class of the job as in ``f1/MEL``."""
    value: _Number | None
    """None where it is not defined, or not told."""
    n: _Count
    """Images it was computed on."""
    classes: Annotated[list[str], _Expected("names of classes")]
    """Those present among the images, as far as the site tells."""


class LabelCounts(_Part):
    """A site's labels under active learning."""

    asked: _Count
    """Images asked about in this exchange."""
    bought: _Count
    """Labels that came in the run so far."""
    waiting: _Count
    """Images that wait for a label."""
    cannot_tell: _Count
    """Images that nobody could tell."""
    unusable: _Count
    """Answers that could not be used."""


class _Reply(_Part):
    site: _Text
    round: _Whole
    restarts: _Count = 0
    """How often the site's process was started again."""


class ErrorAnswer(_Reply):
    """Of a site that has not done what it was asked."""

    error: _Text
    refused: Annotated[bool, _Said, _Expected("true")] = False
    """The site's policy forbids the job, so that asking again is of no use."""


class WaitingAnswer(_Reply):
    """Of a site whose administrator has not approved the job yet."""

    waiting: _Sha256
    """The job's digest."""


class MeanAnswer(_Reply):
    """Of a site that has decrypted a sum of updates."""


class Answer(_Reply):
    """Of a site that has trained, evaluated a model, or both."""

    labelled: _Count
    unlabelled: _Count
    """Training images."""
    steps: _Count
    """Optimiser steps."""
    train: Annotated[dict[str, _Number], _Few, _Expected("finite numbers by name")]
    """Means of losses and other scalars of the training steps."""
    metrics: Annotated[list[Metric], FailFast()]
    label_counts: Annotated[LabelCounts | None, _Said] = None
    minutes: Annotated[_Minutes | None, _Said, _Expected("a number of 0 or more")] = None
    """What its labels cost, where the site's file says what one costs."""
    scores: Annotated[_Scores | None, _Said] = None
    """How many of its images have a score in each of equal intervals."""
    due: Annotated[_Whole | None, _Said] = None
    """How many labels it would ask for next by its size."""
    key: Annotated[_Sha256 | None, _Said] = None
    """Fingerprint of the key that the ciphertexts were made with."""


PartT = TypeVar("PartT", bound=_Part)
ReplyT = TypeVar("ReplyT", bound=_Reply)


def parse(kind: type[PartT], meta: Any, where: str) -> PartT:
    """Return a message's meta as what it should be.

    Raises:
        RefusedError: it is not; ``where`` begins the place of the first fault.
    """
    try:
        return kind.model_validate(meta)
    except ValidationError as error:
        (fault, *_) = error.errors(include_url=False, include_context=False)
    raise _refused(where, fault)  # not from pydantic's error, which a log would quote


def _refused(where: str, fault: ErrorDetails) -> RefusedError:
    kind, place, found = fault["type"], fault["loc"], shown(fault["input"])
    if kind in ("extra_forbidden", "invalid_key"):
        *place, name = place  # type: ignore[assignment]
        found = shown(name)
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")
    return refusal(
        f"{where}, {path}" if path else where,
        fault["msg"] if kind == "expected" else _FORMS.get(kind, "what the wire list allows"),
        "nothing" if kind == "missing" else found,
    )


def refusal(where: str, expected: str, found: str) -> RefusedError:
    """Return the error of a message that cannot be used."""
    return RefusedError(where, expected=expected, found=found, remedy="The message is not used; see the wire list.")

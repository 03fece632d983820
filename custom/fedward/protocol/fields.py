"""The types of the fields of messages, how a message's meta is read as one, and how it is refused.

Nothing is coerced: ``"1"``, ``True`` and ``1.0`` are not counts. Unknown fields are refused.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NoReturn, TypeAlias, TypeVar

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    ValidationError,
    ValidatorFunctionWrapHandler,
    model_validator,
)
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError, core_schema

from fedward.errors import DivergedError, WireError
from fedward.terminal import shown

RUN_ID = re.compile(r"[0-9a-f]{32}")
"""The id of a run."""
_LARGEST_COUNT = 10_000_000
"""The largest number of images, steps or labels at one site."""
_LARGEST_NUMBER = int(np.finfo(np.float32).max)
"""The largest number in a message; sums and squares of such numbers stay finite in float64."""
_MOST_NAMES = 50
"""The most names in any part of a message."""
_NOT_USED = "The message is not used; see the wire list."
"""What becomes of a message that is refused."""
_EXPECTED: Literal["expected"] = "expected"
"""Type of the errors that say what a value must be."""
_EXPECTED_FORMS = {
    "missing": "a value",
    "extra_forbidden": "no further name",
    "invalid_key": "no further name",
    "model_type": "values by name",
    "list_type": "a list",
}
"""Pydantic's type of an error in a message's form -> what was expected."""


class RefusedError(WireError):
    """A message is not what the wire list allows.

    ``found`` quotes the message, and must not leave the site whose answer it is. ``problem`` and
    ``expected`` quote nothing.
    """


class DivergedUpdateError(RefusedError, DivergedError):
    """The numbers of an update are not finite, or far too large: the site's training diverged."""


@dataclass(frozen=True)
class Expected:
    """Says what a value must be.

    It replaces pydantic's own texts, because some of those quote the value that was found.
    """

    text: str

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        # Pydantic's own schema for this, `custom_error_schema`, also replaces errors that do not
        # speak of the value, such as Ctrl-C or a lack of memory during a check.
        return core_schema.no_info_wrap_validator_function(self._check, handler(source))

    def _check(self, value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            return handler(value)
        except ValidationError:
            pass
        # Raised outside of the handler: a log would quote pydantic's error as the cause.
        raise PydanticCustomError(_EXPECTED, self.text)


# The checks below raise errors without a text, because only the texts of this module may leave a
# site.


def _require_value(value: Any) -> Any:
    if value is None or value is False:
        raise ValueError
    return value


def _require_few_names(value: Any) -> Any:
    if isinstance(value, dict) and len(value) > _MOST_NAMES:
        raise ValueError
    return value


def _require_number(value: Any) -> Any:
    if not isinstance(value, int | float):
        raise ValueError
    return value


Said = AfterValidator(_require_value)
"""Refuses None and False in a field that may be omitted: if it is there, it must say something."""
Few = BeforeValidator(_require_few_names)
"""Refuses more names than any message has.

It does so before each name is checked, because the errors of all of them would fill the memory.
"""
_NUMBER = BeforeValidator(_require_number)
"""Refuses values that pydantic would convert to a float, such as arrays of one element."""

Text: TypeAlias = Annotated[str, Expected("text")]
Count: TypeAlias = Annotated[int, Field(ge=0, le=_LARGEST_COUNT), Expected("a count of 0 or more")]
Whole: TypeAlias = Annotated[
    int,
    Field(ge=-_LARGEST_COUNT, le=_LARGEST_COUNT),
    Expected(f"a whole number from -{_LARGEST_COUNT} to {_LARGEST_COUNT}"),
]
Number: TypeAlias = Annotated[
    Annotated[int, Field(ge=-_LARGEST_NUMBER, le=_LARGEST_NUMBER)]
    | Annotated[float, Field(ge=-_LARGEST_NUMBER, le=_LARGEST_NUMBER, allow_inf_nan=False)],
    _NUMBER,
    Expected("a finite number"),
]
RunId: TypeAlias = Annotated[
    str, Field(pattern=f"^{RUN_ID.pattern}$"), Expected("32 hexadecimal digits")
]
Sha256: TypeAlias = Annotated[
    str, Field(pattern="^[0-9a-f]{64}$"), Expected("64 hexadecimal digits")
]


class Part(BaseModel):
    """A message or a part of one. Unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _few_names(cls, value: Any) -> Any:
        return _require_few_names(value)


PartT = TypeVar("PartT", bound=Part)


def parse(kind: type[PartT], meta: Any, where: str) -> PartT:
    """Return a message's meta as a type of message.

    Args:
        kind: the type.
        meta: the meta part of the message.
        where: beginning of the place that an error names.

    Raises:
        RefusedError: it is not of this type; the error names the first fault.
    """
    try:
        return kind.model_validate(meta)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False)[0]
    # Raised outside of the handler: a log would quote pydantic's error as the cause.
    raise _refused(where, fault)


def _refused(where: str, fault: ErrorDetails) -> RefusedError:
    """Return the error for a fault that pydantic reports."""
    kind = fault["type"]
    place = list(fault["loc"])
    if kind == "missing":
        found = "nothing"
    elif kind in ("extra_forbidden", "invalid_key"):
        # The last part of the place is the unknown name, which only `found` may quote.
        found = shown(place.pop())
    else:
        found = shown(fault["input"])
    expected = _EXPECTED_FORMS.get(kind, "what the wire list allows")
    if kind == _EXPECTED:
        expected = fault["msg"]
    path = _path(place)
    return refusal(f"{where}, {path}" if path else where, expected, found)


def _path(place: Sequence[int | str]) -> str:
    """Return a place in a message as a text, such as ``metrics[0].name``."""
    path = ""
    for part in place:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    return path.lstrip(".")


def refusal(where: str, expected: str, found: str) -> RefusedError:
    """Return the error of a message that cannot be used."""
    return RefusedError(where, _NOT_USED, expected=expected, found=found)


def refuse(where: str, expected: str, found: str) -> NoReturn:
    """Raise :func:`refusal`."""
    raise refusal(where, expected, found)


def refuse_diverged(where: str, expected: str, found: str) -> NoReturn:
    """Refuse an update whose numbers say that the site's training diverged."""
    raise DivergedUpdateError(where, _NOT_USED, expected=expected, found=found)


def require(where: str, holds: bool, expected: str) -> None:
    """Refuse a message unless a condition holds.

    What was found may be data of a site, so that the error does not quote it.
    """
    if not holds:
        refuse(where, expected, "others")


def require_length(where: str, values: Sequence[object], length: int) -> None:
    """Refuse a message unless a list in it has so many values."""
    require(where, len(values) == length, f"{length} values")


def refuse_other_names(where: str, names: Iterable[Any], allowed: Collection[str]) -> None:
    """Raise RefusedError for names that are not among the allowed ones; none need be there."""
    unknown = sorted(str(name) for name in set(names) - set(allowed))
    if unknown:
        expected = f"only {', '.join(sorted(allowed)) or 'nothing'}"
        refuse(where, expected, f"also {', '.join(unknown)[:200]}")

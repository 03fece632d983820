"""The types of what messages say, and how a message's meta is read as one of them.

Nothing is coerced: ``"1"``, ``True`` and ``1.0`` are no counts. What has no name is refused.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias, TypeVar

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import CoreSchema, ErrorDetails, core_schema

from fedward.errors import WireError
from fedward.terminal import shown

_LARGEST_COUNT = 10_000_000
"""Of images, steps or labels at one site."""
_LARGEST_NUMBER = int(np.finfo(np.float32).max)
"""Sums and squares of such numbers stay finite in float64."""
_MOST_NAMES = 50
"""In any part of a message."""
_FORMS = {
    "missing": "a value",
    "extra_forbidden": "no further name",
    "invalid_key": "no further name",
}
_FORMS |= {"model_type": "values by name", "list_type": "a list"}
"""Kind of a fault in a message's form -> what was expected."""


class RefusedError(WireError):
    """A message is not what the wire list allows.

    ``found`` quotes it, and must not leave the site whose answer it is; ``where`` and ``expected``
    quote nothing.
    """


@dataclass(frozen=True)
class Expected:
    """Says what a value must be, in place of pydantic's own texts: some of those tell what was
    found.
    """

    text: str

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.custom_error_schema(
            handler(source), "expected", custom_error_message=self.text
        )


def _keeps(rule: Callable[[Any], bool]) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if not rule(value):
            raise ValueError  # without a text: none but those here may leave a site
        return value

    return check


Said = AfterValidator(_keeps(lambda value: value is not None and value is not False))
"""Of a field that may be left out: where it is there, it says something."""
_few = _keeps(lambda value: not isinstance(value, dict) or len(value) <= _MOST_NAMES)
Few = BeforeValidator(_few)
"""Refuses more names than any message has before each is looked at: describing them would fill the
memory.
"""
_NUMBER = BeforeValidator(_keeps(lambda value: isinstance(value, int | float)))
"""Refuses what pydantic takes for a float because it can be made one, as arrays of one element can.
"""

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
    str, Field(pattern="^[0-9a-f]{32}$"), Expected("32 hexadecimal digits")
]
Sha256: TypeAlias = Annotated[
    str, Field(pattern="^[0-9a-f]{64}$"), Expected("64 hexadecimal digits")
]


class Part(BaseModel):
    """What a message or a part of one says, and nothing else."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _few_names(cls, value: Any) -> Any:
        return _few(value)


PartT = TypeVar("PartT", bound=Part)


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
    kind = fault["type"]
    place = fault["loc"]
    found = shown(fault["input"])
    if kind in ("extra_forbidden", "invalid_key"):
        *place, name = place  # type: ignore[assignment]
        found = shown(name)
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(
        "."
    )
    return refusal(
        f"{where}, {path}" if path else where,
        fault["msg"] if kind == "expected" else _FORMS.get(kind, "what the wire list allows"),
        "nothing" if kind == "missing" else found,
    )


def refusal(where: str, expected: str, found: str) -> RefusedError:
    """Return the error of a message that cannot be used."""
    return RefusedError(
        where, expected=expected, found=found, remedy="The message is not used; see the wire list."
    )

"""What somebody has written and cannot be, in words of our own: one place for all models that check
settings and files.

pydantic finds the faults. Its texts are about programs ("Extra inputs are not permitted"), so none
of them is shown.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from pydantic import BaseModel

from fedward.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

_UNKNOWN = "extra_forbidden"
_MISSING = "missing"
_OURS = ("value_error", "assertion_error")
_PARENT = "fields of its own"
_KINDS = {
    _UNKNOWN: "no field of this name",
    _MISSING: "a value",
    **dict.fromkeys(
        ("int_type", "int_parsing", "int_parsing_size", "int_from_float"), "a whole number"
    ),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    "finite_number": "a finite number",
    "json_invalid": "JSON",
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **dict.fromkeys(("path_type", "string_type"), "text"),
    **dict.fromkeys(("list_type", "tuple_type"), "a list"),
    **dict.fromkeys(
        ("dict_type", "model_type", "model_attributes_type", "mapping_type", "dataclass_type"),
        _PARENT,
    ),
}
"""Kind of a fault -> what is expected."""
_BOUNDS = {
    "greater_than_equal": ("ge", "{:g} or more"),
    "greater_than": ("gt", "more than {:g}"),
    "less_than_equal": ("le", "{:g} or less"),
    "less_than": ("lt", "less than {:g}"),
    "too_short": ("min_length", "{} entries or more"),
    "too_long": ("max_length", "{} entries or fewer"),
    "string_pattern_mismatch": ("pattern", "text that matches {}"),
    "literal_error": ("expected", "one of {}"),
}
"""Kind of a fault -> what names its bound, and what is expected."""


class Fault(NamedTuple):
    """One thing that is wrong."""

    field: str
    """Its name, with those of what it is part of; empty for the whole."""
    expected: str
    found: str
    kind: str
    """As pydantic calls it."""

    def __str__(self) -> str:
        field = self.field or "value"
        if self.kind in _OURS:
            return f"{self.field}: {self.expected}" if self.field else self.expected
        if self.kind == _MISSING:
            return f"{field}: missing"
        if self.kind == _UNKNOWN:
            return f"{field}: unknown{self.expected.removeprefix(_KINDS[_UNKNOWN])}"
        return f"{field}: {self.found}, not {self.expected}"


def explain(
    error: "ValidationError", where: str, raw: Any, known: Iterable[str] = ()
) -> ConfigError:
    """Return a :class:`ConfigError` that lists every fault; the arguments are those of
    :func:`faults`.
    """
    found = "; ".join(map(str, faults(error, raw, known)))
    return ConfigError(
        where, expected="valid settings", found=found, remedy="Correct the named fields."
    )


def faults(error: "ValidationError", raw: Any, known: Iterable[str] = ()) -> list[Fault]:
    """Return what is wrong, one fault for each field, unknown ones first: they are why others are
    missing.

    Args:
        error: of a check of ``raw``.
        raw: what was written, as plain values or a line of JSON.
        known: names of fields there are, for one that there is not.
    """
    names = list(known)
    found = dict[str, Fault]()
    if isinstance(raw, str):
        with suppress(ValueError):
            raw = json.loads(raw)
    for item in error.errors(include_url=False):
        fault = _fault(item, raw, names)
        before = found.get(fault.field)
        if before and before.kind not in _OURS:  # a value that may be of several kinds
            fault = before._replace(expected=f"{before.expected} or {fault.expected}")
        found[fault.field] = fault
    # Where a part of a value is wrong, the value is of the right kind, whatever else it might have
    # been.
    told = [
        found[field]
        for field in found
        if not any(other.startswith(f"{field}.") for other in found if field)
    ]
    return sorted(told, key=lambda fault: fault.kind != _UNKNOWN)


def names_in(model: type[BaseModel], before: str = "") -> Iterator[str]:
    """Yield the names of a model's fields, and of the fields of their parts, with dots."""
    for name, field in model.model_fields.items():
        yield f"{before}{name}"
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from names_in(kind, f"{before}{name}.")


def _fault(item: "ErrorDetails", raw: Any, known: list[str]) -> Fault:
    field = ".".join(map(str, _path(item, raw)))
    kind = item["type"]
    value = item["input"]
    text = item["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    expected = _KINDS.get(kind, text.removeprefix("Input should be "))
    if kind in _BOUNDS:
        bound, form = _BOUNDS[kind]
        expected = form.format(item["ctx"][bound])
    if kind == "literal_error":
        expected = expected.replace("'", "") + did_you_mean(
            value, re.findall("'([^']*)'", expected)
        )
    elif kind == _UNKNOWN:
        expected += did_you_mean(field, known)
    elif kind == "string_type" and isinstance(value, bool | int | float):
        expected += " in quotes"
    absent = value in (None, "") or kind == _MISSING
    return Fault(field, expected, "nothing" if absent else f"{value!r:.80}", kind)


def _path(item: "ErrorDetails", raw: Any) -> Iterator[str | int]:
    """Yield where a fault is in ``raw``. Where a value may be of several kinds, pydantic's path
    also names the kind.
    """
    here = raw
    last = len(item["loc"]) - 1
    for place, part in enumerate(item["loc"]):
        listed = isinstance(here, list | tuple) and isinstance(part, int) and part < len(here)
        if listed or (isinstance(here, Mapping) and part in here):
            here = here[part]
            yield part
        elif place == last and (item["type"] == _MISSING or item["input"] is not here):
            yield part

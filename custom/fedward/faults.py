"""Descriptions of wrong values in settings and files, for all pydantic models that check them.

pydantic finds the faults. Its texts address programmers ("Extra inputs are not permitted"), so none
of them is shown.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from pydantic import BaseModel

from fedward.errors import ConfigError, UnreadableJsonError, did_you_mean
from fedward.json_text import read_json

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

_UNKNOWN = "extra_forbidden"
_MISSING = "missing"
_NO_DEFAULT = "default_factory_not_called"
"""A default follows from other fields, one of which is wrong: that one has a fault of its own."""
_OWN_TEXT = ("value_error", "assertion_error")
"""Kinds of faults whose text is that of our own validators."""
_MAPPING = "fields of its own"
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
        _MAPPING,
    ),
}
"""pydantic's kind of a fault -> the value that is expected."""
_BOUNDS = {
    "greater_than_equal": ("ge", "{:g} or more"),
    "greater_than": ("gt", "more than {:g}"),
    "less_than_equal": ("le", "{:g} or less"),
    "less_than": ("lt", "less than {:g}"),
    "too_short": ("min_length", "{} entries or more"),
    "too_long": ("max_length", "{} entries or fewer"),
    "string_too_short": ("min_length", "text of {} or more characters"),
    "string_too_long": ("max_length", "text of {} or fewer characters"),
    "string_pattern_mismatch": ("pattern", "text that matches {}"),
    "literal_error": ("expected", "one of {}"),
}
"""pydantic's kind of a fault -> name of the bound in its context, and the expected value."""


class Fault(NamedTuple):
    """One wrong value."""

    field: str
    """Name of the field, with those of its parents; empty for the whole value."""
    expected: str
    """The value that is expected, in words."""
    found: str
    """The value that was found."""
    kind: str
    """pydantic's name of the kind of fault."""

    def __str__(self) -> str:
        field = self.field or "value"
        if self.kind in _OWN_TEXT:
            return f"{self.field}: {self.expected}" if self.field else self.expected
        if self.kind == _MISSING:
            return f"{field}: missing"
        if self.kind == _UNKNOWN:
            return f"{field}: unknown{self.expected.removeprefix(_KINDS[_UNKNOWN])}"
        return f"{field}: {self.found}, not {self.expected}"


def explain(
    error: "ValidationError",
    where: str,
    raw: Any,
    field_names: Iterable[str] = (),
    help_on_names: str = "",
) -> ConfigError:
    """Return a ConfigError that lists every fault.

    ``where`` says where the values are from, and ``help_on_names`` what lists the right names. The
    other arguments are those of :func:`faults`.
    """
    field_faults = faults(error, raw, field_names)
    remedy = "Correct the named fields."
    if help_on_names and any(fault.kind == _UNKNOWN for fault in field_faults):
        remedy = f"{remedy} {help_on_names}"
    text = "; ".join(map(str, field_faults))
    return ConfigError(where, remedy, expected="valid settings", found=text)


def faults(error: "ValidationError", raw: Any, field_names: Iterable[str] = ()) -> list[Fault]:
    """Return what is wrong, one fault for each field.

    Unknown fields come first, because a misspelt name makes the right one missing.

    Args:
        error: pydantic's error of a check of ``raw``.
        raw: the checked values, as plain values or a line of JSON.
        field_names: names of all fields, from which one is suggested for an unknown name.
    """
    names = list(field_names)
    if isinstance(raw, str):
        with suppress(UnreadableJsonError):
            raw = read_json(raw)
    by_field = dict[str, Fault]()
    for item in error.errors(include_url=False):
        if item["type"] == _NO_DEFAULT:
            continue
        fault = _fault(item, raw, names)
        previous = by_field.get(fault.field)
        if previous and previous.kind not in _OWN_TEXT:
            # The value may be of several kinds, and pydantic has one fault for each.
            fault = previous._replace(expected=f"{previous.expected} or {fault.expected}")
        by_field[fault.field] = fault
    innermost = [by_field[field] for field in by_field if not _has_wrong_part(field, by_field)]
    return sorted(innermost, key=lambda fault: fault.kind != _UNKNOWN)


def _has_wrong_part(field: str, wrong_fields: Iterable[str]) -> bool:
    """Return whether a part of a field is wrong: the field itself is then of the right kind."""
    return bool(field) and any(other.startswith(f"{field}.") for other in wrong_fields)


def names_in(model: type[BaseModel], before: str = "") -> Iterator[str]:
    """Yield the names of a model's fields, and of the fields of their parts, with dots."""
    for name, field in model.model_fields.items():
        yield f"{before}{name}"
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from names_in(kind, f"{before}{name}.")


def _fault(item: "ErrorDetails", raw: Any, field_names: list[str]) -> Fault:
    """Return one of pydantic's faults in our words."""
    field = ".".join(str(part) for part in _path(item, raw))
    kind = item["type"]
    value = item["input"]
    found = f"{value!r:.80}"
    if value in (None, "") or kind == _MISSING:
        found = "nothing"
    return Fault(field, _expected(item, field, field_names), found, kind)


def _expected(item: "ErrorDetails", field: str, field_names: list[str]) -> str:
    """Return the value that is expected in place of a wrong one."""
    kind = item["type"]
    value = item["input"]
    if kind in _BOUNDS:
        bound, form = _BOUNDS[kind]
        expected = form.format(item["ctx"][bound])
        if kind == "literal_error":
            choices = re.findall("'([^']*)'", expected)
            return expected.replace("'", "") + did_you_mean(value, choices)
        return expected
    if kind == _UNKNOWN:
        return _KINDS[kind] + _similar_field(field, field_names)
    if kind == "string_type" and isinstance(value, bool | int | float):
        return f"{_KINDS[kind]} in quotes"
    if kind in _KINDS:
        return _KINDS[kind]
    text = item["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    return text.removeprefix("Input should be ")


def _similar_field(unknown: str, field_names: list[str]) -> str:
    """Return the suggestion of a field for an unknown name, such as ``(did you mean ...?)``.

    Besides misspelt names, people write initials (``lr``), a part of a name (``epochs``), a name
    with another word (``batch_size``), or one without its parent (``classes``).
    """
    suggestion = did_you_mean(unknown, field_names)
    if suggestion:
        return suggestion
    words = _words(unknown)
    for name in field_names:
        of_name = _words(name)
        same = of_name[-len(words) :] == words or of_name == words[: len(of_name)]
        if same or "".join(word[0] for word in of_name) == unknown:
            return f" (did you mean {name}?)"
    return ""


def _words(name: str) -> list[str]:
    return re.split("[._]", name.lower())


def _path(item: "ErrorDetails", raw: Any) -> Iterator[str | int]:
    """Yield the keys and indices that lead to a fault in ``raw``.

    Where a value may be of several kinds, pydantic's path also names the kind, which is left out.
    """
    here = raw
    last = len(item["loc"]) - 1
    for place, part in enumerate(item["loc"]):
        in_list = isinstance(here, list | tuple) and isinstance(part, int) and part < len(here)
        in_mapping = isinstance(here, Mapping) and part in here
        if in_list or in_mapping:
            here = here[part]
            yield part
        elif place == last and (item["type"] == _MISSING or item["input"] is not here):
            yield part

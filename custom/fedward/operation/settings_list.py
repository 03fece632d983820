"""Every setting that ``--set`` takes, described by the models that check it.

Types, ranges and defaults are those of the models' JSON schemas. Sentences are the docstrings of
the fields, and groups are the classes that define them, so that nothing is written twice.
"""

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

from pydantic import BaseModel

from fedward.config import DataSpec, Experiment, SyntheticData
from fedward.methods import settings_type
from fedward.registry import METHODS, SURVEY

_PARTS: dict[str, type[BaseModel]] = {"data": DataSpec, "synthetic": SyntheticData}
"""Field of an experiment -> the model whose fields are settings of their own, as ``data.name``."""
_ROLE = re.compile(r":\w+:`~?(?:[\w.]+\.)?(\w+)`|``([^`]+)``")
_YAML = {"None": "null", "True": "true", "False": "false"}
_CONSTANT = re.compile(rf"\b({'|'.join(_YAML)})\b")
_TYPES = {
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "string": "text",
    "null": "null",
    "object": "names with values",
}
"""Type in a JSON schema -> words for it."""


class Setting(NamedTuple):
    """One key of ``--set``."""

    key: str
    """As ``--set`` takes it, such as ``data.image_size``."""
    values: str
    """Type and range in words."""
    default: str
    """As ``--set`` takes it; of a method's setting that of this method; empty without one."""
    about: str
    """What it is, in a sentence or a few."""


class Group(NamedTuple):
    """Settings that one class defines."""

    title: str
    """The first line of the class's docstring."""
    settings: list[Setting]


def groups_of(method: str) -> list[Group]:
    """Return all settings of an experiment with this method: shared ones first, its own last."""
    return [*_of_experiments(), *_of_method(method)]


def all_groups() -> list[Group]:
    """Return the settings of all methods, each group once, with the methods that have it."""
    groups: dict[str, Group] = {}
    methods: dict[str, list[str]] = {}
    for method in (*METHODS, SURVEY):
        for group in _of_method(method):
            groups.setdefault(group.title, group)
            methods.setdefault(group.title, []).append(method)
    named = [
        group._replace(title=f"{title} {_methods(methods[title])}")
        for title, group in groups.items()
    ]
    return [*_of_experiments(), *named]


def _methods(names: list[str]) -> str:
    if len(names) > len(METHODS):
        return "All methods have them."
    return f"({', '.join(names)})"


def _of_method(method: str) -> list[Group]:
    model = settings_type(method)
    return _of_classes(model, model().model_dump(mode="json"))


def _of_experiments() -> list[Group]:
    """Return the settings that every experiment has besides those of its method."""
    # An experiment of a method that changes nothing has every default, also those computed.
    defaults = Experiment(method="fedavg").model_dump(mode="json")
    groups = _of_classes(Experiment, {**defaults, "method": ""})
    for name, model in _PARTS.items():
        for title, settings in _of_classes(model, defaults[name]):
            dotted = [setting._replace(key=f"{name}.{setting.key}") for setting in settings]
            groups.append(Group(title, dotted))
    return groups


def _of_classes(model: type[BaseModel], defaults: Mapping[str, Any]) -> list[Group]:
    """Return a group for each class that a model inherits fields from, the base first."""
    schema = model.model_json_schema()
    groups = []
    listed = {"options", *_PARTS}
    for part in reversed(model.__mro__):
        if part is BaseModel or not issubclass(part, BaseModel):
            continue
        settings = []
        sentences = _field_docstrings(part)
        for name in part.__annotations__:
            if name in model.model_fields and name not in listed:
                listed.add(name)
                values = in_words(schema["properties"][name], schema)
                default = as_text(defaults[name])
                settings.append(Setting(name, values, default, sentences.get(name, "")))
        if settings:
            groups.append(Group(_first_line(part), settings))
    return groups


def _first_line(part: type[BaseModel]) -> str:
    return (part.__doc__ or part.__name__).splitlines()[0]


@cache
def _field_docstrings(part: type[BaseModel]) -> dict[str, str]:
    """Return field -> the first paragraph of its docstring as plain text, for a class's fields."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(part))).body
    assert isinstance(definition, ast.ClassDef)
    paragraphs = {}
    for statement, following in pairwise(definition.body):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(following, ast.Expr):
            continue
        if isinstance(statement.target, ast.Name) and isinstance(following.value, ast.Constant):
            paragraph = str(following.value.value).split("\n\n")[0]
            paragraphs[statement.target.id] = _plain(paragraph)
    return paragraphs


def _plain(text: str) -> str:
    """Return a docstring's text as one line without markup, with values as YAML writes them."""
    text = " ".join(_ROLE.sub(lambda match: match[1] or match[2], text).split())
    return _CONSTANT.sub(lambda match: _YAML[match[0]], text)


def as_text(value: Any) -> str:
    """Return a value as it is written in YAML, which is how ``--set`` reads it."""
    if isinstance(value, str):
        return value
    return json.dumps(value)


def in_words(schema: Mapping[str, Any], whole: Mapping[str, Any]) -> str:
    """Return which values a JSON schema admits, such as ``whole number, 1 or more; or null``.

    Args:
        schema: of one field.
        whole: the schema that it is a part of, for what it refers to.
    """
    if "$ref" in schema:
        part = whole["$defs"][schema["$ref"].rsplit("/", 1)[-1]]
        return f"{{{', '.join(f'{name}: ...' for name in part['properties'])}}}"
    if "anyOf" in schema:
        return "; or ".join(in_words(choice, whole) for choice in schema["anyOf"])
    if "enum" in schema:
        return f"one of {', '.join(map(str, schema['enum']))}"
    if schema.get("type") == "array":
        least = f", {schema['minItems']} or more" if "minItems" in schema else ""
        return f"list of values, each {in_words(schema['items'], whole)}{least}"
    words = _TYPES[schema["type"]]
    limits = _range(schema)
    return f"{words}, {limits}" if limits else words


def _range(schema: Mapping[str, Any]) -> str:
    """Return the bounds of a number in words; empty without any."""
    if "minimum" in schema and "maximum" in schema:
        return f"{schema['minimum']:g} to {schema['maximum']:g}"
    words = {
        "minimum": "{:g} or more",
        "exclusiveMinimum": "above {:g}",
        "maximum": "at most {:g}",
        "exclusiveMaximum": "below {:g}",
    }
    return ", ".join(form.format(schema[name]) for name, form in words.items() if name in schema)

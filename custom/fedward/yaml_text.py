"""YAML as people write it by hand: one reader for site files and ``--set``."""

import re
from typing import Any

import yaml

_BOOL = "tag:yaml.org,2002:bool"


class _Loader(yaml.SafeLoader):
    """PyYAML reads YAML 1.1, where yes, no, on and off are true or false; in YAML 1.2 they are words."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in rules if tag != _BOOL]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_BOOL, re.compile("(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))


def read_yaml(text: str) -> Any:
    """Return what a YAML text says; raise ValueError, in one line, where it cannot be read."""
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ValueError(f"no YAML{place}: {error.problem or error.context}") from error
    except Exception as error:  # a value that cannot be (a 13th month), or too deep, is no YAMLError
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from error

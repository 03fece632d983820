"""YAML as people write it by hand: one reader for site files, policies and ``--set``."""

import re
from typing import Any

import yaml

_BOOL, _INT = "tag:yaml.org,2002:bool", "tag:yaml.org,2002:int"


class _Loader(yaml.SafeLoader):
    """PyYAML reads YAML 1.1, where yes and no are true or false, 1:30 is 90 and 032 is 26; in YAML 1.2 they are not.

    Of a key that comes twice it takes the last, and people read the first: it is refused here.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return a mapping whose own keys are different."""
        seen = set[tuple[str, str]]()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):  # no other can be a key
                if (told := (key.tag, key.value)) in seen:
                    raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} twice", key.start_mark)
                seen.add(told)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in rules if tag not in (_BOOL, _INT)]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_BOOL, re.compile("(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
_Loader.add_implicit_resolver(_INT, re.compile("[-+]?(?:0|[1-9][0-9]*)$"), list("-+0123456789"))


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

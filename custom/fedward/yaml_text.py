"""YAML as people write it by hand: the reader of site files, policies and ``--set``, and a writer.

It reads a part of YAML: values, lists and mappings. Whatever makes a short text mean a large value
(aliases, merge keys), or something else than it seems (tags, a key twice), is refused with its
place, before anything is built.
"""

import os
import re
import stat
from pathlib import Path
from typing import Any

import yaml

LONGEST = 8 * 1024 * 1024
"""Characters of a text, and bytes of a file."""
MOST = 1_000_000
"""Most values and keys of a text. The longest is the site file of an npz file: it lists images."""
DEEPEST = 20
"""Most lists and mappings within each other. Site files and policies need four."""
_LIMIT = 2**63
"""Whole numbers are smaller than this, and larger than its negative."""

_BOOL = "tag:yaml.org,2002:bool"
_INT = "tag:yaml.org,2002:int"
_MERGE = "tag:yaml.org,2002:merge"


class _Loader(yaml.SafeLoader):
    """Loader of the part of YAML that :mod:`fedward.yaml_text` reads.

    PyYAML reads YAML 1.1, where yes and no are true and false, 1:30 is 90 and 032 is 26. Here they
    are texts, as in YAML 1.2, and 032 is too.
    """

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0
        self._values = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Return the next value; refuse an anchor, an alias, a tag, and a value too deep."""
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent):
            raise _refused(f"the alias *{event.anchor}: write out what it stands for", event)
        if event.anchor is not None:
            raise _refused(
                f"the anchor &{event.anchor}: remove it, and write out the value at each place",
                event,
            )
        if event.tag is not None:
            raise _refused(f"the tag {event.tag}: remove it, and put a text in quotes", event)
        if self._depth > DEEPEST:
            raise _refused(
                f"more than {DEEPEST} lists and mappings within each other: write fewer", event
            )
        if self._values == MOST:
            raise _refused(f"more than {MOST} values: write fewer", event)
        self._values += 1
        self._depth += 1
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return a mapping whose keys are all different.

        Of a key that is there twice PyYAML takes the last one, and people read the first. Keys are
        also the same if they are written differently, such as ``1`` and ``"1"``, or ``1`` and
        ``+1``.
        """
        keys = set[str]()
        for key, _ in node.value:
            if key.tag == _MERGE:
                raise _refused("the merge key <<: write out what it brings", key)
            if isinstance(key, yaml.ScalarNode):  # PyYAML refuses other keys itself
                if key.value in keys:
                    raise _refused(f"{key.value!r} twice", key)
                keys.add(key.value)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        if len(mapping) < len(node.value):
            raise _refused("the same key twice, written differently", node)
        return mapping

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        """Return a whole number of at most 64 bits: no setting means a larger one."""
        # A number of a million digits is refused by its length: reading it would take minutes.
        digits = node.value.lstrip("+-0")
        if len(digits) > len(str(_LIMIT)) or not -_LIMIT < int(node.value) < _LIMIT:
            raise _refused(
                "a whole number of more than 64 bits: write a smaller one, or put a text in quotes",
                node,
            )
        return int(node.value)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in rules if tag not in (_BOOL, _INT)]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    _BOOL, re.compile("(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
_Loader.add_implicit_resolver(_INT, re.compile("[-+]?(?:0|[1-9][0-9]*)$"), list("-+0123456789"))
_Loader.add_constructor(_INT, _Loader.construct_yaml_int)


def read_yaml_file(path: Path) -> Any:
    """Return the fields in a YAML file; None if it is empty.

    Raises:
        OSError: it cannot be read.
        ValueError: it is a pipe or a device, not text in UTF-8, refused by :func:`read_yaml`, or
            has no fields. The message quotes nothing, as the file may be a table of patients.
    """
    with open(path, "rb", opener=_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("a pipe or a device")
        content = file.read(LONGEST + 1)
    if len(content) > LONGEST:
        raise _too_long("bytes")
    value = read_yaml(content.decode("utf-8"))
    if value is None or isinstance(value, dict):
        return value
    raise ValueError("a list" if isinstance(value, list) else "text without fields")


def read_yaml(text: str) -> Any:
    """Return the value of a YAML text: None, booleans, numbers, texts and dates, lists, mappings.

    Raises:
        ValueError: the text is not valid YAML, longer than :data:`LONGEST`, deeper than
            :data:`DEEPEST` or of more values than :data:`MOST`, or it has an anchor, an alias, a
            merge key, a tag, a key twice, or a whole number of more than 64 bits. The message is
            one line, and says where.
    """
    if len(text) > LONGEST:
        raise _too_long("characters")
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = error.problem or error.context
        raise ValueError(f"text that is not valid YAML{place}: {problem}") from error
    except Exception as error:
        # PyYAML also fails with other errors: at a 13th month, or a control character.
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from error


def write_yaml(value: Any, **style: Any) -> str:
    """Return YAML that :func:`read_yaml` reads; ``style`` are options of ``yaml.dump``."""
    text: str = yaml.dump(value, Dumper=_Dumper, **style)
    return text


class _Dumper(yaml.SafeDumper):
    """Writes a list or mapping that comes twice twice, where PyYAML would write an alias."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _refused(problem: str, place: Any) -> yaml.MarkedYAMLError:
    """Return the error about an event or a node."""
    return yaml.MarkedYAMLError(problem=problem, problem_mark=place.start_mark)


def _too_long(unit: str) -> ValueError:
    return ValueError(f"more than {LONGEST} {unit}: shorten it")


def _without_waiting(path: str, flags: int) -> int:
    # To open a pipe would otherwise wait for somebody who writes into it.
    return os.open(path, flags | os.O_NONBLOCK)

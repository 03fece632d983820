"""The reader of YAML: values that it reads, and texts that it refuses with their place."""

import os
import re
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

import fedward
from fedward.config import DataSpec
from fedward.errors import ConfigError, DataError
from fedward.jobs import load_experiment
from fedward.security.policy import read_policy
from fedward.sites.site_file import SERVER, read_site_file
from fedward.yaml_text import DEEPEST, read_yaml, read_yaml_file, write_yaml


def alias_bomb(levels: int) -> str:
    """Return a few hundred characters that stand for 10^levels texts."""
    names = [f"a{level}" for level in range(levels)]
    lines = [f"{names[0]}: &{names[0]} [{', '.join(['x'] * 10)}]"]
    for before, name in pairwise(names):
        lines.append(f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]")
    return "\n".join(lines) + "\n"


REFUSED = {
    "a bomb of aliases": (alias_bomb(12), "line 1, column 5: the anchor &a0"),
    "an alias": ("a: 1\nb: *a\n", "line 2, column 4: the alias *a: write out what it stands for"),
    "an anchor alone": ("a: &a 1\n", "line 1, column 4: the anchor &a"),
    "an anchor that holds itself": ("a: &a [*a]\n", "line 1, column 4: the anchor &a"),
    "a merge key": (
        "a: 1\nb:\n  <<: {a: 1}\n",
        "line 3, column 3: the merge key <<: write out what it brings",
    ),
    "code by a tag": (
        "a: !!python/object/apply:os.system [touch x]\n",
        "line 1, column 4: the tag tag:yaml.org",
    ),
    "a tag of its own": ("a: !mine x\n", "line 1, column 4: the tag !mine"),
    "a tag that only says what it is": (
        "a: !!str 1\n",
        "line 1, column 4: the tag tag:yaml.org,2002:str",
    ),
    "a binary": ("a: !!binary AAAA\n", "the tag tag:yaml.org,2002:binary"),
    "a set": ("a: !!set {x, y}\n", "the tag tag:yaml.org,2002:set"),
    "a key twice": ("a: 1\nb: 2\na: 3\n", "line 3, column 1: 'a' twice"),
    "a key twice, in quotes once": ('a: {1: x, "1": y}\n', "line 1, column 11: '1' twice"),
    "a key twice, written differently": (
        "a: {1: x, +1: y}\n",
        "line 1, column 4: the same key twice",
    ),
    "nothing twice as a key": ("a: {~: x, null: y}\n", "line 1, column 4: the same key twice"),
    "lists without end": (
        "a: " + "[" * 100_000,
        "line 1, column 24: more than 20 lists and mappings",
    ),
    "mappings without end": ("{a: " * 100_000, "more than 20 lists and mappings within each other"),
    "dashes without end": ("- " * 100_000, "more than 20 lists and mappings within each other"),
    "questions without end": ("? " * 100_000, "more than 20 lists and mappings within each other"),
    "a number of a million digits": (
        f"a: {'9' * 1_000_000}",
        "line 1, column 4: a whole number of more than 64 bits",
    ),
    "a number of 65 bits": (f"a: {2**64}", "line 1, column 4: a whole number of more than 64 bits"),
    "a number of 65 bits below zero": (
        f"a: -{2**64}",
        "line 1, column 4: a whole number of more than 64 bits",
    ),
    "a list as a key": ("a: {[1]: x}\n", "line 1, column 5: found unhashable key"),
    "two documents": ("a: 1\n---\nb: 2\n", "line 2, column 1: but found another document"),
    "a 13th month": ("a: 2024-13-01\n", "month must be in 1..12"),
    "a character of control": ("a: \x1b[2J\n", "special characters are not allowed"),
    "nine million characters": ("#" * 9_000_000, "more than 8388608 characters"),
}


@pytest.mark.proves(
    "files",
    "YAML with bombs of aliases, code, anchors, merge keys, tags, a key twice, deep "
    "lists or huge numbers",
    "refused before anything is built, with line and column",
)
@pytest.mark.parametrize("case", REFUSED)
def test_what_yaml_can_do_beyond_values_is_refused(tmp_path: Path, case: str) -> None:
    text, told = REFUSED[case]
    with pytest.raises(ValueError, match=re.escape(told)) as refused:
        read_yaml(text)
    assert "\n" not in str(refused.value)
    site = tmp_path / "site-1.yaml"
    policy = tmp_path / "fedward_policy.yaml"
    server = tmp_path / f"{SERVER}.yaml"
    for file in (site, policy, server):
        file.write_text(text)
    for file in (site, server):
        with pytest.raises(DataError, match="expected a readable YAML file, found"):
            read_site_file(file)
    with pytest.raises(ConfigError, match="until then this site refuses every job"):
        read_policy(policy)


def test_so_many_values_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedward.yaml_text.MOST", 4)
    assert read_yaml("[1, 2, 3]") == [1, 2, 3]
    with pytest.raises(ValueError, match="line 1, column 11: more than 4 values: write fewer"):
        read_yaml("[1, 2, 3, 4]")


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fedward_policy.yaml")
    with pytest.raises(ConfigError, match="found a pipe or a device"):
        read_policy(tmp_path / "fedward_policy.yaml")
    with pytest.raises(ValueError, match="a pipe or a device"):
        read_yaml_file(Path("/dev/zero"))
    with pytest.raises(DataError, match="found a folder"):
        read_site_file(tmp_path)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("a: yes\nb: no\nc: on\n", {"a": "yes", "b": "no", "c": "on"}),
        (
            "[true, False, ~, null, 1, -2, +3, 032, 1:30, 1.5, .5]",
            [True, False, None, None, 1, -2, 3, "032", "1:30", 1.5, 0.5],
        ),
        (f"a: {2**63 - 1}\nb: -{2**63 - 1}\nc: 0\n", {"a": 2**63 - 1, "b": 1 - 2**63, "c": 0}),
        (f"a: '{2**64}'", {"a": f"{2**64}"}),
        ("a: 'R&D *x* !y <<'\n", {"a": "R&D *x* !y <<"}),
        ("'<<': x\n", {"<<": "x"}),
        ("a: x & y, 2 * 3\n", {"a": "x & y, 2 * 3"}),
    ],
)
def test_values_are_read_as_they_look(text: str, value: object) -> None:
    assert read_yaml(text) == value


def test_lists_may_be_as_deep_as_the_limit() -> None:
    assert isinstance(read_yaml("[" * DEEPEST + "]" * DEEPEST), list)


def test_a_change_on_the_command_line_is_read_alike() -> None:
    with pytest.raises(
        ConfigError, match=r"--set data\.classes: expected a value in YAML, found .* the anchor &a"
    ):
        load_experiment("fedavg", ["data.classes=[&a NV, *a]"])
    classes = load_experiment("fedavg", ["data.classes=[NV, MEL]"]).data.classes
    assert classes == DataSpec(classes=("NV", "MEL")).classes


def test_yaml_is_read_at_one_place() -> None:
    """Whoever imports PyYAML elsewhere could let bombs in again."""
    package = Path(fedward.__file__).parent
    imports = re.compile(r"^\s*(import|from) yaml\b", re.MULTILINE)
    found = [
        file.name
        for file in package.rglob("*.py")
        if imports.search(file.read_text(encoding="utf-8"))
    ]
    assert found == ["yaml_text.py"]


def test_what_is_written_is_read() -> None:
    """PyYAML alone would write the second list as an alias of the first."""
    shared = ["NV", "yes", "1:30", "a: b", "*x"]
    value = {"one": shared, "two": shared, "none": None, "whole": 3, "share": 0.5, "text": "&a"}
    assert "&id001" in yaml.safe_dump(value)
    for style in ({}, {"default_flow_style": None}, {"default_flow_style": True}):
        assert read_yaml(write_yaml(value, **style)) == value

"""The reader of JSON: values that it reads, and one error for every text that it does not."""

import ast
from pathlib import Path

import pytest

import fedward
from fedward.errors import UnreadableJsonError, reason_of
from fedward.json_text import DEEPEST, read_json, read_json_file
from fedward.storage.chain import parse

OF_OWN_PROCESSES = {
    "client/ranks.py",
    "flare/jobs/remote.py",
    "flare/jobs/session_process.py",
    "flare/kits/builder.py",
    "training/distributed/launch.py",
}
"""Modules that read JSON which another process of the same program has just written for them."""

TOO_DEEP = "text that is nested too deeply"

UNREADABLE = {
    "nothing": (b"", "text that is not valid JSON at line 1, column 1"),
    "half a list": (b"[1,\n 2", "text that is not valid JSON at line 2, column 3"),
    "two values": (b"1 2", "text that is not valid JSON at line 1, column 3"),
    "a byte order mark": (b"\xef\xbb\xbf{}", "text that is not valid JSON at line 1, column 1"),
    "Latin-1": ('"ä"'.encode("latin-1"), "bytes that are not text in UTF-8"),
    "UTF-16": ('"a"'.encode("utf-16"), "bytes that are not text in UTF-8"),
    "lists without end": (b"[" * 100_000, TOO_DEEP),
    "objects without end": (b'{"a":' * 100_000, TOO_DEEP),
    "5000 digits": (b'{"a": ' + b"1" * 5000 + b"}", "a whole number of too many digits"),
}


@pytest.mark.parametrize(("content", "reason"), UNREADABLE.values(), ids=UNREADABLE)
def test_every_damage_is_one_error_with_its_reason(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(content)
    with pytest.raises(UnreadableJsonError) as caught:
        read_json_file(file)
    assert str(caught.value) == reason_of(caught.value) == reason


def test_what_is_read_does_not_depend_on_where_it_is_read() -> None:
    """Python reads some lists that it could not compare or write a few calls deeper."""
    for opening, inside, closing in (("[", "", "]"), ("[", "1", "]"), ('{"a":', "1", "}")):
        read_json(opening * DEEPEST + inside + closing * DEEPEST)
        for depth in (DEEPEST + 1, *range(900, 1000)):
            with pytest.raises(UnreadableJsonError, match=TOO_DEEP):
                read_json(opening * depth + inside + closing * depth)
    for depth in range(900, 1000):
        lists = b"[" * depth + b"]" * depth
        assert parse(b'{"a":' + lists + b',"hash":"","seq":1}') is None


def test_values_of_every_kind_are_read() -> None:
    text = '{"a": [1, 2.5, "ä", true, null], "b": {"c": -Infinity}}'
    expected = {"a": [1, 2.5, "ä", True, None], "b": {"c": float("-inf")}}
    assert read_json(text) == read_json(text.encode()) == expected
    assert len(read_json(f"[{'[[]], ' * 200}[]]")) == 201, "many lists are not deep ones"
    brackets = "[" * 200
    assert read_json(f'["{brackets}"]') == [brackets], "nor is a text of brackets"


def test_a_key_that_comes_twice_is_refused_where_it_must_be() -> None:
    text = '[{"a": 1, "b": {"a": 2, "c": 3, "c": 4}}]'
    assert read_json(text) == [{"a": 1, "b": {"a": 2, "c": 4}}]
    with pytest.raises(UnreadableJsonError, match=r"^a key that comes twice: 'c'$"):
        read_json(text, unique_keys=True)


def test_a_file_that_is_not_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_json_file(tmp_path / "absent.json")


def test_json_of_others_is_read_at_one_place() -> None:
    """Whoever parses it elsewhere could forget a way in which it is damaged."""
    package = Path(fedward.__file__).parent
    found = {
        file.relative_to(package).as_posix()
        for file in package.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("json.load", "json.loads")
    }
    assert found == {"json_text.py"} | OF_OWN_PROCESSES

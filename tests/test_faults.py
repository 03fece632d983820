"""Wrong settings and files: every kind of fault in our words, with a suggestion for typos."""

from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from fedward.errors import did_you_mean, did_you_mean_file, listed, reason_of
from fedward.faults import explain, faults, names_in


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")

    size: int = Field(16, ge=16, lt=100)


class Model(BaseModel):
    """A field of each kind that settings have."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    needed: int
    share: float = Field(0.5, gt=0, le=1)
    on: bool = False
    words: tuple[str, ...] = Field(("a",), max_length=2)
    kind: Literal["sgd", "adam"] = "sgd"
    digest: str = Field("00", pattern="^[0-9]+$")
    name: str = Field("ab", min_length=2, max_length=3)
    part: bool | Inner = False
    table: dict[str, Inner] = {}
    follows: int = Field(default_factory=lambda fields: fields["needed"] + 1)


def said(raw: Any) -> list[str]:
    with pytest.raises(ValidationError) as caught:
        Model.model_validate(raw)
    return [str(fault) for fault in faults(caught.value, raw, names_in(Model))]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"needed": "x"}, "needed: 'x', not a whole number"),
        ({"needed": 1.5}, "needed: 1.5, not a whole number"),
        ({"needed": None}, "needed: nothing, not a whole number"),
        ({"share": "x"}, "share: 'x', not a number"),
        ({"share": 0}, "share: 0, not more than 0"),
        ({"share": 2}, "share: 2, not 1 or less"),
        ({"share": float("inf")}, "share: inf, not a finite number"),
        ({"on": "perhaps"}, "on: 'perhaps', not true or false"),
        ({"words": "a"}, "words: 'a', not a list"),
        ({"words": [0]}, "words.0: 0, not text in quotes"),
        ({"words": [[]]}, "words.0: [], not text"),
        ({"words": ["a", "b", "c"]}, "words: ['a', 'b', 'c'], not 2 entries or fewer"),
        ({"kind": "adm"}, "kind: 'adm', not one of sgd or adam (did you mean adam?)"),
        ({"digest": "x"}, "digest: 'x', not text that matches ^[0-9]+$"),
        ({"name": "a"}, "name: 'a', not text of 2 or more characters"),
        ({"name": "abcd"}, "name: 'abcd', not text of 3 or fewer characters"),
        ({"part": "x"}, "part: 'x', not true or false or fields of its own"),
        ({"part": {"size": 8}}, "part.size: 8, not 16 or more"),
        ({"part": {"sise": 20}}, "part.sise: unknown (did you mean part.size?)"),
        ({"table": {"Inner": {"size": 100}}}, "table.Inner.size: 100, not less than 100"),
        ({"table": 3}, "table: 3, not fields of its own"),
        ({"knid": "sgd"}, "knid: unknown (did you mean kind?)"),
        ({"completely": 1}, "completely: unknown"),
    ],
)
def test_a_fault_is_in_our_words(wrong, text):
    assert said({"needed": 1, **wrong}) == [text]


def test_an_unknown_field_comes_before_one_that_is_missing():
    assert said({"neded": 1}) == ["neded: unknown (did you mean needed?)", "needed: missing"]


def test_what_is_missing_and_what_is_no_model_are_told():
    assert said({}) == ["needed: missing"]
    assert said([]) == ["value: [], not fields of its own"]


def test_all_faults_are_in_one_error():
    raw = {"share": 2, "on": "x"}
    with pytest.raises(ValidationError) as caught:
        Model.model_validate(raw)
    assert str(explain(caught.value, "job x", raw)) == (
        "job x: expected valid settings, found needed: missing; share: 2, not 1 or less;"
        " on: 'x', not true or false. Correct the named fields."
    )


def test_a_line_of_json_is_looked_into():
    line = '{"needed": 1, "table": {"a": {"size": 8}}}'
    deep = "[" * 100_000
    for text, fault in (
        (line, "table.a.size: 8, not 16 or more"),
        ("{", "value: '{', not JSON"),
        (deep, f"value: {deep!r:.80}, not JSON"),
    ):
        with pytest.raises(ValidationError) as caught:
            TypeAdapter(Model).validate_json(text)
        assert [str(found) for found in faults(caught.value, text)] == [fault]


def test_only_a_word_that_is_much_like_one_is_taken_for_it():
    assert did_you_mean("FedPearl", ["fedavg", "fedperl"]) == " (did you mean fedperl?)"
    assert did_you_mean("fedperl", ["fedperl"]) == did_you_mean("colour", ["classes"]) == ""


def test_a_file_that_cannot_be_read_is_told_without_numbers(tmp_path):
    with pytest.raises(OSError, match="Errno") as caught:
        (tmp_path / "absent").read_text()
    assert reason_of(caught.value) == "no such file or directory"
    with pytest.raises(IsADirectoryError) as folder:
        tmp_path.read_text()
    assert reason_of(folder.value) == "a folder"
    with pytest.raises(UnicodeDecodeError) as undecodable:
        b"\xff".decode("utf-8")
    assert reason_of(undecodable.value) == "bytes that are not text in UTF-8"
    assert reason_of(ValueError("odd")) == "odd"


def test_a_missing_file_is_told_with_what_lies_beside_it(tmp_path):
    (tmp_path / "runs" / "fedavg").mkdir(parents=True)
    assert (
        did_you_mean_file(tmp_path / "runs" / "fedavgg" / "run.json") == " (did you mean fedavg?)"
    )
    assert did_you_mean_file(tmp_path / "run" / "fedavg") == " (did you mean runs?)"
    assert (
        did_you_mean_file(tmp_path / "runs" / "isofed")
        == did_you_mean_file(tmp_path / "runs")
        == ""
    )
    with pytest.raises(FileNotFoundError) as caught:
        (tmp_path / "runs" / "fedavgg" / "run.json").read_text()
    assert reason_of(caught.value) == "no such file or directory (did you mean fedavg?)"


def test_a_name_with_a_comma_is_quoted_among_others():
    assert listed(["malignant", "normal, benign", "-1"]) == 'malignant, "normal, benign", -1'
    assert listed([]) == ""

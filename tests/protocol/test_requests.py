"""Requests: a site reads the whole request before it does anything, and refuses malformed ones."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidatorFunctionWrapHandler, WrapValidator

from asking import requests
from clients import new_client
from fedward.client.client import Client
from fedward.errors import WireError
from fedward.methods.workflow import ClientTask, Exchange
from fedward.nets import build
from fedward.protocol.fields import Expected, Part
from fedward.protocol.requests import DECRYPT, DecryptRequest, TaskRequest, read_request, readable
from fedward.protocol.wire import Message
from tiny import tiny

EXPERIMENT = tiny("fedperl")
MODEL = build(EXPERIMENT.net, len(EXPERIMENT.data.classes), seed=3).state_dict()
TRAIN = requests(EXPERIMENT, Exchange(1, MODEL, {"s": ClientTask()}), ["s"])["s"].meta
SUM = {
    **TRAIN,
    "task": DECRYPT,
    "evaluate": False,
    "sites": 3,
    "weight": 9,
    "effective": 3.0,
    "trained": "train",
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
FIELDS = [*((TRAIN, name) for name in TRAIN), *((SUM, name) for name in SUM)]


def test_each_request_is_read_as_its_type() -> None:
    assert read_request(TRAIN) == TaskRequest(**TRAIN)
    assert read_request(SUM) == DecryptRequest(**SUM)
    assert readable(TRAIN) == TRAIN


@pytest.mark.parametrize(("meta", "name"), FIELDS)
def test_each_field_is_needed(meta: dict[str, Any], name: str) -> None:
    rest = {key: value for key, value in meta.items() if key != name}
    with pytest.raises(WireError, match="request"):
        read_request(rest)


def test_a_field_that_is_not_listed_is_refused() -> None:
    for meta in (TRAIN, SUM):
        with pytest.raises(WireError, match="expected no further name, found 'patients'"):
            read_request({**meta, "patients": 1})


@settings(deadline=None, max_examples=100)
@given(field=st.sampled_from(FIELDS), value=JSON)
def test_any_json_in_place_of_a_field_fits_or_is_refused(
    field: tuple[dict[str, Any], str], value: Any
) -> None:
    (whole, name) = field
    is_accepted = True
    meta = {**whole, name: value}
    try:
        request = read_request(meta)
    except WireError as error:
        is_accepted = False
        text = str(error)
    if is_accepted:
        assert type(getattr(request, name)) is type(value)
    else:
        assert len(text) < 1000
        assert name not in readable(meta) or name == "task"


WRONG: list[tuple[str, Any]] = [
    ("evaluate", 1),
    ("round", "1"),
    ("part", 0.0),
    ("members", 0),
    ("run", "a/../b"),
    ("last_hash", None),
    ("versions", {"fedward": 1}),
    ("experiment", "x"),
    ("weights", "fresh"),
    ("task", ["train"]),
]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_malformed_request_is_answered_with_its_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: Any
) -> None:
    def never(*args: Any) -> None:
        raise AssertionError("the site began its work")

    monkeypatch.setattr(Client, "_work", never)
    monkeypatch.setattr(Client, "_decrypt", never)
    for meta in (TRAIN, SUM):
        answer = new_client("s", EXPERIMENT, tmp_path).handle(
            Message({**meta, name: value}, {"model/w": np.ones(2, np.float32)})
        )
        assert answer.meta["error"]
        assert not answer.arrays
    assert {path.parent.name for path in tmp_path.rglob("*") if path.is_file()} <= {"answers"}


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, MemoryError])
def test_an_interrupted_check_is_no_fault_of_the_message(
    interruption: type[BaseException],
) -> None:
    def interrupted(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        raise interruption

    class Stopped(Part):
        count: Annotated[Annotated[int, WrapValidator(interrupted)], Expected("a count")]

    with pytest.raises(interruption):
        Stopped(count=1)

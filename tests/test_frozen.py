"""Frozen JSON values: nothing in them can be changed, and they dump as what they were made of."""

import copy
import pickle

import pytest

from fedward.frozen import FrozenMapping, frozen, plain

VALUES = {"rounds": 3, "sampler_options": {"passes": [1, 2, {"deep": True}]}, "none": None}


def test_no_part_of_a_frozen_mapping_can_be_set() -> None:
    mapping = FrozenMapping(VALUES)
    with pytest.raises(TypeError):
        mapping["rounds"] = 4  # type: ignore[index]
    with pytest.raises(TypeError):
        mapping["sampler_options"]["passes"] = 4
    with pytest.raises(TypeError):
        mapping["sampler_options"]["passes"][0] = 4
    with pytest.raises(TypeError):
        mapping["sampler_options"]["passes"][2]["deep"] = False
    assert plain(mapping) == VALUES


def test_a_frozen_mapping_shares_nothing_with_what_it_was_made_of() -> None:
    passes = [1, 2]
    values = {"sampler_options": {"passes": passes}}
    mapping = FrozenMapping(values)
    passes.append(3)
    values["sampler_options"]["more"] = []
    assert mapping == {"sampler_options": {"passes": (1, 2)}}


def test_plain_gives_a_copy_that_may_be_changed() -> None:
    mapping = FrozenMapping(VALUES)
    plain(mapping)["sampler_options"]["passes"].append(3)
    assert plain(mapping) == VALUES


def test_equal_items_make_equal_mappings() -> None:
    assert FrozenMapping({"a": {"b": 1}}) == {"a": {"b": 1}}
    assert FrozenMapping({"a": [1]}) == FrozenMapping({"a": (1,)})
    assert FrozenMapping({"a": 1}) != {"a": 2}


def test_a_frozen_mapping_can_be_copied_and_sent_to_another_process() -> None:
    mapping = FrozenMapping(VALUES)
    assert copy.deepcopy(mapping) == mapping
    assert pickle.loads(pickle.dumps(mapping)) == mapping


def test_single_values_are_frozen_as_they_are() -> None:
    assert frozen("text") == "text"
    assert frozen(None) is None
    assert plain(1.5) == 1.5

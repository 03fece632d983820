"""Only what the wire list names leaves a site."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedward.errors import WireError
from fedward.federation import wire
from fedward.federation.site import Site
from fedward.federation.wire import Message
from fedward.methods.workflow import Ask, Work
from tiny import tiny

MODEL = {
    "a.weight": torch.tensor([1.0, 2.0]),
    "bn.num_batches_tracked": torch.tensor(4),
    "bn.mean": torch.tensor([0.5]),
}


RUN = "0123456789abcdef" * 2


def request(task="train", part=0):
    ask = Ask(1, MODEL, {"s": Work(task=task, models={"peer0": MODEL})} if task != "idle" else {}, part=part)
    return wire.requests(ask, ["s"], RUN)["s"]


def answer(**meta):
    base = {"site": "s", "round": 1, "labelled": 3, "unlabelled": 4, "steps": 2, "train": {"loss": 1.0}, "metrics": []}
    arrays = {"diff/a.weight": np.array([0.5, -1], np.float32), "diff/bn.mean": np.array([1.0], np.float32)}
    return Message({**base, **meta}, arrays)


def test_request_carries_floats_only_and_names_roles():
    message = request()
    assert sorted(message.arrays) == ["model/a.weight", "model/bn.mean", "peer0/a.weight", "peer0/bn.mean"]
    assert wire.roles(message) == ["peer0"]
    assert message.meta == {"task": "train", "evaluate": True, "round": 1, "part": 0, "run": RUN}
    assert message.nbytes == 2 * 3 * 4


def test_idle_sites_get_the_model_without_peers():
    assert sorted(request("idle").arrays) == ["model/a.weight", "model/bn.mean"]


def test_every_site_is_told_the_task_the_part_and_the_run():
    ask = Ask(4, MODEL, {"a": Work("supervised"), "b": Work("unsupervised")}, part=2)
    found = {site: message.meta for site, message in wire.requests(ask, ["b", "c"], RUN).items()}
    common = {"round": 4, "part": 2, "run": RUN}
    assert found == {
        "a": {"task": "supervised", "evaluate": False, **common},
        "b": {"task": "unsupervised", "evaluate": True, **common},
        "c": {"task": "idle", "evaluate": True, **common},
    }


def test_rebuild_is_sent_plus_difference_and_keeps_integers():
    rebuilt = wire.rebuild(MODEL, answer())
    assert rebuilt["a.weight"].tolist() == [1.5, 1.0]
    assert rebuilt["bn.mean"].tolist() == [1.5]
    assert rebuilt["bn.num_batches_tracked"] is MODEL["bn.num_batches_tracked"]
    assert list(rebuilt) == list(MODEL)


def test_difference_undoes_rebuild():
    trained = {**MODEL, "a.weight": torch.tensor([4.0, 4.0])}
    assert wire.difference(trained, MODEL)["diff/a.weight"].tolist() == [3.0, 2.0]


WITHHELD = ("bn.",)


def without_what_is_withheld() -> Message:
    reply = answer()
    del reply.arrays["diff/bn.mean"]
    return reply


def test_what_is_withheld_is_not_sent_and_the_server_keeps_its_own():
    trained = {**MODEL, "a.weight": torch.tensor([1.5, 1.0]), "bn.mean": torch.tensor([9.0])}
    assert wire.travelling(MODEL, WITHHELD) == ["a.weight"]
    assert wire.shapes(request(), WITHHELD) == {"a.weight": (2,)}
    arrays = wire.difference(trained, MODEL, WITHHELD)
    assert list(arrays) == ["diff/a.weight"]
    reply = replace(answer(), arrays=arrays)
    wire.check_answer(reply, "s", request(), withheld=WITHHELD)
    rebuilt = wire.rebuild(MODEL, reply)
    assert list(rebuilt) == list(MODEL)
    assert torch.equal(rebuilt["a.weight"], trained["a.weight"])
    assert rebuilt["bn.mean"] is MODEL["bn.mean"]


def test_an_answer_with_what_is_withheld_is_refused_by_name():
    with pytest.raises(WireError, match=r"none of what does not go up \(bn\.\), found bn\.mean"):
        wire.check_answer(answer(), "s", request(), withheld=WITHHELD)
    with pytest.raises(WireError, match=r"none of what does not go up"):
        wire.check_answer(answer(), "s", request("idle"), withheld=WITHHELD)


def test_an_answer_without_what_it_should_send_is_refused_by_name():
    with pytest.raises(WireError, match=r"diff/bn\.mean of s.*nothing"):
        wire.check_answer(without_what_is_withheld(), "s", request())


def test_the_size_of_an_update_is_judged_by_what_was_sent():
    """The sent part of the model has the norm 5 ** 0.5, all of it 5.25 ** 0.5; the update has 1.25 ** 0.5."""
    wire.check_norm("s", without_what_is_withheld(), MODEL, 0.51)
    with pytest.raises(WireError, match=r"a norm of at most 1\.1 "):
        wire.check_norm("s", without_what_is_withheld(), MODEL, 0.49)


def test_a_good_answer_passes():
    wire.check_answer(answer(), "s", request())
    wire.check_answer(answer(restarts=2), "s", request())


@pytest.mark.proves(
    "attacks", "labels, ids, paths or other texts in a reply", "refused by the site before it leaves, and by the server"
)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": [1, 2]}, "labels"),
        ({"site": "other"}, "site other"),
        ({"round": 0}, "round 0"),
        ({"labelled": -1}, "labelled"),
        ({"steps": 1.5}, "steps"),
        ({"restarts": -1}, "restarts"),
        ({"restarts": "by hand"}, "restarts"),
        ({"label_counts": {"asked": -1}}, "label counts of s, asked"),
        ({"label_counts": {"bought": 1.5}}, "label counts of s, bought"),
        ({"label_counts": {"MEL": 3}}, "MEL"),
        ({"label_counts": {"asked": 3, "ids": ["a", "b"]}}, "ids"),
        ({"label_counts": [3]}, "list"),
        ({"minutes": "long"}, "minutes of annotation"),
        ({"minutes": -1.0}, "minutes of annotation"),
        ({"scores": [0] * 64, "due": 1}, "no scores"),
        ({"due": 1}, "no scores"),
        ({"train": {"loss": float("nan")}}, "loss"),
        ({"train": {"ids": 1.0}}, "ids"),
        ({"metrics": [{"split": "val", "name": "patient", "value": 1.0, "n": 1, "classes": []}]}, "patient"),
        ({"metrics": [{"split": "val", "name": "accuracy", "value": 1.0, "n": 1, "classes": [], "path": "x"}]}, "path"),
        ({"metrics": [{"split": "v", "name": "accuracy", "value": float("inf"), "n": 1, "classes": []}]}, "accuracy"),
    ],
)
def test_meta_outside_the_list_is_refused(change, message):
    with pytest.raises(WireError, match=message):
        wire.check_answer(answer(**change), "s", request())


SCORES = {"scores": [0] * 63 + [4], "due": -2, "steps": 0}


def scoring() -> wire.Message:
    message = request()
    return replace(message, meta={**message.meta, "task": "score"})


def test_scores_leave_as_counts_when_asked_for():
    wire.check_answer(replace(answer(**SCORES), arrays={}), "s", scoring())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": [0.5] * 64}, "64 counts"),
        ({"scores": [1] * 65}, "64 counts"),
        ({"scores": {"image-1": 0.3}}, "64 counts"),
        ({"due": 0.5}, "whole number"),
    ],
)
def test_scores_of_single_images_are_refused(change, message):
    with pytest.raises(WireError, match=message):
        wire.check_answer(replace(answer(**{**SCORES, **change}), arrays={}), "s", scoring())


LARGER = pytest.mark.proves(
    "attacks", "a reply larger than the model, or with further tensors", "refused when it has arrived, by name"
)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        pytest.param("diff/extra", np.zeros(1, np.float32), "extra", marks=LARGER),
        ("pixels", np.zeros(1, np.float32), "pixels"),
        ("diff/a.weight", None, "nothing"),
        pytest.param("diff/a.weight", np.zeros(3, np.float32), r"\(3,\)", marks=LARGER),
        ("diff/a.weight", np.zeros(2, np.float64), "float64"),
        ("diff/a.weight", np.array([np.nan, 0], np.float32), "NaN"),
    ],
)
def test_arrays_outside_the_list_are_refused(name, array, message):
    bad = answer()
    bad.arrays[name] = array
    if array is None:
        del bad.arrays[name]
    with pytest.raises(WireError, match=message):
        wire.check_answer(bad, "s", request())


@pytest.mark.parametrize("part", [0, 2])
def test_an_answer_without_a_step_carries_no_model(part):
    empty = Message(answer(steps=0, train={}).meta)
    wire.check_answer(empty, "s", request(part=part))
    with pytest.raises(WireError, match="arrays of s"):
        wire.check_answer(answer(steps=0), "s", request(part=part))


def test_an_idle_site_may_not_upload_a_model():
    with pytest.raises(WireError, match="arrays of s"):
        wire.check_answer(answer(), "s", request("idle"))


def test_a_request_of_another_shape_is_refused_with_the_tensor_name():
    with pytest.raises(WireError, match=r"model/bn\.mean"):
        wire.unflatten("model", {"model/a.weight": np.zeros(2, np.float32)}, MODEL)


def test_numbers_on_few_images_stay_at_the_site_and_cannot_be_subtracted():
    def withheld(**support):
        rows = [
            {"split": "test", "name": f"{kind}/{name}", "value": value, "n": 99, "classes": []}
            for name, value in support.items()
            for kind in ("f1", "support")
        ]
        overall = {"split": "test", "name": "accuracy", "value": 0.6, "n": 99, "classes": []}
        kept = wire.withhold_small_counts([*rows, overall])
        assert kept[-1] == overall
        assert all(
            (row["value"] is None) == (twin["value"] is None) for row, twin in zip(kept[:-1:2], kept[1::2], strict=True)
        )
        return {row["name"].split("/")[1] for row in kept if row["value"] is None}

    assert withheld(MEL=5, NV=50) == set()
    assert withheld(MEL=4, DF=1, NV=50) == {"MEL", "DF"}
    assert withheld(MEL=4, NV=50, BCC=20) == {"MEL", "BCC"}  # one hidden count would be n minus the others
    assert withheld(MEL=0, NV=50, BCC=20) == {"MEL"}  # absent, as the list of present classes says anyway
    assert withheld(MEL=4) == {"MEL"}


@pytest.mark.parametrize(
    ("method", "task", "options", "kept"),
    [
        ("fedavg", "train", {}, set()),
        ("ssfl", "train", {}, set()),
        ("fedperl", "train", {}, set()),
        ("selffed", "pretrain", {}, {"classifier", "projection"}),
        ("selffed", "pretrain", {"pretext": "contrastive"}, {"classifier", "mask_token", "decoder"}),
        ("selffed", "train", {}, {"mask_token", "decoder", "projection"}),
        ("selffed", "train", {"contrastive": "client"}, {"mask_token", "decoder"}),
        ("selffed", "train", {"upload": "encoder"}, {"classifier", "mask_token", "decoder", "projection"}),
    ],
)
def test_every_method_sends_exactly_the_listed_names(method, task, options, kept, tmp_path):
    """The whole answer of a real site, as it would be serialised: names, shapes and dtypes."""
    experiment = tiny(method, options=options)
    site = Site("site-1", experiment, tmp_path)
    model = site._template
    ask = Ask(2, {key: value.clone() for key, value in model.items()}, {"site-1": Work(task)})
    reply = site.handle(wire.requests(ask, ["site-1"], RUN)["site-1"])
    assert "error" not in reply.meta
    assert set(reply.meta) <= wire.ANSWER_FIELDS
    floats = {key: tuple(value.shape) for key, value in model.items() if value.is_floating_point()}
    expected = {f"diff/{key}": shape for key, shape in floats.items() if key.split(".")[0] not in kept}
    assert kept < {key.split(".")[0] for key in floats}
    assert {name: array.shape for name, array in reply.arrays.items()} == expected
    assert all(array.dtype == np.float32 for array in reply.arrays.values())
    assert {row["split"] for row in reply.meta["metrics"]} == {"val", "test"}


def test_an_error_answer_says_the_kind_but_not_the_data(tmp_path):
    experiment = tiny(stand_in=None)
    site = Site("site-1", experiment, tmp_path, [tmp_path / "secret-folder"])
    ask = Ask(1, dict(site._template), {"site-1": Work()})
    reply = site.handle(wire.requests(ask, [], RUN)["site-1"])
    assert reply.meta["error"] == "ConfigError: the site's data or settings; the details are in the site's own log"
    assert not reply.arrays

"""Only what the wire list names leaves a site."""

import copy
import functools
import json
import math
import random
import re
import sys
from contextlib import nullcontext, suppress
from dataclasses import replace

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from asking import NEEDS, facts, requests, rules_of
from clients import new_client
from fedward.client.respondent import public_text
from fedward.errors import DataError, RunError, WireError, WorkError
from fedward.evaluation.answer_counts import AnswerCounts
from fedward.evaluation.names import ERRORS, OVERALL
from fedward.evaluation.selection import MetricRow
from fedward.methods.workflow import ClientTask, Exchange
from fedward.nets import build
from fedward.protocol import answer_checks, wire
from fedward.protocol.fields import RefusedError
from fedward.protocol.messages import Answer
from fedward.protocol.update_size import check_update_size
from fedward.protocol.wire import Message
from fedward.storage.rows import BinnedRow, QueryRow, row_of
from fedward.training.learner import Evaluation, Learner
from tiny import tiny

MODEL = {
    "a.weight": torch.tensor([1.0, 2.0]),
    "bn.num_batches_tracked": torch.tensor(4),
    "bn.mean": torch.tensor([0.5]),
}


RUN = "0123456789abcdef" * 2
CLASSES = ("MEL", "NV")


def request(task="train", part=0):
    exchange = Exchange(
        1,
        MODEL,
        {"s": ClientTask(task, models={"peer0": MODEL})} if task != "idle" else {},
        part=part,
    )
    return requests(tiny("fedperl"), exchange, ["s"])["s"]


def answer(**meta):
    base = {
        "site": "s",
        "round": 1,
        "labelled": 3,
        "unlabelled": 4,
        "steps": 2,
        "train": {"loss": 1.0},
        "metrics": [],
    }
    arrays = {
        "diff/a.weight": np.array([0.5, -1], np.float32),
        "diff/bn.mean": np.array([1.0], np.float32),
    }
    return Message({**base, **meta}, arrays)


def check(
    answer: Message, site: str, request: Message, withheld: tuple[str, ...] = (), **options
) -> None:
    needs = replace(NEEDS, tensors=replace(NEEDS.tensors, private=withheld))
    answer_checks.check_answer(answer, site, request, rules_of(needs, CLASSES), **options)


def row(**changes):
    return {"split": "val", "name": "accuracy", "value": 0.5, "n": 9, "classes": ["MEL"], **changes}


def without(name: str, of=None) -> dict:
    return {key: value for key, value in (of or row()).items() if key != name}


def test_request_carries_floats_only_and_names_roles():
    message = request()
    assert sorted(message.arrays) == ["model/a.weight", "model/bn.mean", "peer0"]
    assert wire.roles(message.arrays) == ["peer0"]
    task = {"task": "train", "evaluate": True, "round": 1, "part": 0}
    assert message.meta == {**task, **facts(tiny("fedperl"))}
    assert message.nbytes == 3 * 4 + message.arrays["peer0"].nbytes


def test_idle_sites_get_the_model_without_peers():
    assert sorted(request("idle").arrays) == ["model/a.weight", "model/bn.mean"]


def test_every_site_is_told_the_task_the_part_and_the_run():
    exchange = Exchange(
        4, MODEL, {"a": ClientTask("supervised"), "b": ClientTask("unsupervised")}, part=2
    )
    experiment = tiny("isofed")
    found = {
        site: message.meta for site, message in requests(experiment, exchange, ["b", "c"]).items()
    }
    common = {"round": 4, "part": 2, **facts(experiment)}
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


def test_withheld_tensors_are_not_sent_and_the_server_keeps_its():
    trained = {**MODEL, "a.weight": torch.tensor([1.5, 1.0]), "bn.mean": torch.tensor([9.0])}
    assert wire.travelling(MODEL, WITHHELD) == ["a.weight"]
    assert wire.shapes(request(), WITHHELD) == {"a.weight": (2,)}
    arrays = wire.difference(trained, MODEL, WITHHELD)
    assert list(arrays) == ["diff/a.weight"]
    reply = replace(answer(), arrays=arrays)
    check(reply, "s", request(), withheld=WITHHELD)
    rebuilt = wire.rebuild(MODEL, reply)
    assert list(rebuilt) == list(MODEL)
    assert torch.equal(rebuilt["a.weight"], trained["a.weight"])
    assert rebuilt["bn.mean"] is MODEL["bn.mean"]


def test_an_answer_with_what_is_withheld_is_refused_by_name():
    with pytest.raises(WireError, match=r"none of what does not go up \(bn\.\), found bn\.mean"):
        check(answer(), "s", request(), withheld=WITHHELD)
    with pytest.raises(WireError, match=r"none of what does not go up"):
        check(answer(), "s", request("idle"), withheld=WITHHELD)


def test_an_answer_with_missing_tensors_is_refused_by_name():
    with pytest.raises(WireError, match=r"diff/bn\.mean of s.*nothing"):
        check(without_what_is_withheld(), "s", request())


def test_the_size_of_an_update_is_checked_by_what_was_sent():
    """The squared norm of the sent part of the model is 5, of all 5.25, of the update 1.25."""
    check_update_size("s", without_what_is_withheld(), MODEL, 0.51)
    with pytest.raises(WireError, match=r"a norm of at most 1\.1 "):
        check_update_size("s", without_what_is_withheld(), MODEL, 0.49)


def test_a_good_answer_passes():
    check(answer(), "s", request())
    check(answer(restarts=2), "s", request())


NO_NUMBERS = (
    float("nan"),
    float("inf"),
    10**400,
    1e39,
    np.float32(0.5),
    np.array(0.5),
    torch.tensor(0.5),
)
COUNTS = {"asked": 1, "bought": 2, "waiting": 0, "cannot_tell": 0, "unusable": 0}


@pytest.mark.proves(
    "site",
    "texts, paths, further tensors, wrong rows or endless nesting in a reply",
    "refused by the server at the first fault; texts do not even leave the site",
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
        ({"labelled": True}, "labelled"),
        ({"labelled": 0, "unlabelled": 0}, "steps: expected 0 without an image"),
        ({"labelled": 10**400}, "labelled"),
        ({"label_counts": {**COUNTS, "asked": -1}}, r"label_counts\.asked: expected a count"),
        ({"label_counts": {**COUNTS, "bought": 1.5}}, r"label_counts\.bought: expected a count"),
        (
            {"label_counts": {**COUNTS, "MEL": 3}},
            "label_counts: expected no further name, found 'MEL'",
        ),
        ({"label_counts": {**COUNTS, "ids": ["a", "b"]}}, "ids"),
        ({"label_counts": {"asked": 3}}, r"label_counts\.bought: expected a value, found nothing"),
        ({"label_counts": [3]}, "label_counts: expected values by name"),
        ({"label_counts": None}, "label_counts"),
        ({"synthetic": "isic"}, "synthetic: expected true"),
        ({"synthetic": False}, "synthetic: expected true"),
        *[
            ({"card": {"texts": {"devices": text}, "unusable": 0}}, r"card\.texts: expected texts")
            for text in ("x" * 301, "", "a\nb", "\x1b[2J", "\u202egnp", " a", 7, None, ["a"])
        ],
        ({"card": {"texts": {"patient": "A"}, "unusable": 0}}, "card of s: expected only approval"),
        ({"card": {"texts": {}, "unusable": 3}}, "unusable: expected a count in fives"),
        ({"card": None}, "card"),
        ({"minutes": "long"}, "minutes: expected a number of 0 or more"),
        ({"minutes": -1.0}, "minutes: expected a number of 0 or more"),
        ({"scores": [0] * 64}, "expected no further name, found 'scores'"),
        ({"train": None}, "train: expected finite numbers by name"),
        ({"train": [["loss", 1.0]]}, "train: expected finite numbers by name"),
        ({"train": {"loss": float("nan")}}, "train: expected finite"),
        ({"train": {"loss": 10**400}}, "train: expected finite"),
        ({"train": {"loss": 1e300}}, "train: expected finite"),
        ({"train": {"loss": "1.0"}}, "train: expected finite"),
        ({"train": {"ids": 1.0}}, "train: expected only .*, found also ids"),
        ({"metrics": None}, "metrics"),
        ({"metrics": {"val": 1.0}}, "metrics"),
        ({"metrics": [["val", "accuracy"]]}, r"metrics\[0\]: expected values by name"),
        ({"metrics": [row(), row(value=0.6)]}, "one row for each"),
        ({"metrics": [row(path="x")]}, "path"),
        ({"metrics": [row(), row(name="f1_macro", n=8)]}, "one number of images"),
        ({"metrics": [row(), row(name="f1_macro", classes=["NV"])]}, "one number of images"),
        (
            {"metrics": [row(name="support/MEL", value=5), row(name="support/NV", value=5)]},
            "together than all, found 10.* of 9",
        ),
        *[
            (
                {"metrics": [without(name)]},
                rf"metrics\[0\]\.{name}: expected a value, found nothing",
            )
            for name in row()
        ],
        *[
            ({"metrics": [row(split=split)]}, "split")
            for split in ("train", "v", "patient Mueller", None, ["val"])
        ],
        ({"metrics": [row(name="patient")]}, "name"),
        ({"metrics": [row(name="aurc/MEL")]}, "name"),
        ({"metrics": [row(name="mce_adaptive", value=-0.5)]}, "mce_adaptive: expected a number"),
        ({"metrics": [row(name="f1/image_0042.png")]}, "name"),
        ({"metrics": [row(name="accuracy/MEL")]}, "name"),
        ({"metrics": [row(name="f1/MEL/0042")]}, "name"),
        ({"metrics": [row(name="f1")]}, "name"),
        ({"metrics": [row(name=None)]}, "answer of s"),
        *[({"metrics": [row(n=n)]}, r"\.n: ") for n in ("free text", -1, 1.0, True, None, [3])],
        *[
            ({"metrics": [row(classes=named)]}, "classes")
            for named in (["ids"], ["MEL", "MEL"], "MEL", None, {"MEL": 1})
        ],
        ({"metrics": [row(classes=[["MEL"]])]}, "answer of s"),
        *[
            ({"metrics": [row(value=value)]}, "accuracy: expected a number from 0 to 1")
            for value in (1.5, -0.1, 2)
        ],
        *[
            ({"metrics": [row(value=value)]}, "value: expected a finite")
            for value in (*NO_NUMBERS, "x", True)
        ],
        *[
            ({"metrics": [row(name="support/MEL", value=value)]}, "support/MEL")
            for value in (4, 0, 5.5, 10)
        ],
    ],
)
def test_meta_outside_the_list_is_refused(change, message):
    with pytest.raises(WireError, match=message):
        check(answer(**change), "s", request())


def test_a_card_is_refused_where_the_method_does_not_declare_it():
    card = {"texts": {"devices": "<script>"}, "unusable": 5}
    check(answer(card=card), "s", request())
    undeclared = replace(NEEDS, sends=replace(NEEDS.sends, card=False))
    rules = rules_of(undeclared, CLASSES)
    with pytest.raises(WireError, match="card of s: expected only nothing"):
        answer_checks.check_answer(answer(card=card), "s", request(), rules)


@pytest.mark.parametrize("off", [5e-7, 2e-6])
def test_a_share_may_be_off_by_rounding_and_no_more(off):
    for value in (-off, 1 + off):
        with (
            pytest.raises(WireError, match="a number from 0 to 1") if off > 1e-6 else nullcontext()
        ):
            check(answer(metrics=[row(value=value)]), "s", request())


def test_an_update_may_be_as_long_as_the_bound_and_no_longer():
    model = {"w": torch.tensor([3.0, 4.0])}
    update = Message({}, {"diff/w": np.array([6.0, 8.0], np.float32)})
    check_update_size("s", update, model, 2.0)
    with pytest.raises(
        WireError, match=r"a norm of at most 9\.5 \(largest_update = 1\.9\), found 10"
    ):
        check_update_size("s", update, model, 1.9)


LARGER = pytest.mark.proves(
    "site",
    "texts, paths, further tensors, wrong rows or endless nesting in a reply",
    "refused by the server at the first fault; texts do not even leave the site",
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
        check(bad, "s", request())


@pytest.mark.parametrize("part", [0, 2])
def test_an_answer_without_a_step_carries_no_model(part):
    empty = Message(answer(steps=0, train={}).meta)
    check(empty, "s", request(part=part))
    with pytest.raises(WireError, match="arrays of s"):
        check(answer(steps=0), "s", request(part=part))


def test_metrics_nobody_asked_for_are_refused():
    asked = request()
    unasked = replace(asked, meta={**asked.meta, "evaluate": False})
    check(answer(metrics=[row()]), "s", asked)
    with pytest.raises(WireError, match="not to be evaluated"):
        check(answer(metrics=[row()]), "s", unasked)


@pytest.mark.parametrize(
    "name", ["train", "metrics", "labelled", "unlabelled", "steps", "site", "round"]
)
def test_an_answer_without_what_the_driver_reads_is_refused(name):
    with pytest.raises(WireError):
        check(replace(answer(), meta=without(name, answer().meta)), "s", request())


@pytest.mark.parametrize(
    ("meta", "arrays"),
    [
        ({"error": {"path": "/data"}}, {}),
        ({"error": "boom", "labelled": 3}, {}),
        ({"error": "boom"}, answer().arrays),
    ],
)
def test_an_error_is_text_and_nothing_else(meta, arrays):
    for encrypted in (False, True):
        check(
            Message({"site": "s", "round": 1, "error": "boom", "restarts": 1}),
            "s",
            request(),
            encrypted=encrypted,
        )
        with pytest.raises(WireError):
            check(
                Message({"site": "s", "round": 1, **meta}, arrays),
                "s",
                request(),
                encrypted=encrypted,
            )


def test_an_idle_site_has_taken_no_step():
    check(Message(answer(steps=0, train={}).meta), "s", request("idle"))
    with pytest.raises(WireError, match="0 after the task idle"):
        check(Message(answer(train={}).meta), "s", request("idle"))


def test_an_idle_site_may_not_upload_a_model():
    with pytest.raises(WireError, match="arrays of s"):
        check(answer(), "s", request("idle"))


def test_a_request_of_another_shape_names_the_tensor():
    with pytest.raises(WireError, match=r"model/bn\.mean"):
        wire.unflatten("model", {"model/a.weight": np.zeros(2, np.float32)}, MODEL)


@pytest.mark.parametrize(
    ("method", "task", "options", "kept"),
    [
        ("fedavg", "train", {}, set()),
        ("ssfl", "train", {}, set()),
        ("fedperl", "train", {}, set()),
        ("selffed", "pretrain", {}, {"classifier", "projection"}),
        (
            "selffed",
            "pretrain",
            {"pretext": "contrastive"},
            {"classifier", "mask_token", "decoder"},
        ),
        ("selffed", "train", {}, {"mask_token", "decoder", "projection"}),
        ("selffed", "train", {"contrastive": "client"}, {"mask_token", "decoder"}),
        (
            "selffed",
            "train",
            {"upload": "encoder"},
            {"classifier", "mask_token", "decoder", "projection"},
        ),
    ],
)
def test_every_method_sends_exactly_the_listed_names(method, task, options, kept, tmp_path):
    """The whole answer of a real site, as it would be serialised: names, shapes and dtypes."""
    experiment = tiny(method, options=options)
    site = new_client("site-1", experiment, tmp_path)
    model = site.learner.networks.template
    exchange = Exchange(
        2, {key: value.clone() for key, value in model.items()}, {"site-1": ClientTask(task)}
    )
    reply = site.handle(requests(experiment, exchange, ["site-1"])["site-1"])
    assert "error" not in reply.meta
    assert set(reply.meta) <= set(Answer.model_fields)
    floats = {key: tuple(value.shape) for key, value in model.items() if value.is_floating_point()}
    expected = {
        f"diff/{key}": shape for key, shape in floats.items() if key.split(".")[0] not in kept
    }
    assert kept < {key.split(".")[0] for key in floats}
    assert {name: array.shape for name, array in reply.arrays.items()} == expected
    assert all(array.dtype == np.float32 for array in reply.arrays.values())
    assert {row["split"] for row in reply.meta["metrics"]} == {"val", "test"}


def test_an_error_answer_says_the_kind_but_not_the_data(tmp_path):
    experiment = tiny(synthetic=None)
    site = new_client("site-1", experiment, tmp_path, [tmp_path / "secret-folder"])
    exchange = Exchange(1, build(experiment.net, 8).state_dict(), {"site-1": ClientTask()})
    reply = site.handle(requests(experiment, exchange)["site-1"])
    assert (
        reply.meta["error"]
        == "ConfigError: the site's data or settings; the details are in the site's own log"
    )
    assert not reply.arrays


# --- whatever a site sends

WORDS = (
    None,
    True,
    False,
    -1,
    0,
    7,
    2**60,
    10**400,
    0.5,
    float("nan"),
    float("-inf"),
    1e308,
    "",
    "val",
    "text",
    b"x",
)
WORDS += (
    [],
    {},
    [1],
    {"a": 1},
    [None] * 64,
    {1: 2},
    [[]],
    (),
    "support/MEL",
    "/",
    ["MEL"],
    np.float32(1),
    np.zeros(2),
)


def whole() -> Message:
    rows = [
        row(),
        row(split="test", name="f1/MEL"),
        row(name="support/NV", value=9.0),
        row(name="f1/NV", value=None),
    ]
    return answer(metrics=rows, label_counts=COUNTS, minutes=1.5, restarts=0)


def places(value, at=()):
    """Yield the way to every value inside dictionaries and lists."""
    for key, inner in (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    ):
        yield (*at, key)
        yield from places(inner, (*at, key))


def mutated(draw: random.Random) -> Message:
    """The whole answer after one to three changes: values replaced, removed, added or renamed."""
    message = Message(copy.deepcopy(whole().meta), dict(whole().arrays))
    for _ in range(draw.randint(1, 3)):
        target = draw.choice((message.meta, message.meta, message.arrays))
        *way, last = draw.choice(list(places(target)) or [("site",)])
        try:
            for key in way:
                target = target[key]
            change = draw.randrange(4)
            word = copy.deepcopy(draw.choice(WORDS))
            if change == 0:
                target[last] = word
            elif change == 1:
                del target[last]
            elif change == 2:
                target[draw.choice(("error", "key", "extra", "minutes", 3, "name"))] = word
            else:
                target[f"{last}/x"] = target.pop(last)
        except (KeyError, TypeError, IndexError, AttributeError):
            continue  # an earlier change took the place away
    return message


def use(message: Message) -> None:
    """Read what driver, log and report read of an accepted answer."""
    meta = message.meta
    if "error" in meta:
        assert isinstance(meta["error"], str)
        return
    json.dumps(meta, allow_nan=False)
    assert all(
        math.isfinite(float(meta[name]) ** 2) for name in ("labelled", "unlabelled", "steps")
    )
    numbers = [
        *meta["train"].values(),
        *(row["value"] for row in meta["metrics"] if row["value"] is not None),
    ]
    assert math.isfinite(math.fsum(number**2 for number in numbers))
    for found in meta["metrics"]:
        row_of(MetricRow, json.dumps({"round": 1, "site": "s", **found}))
        assert found["split"] in ("val", "test")
        assert found["name"].rpartition("/")[2] in (*CLASSES, *OVERALL, *ERRORS)
        assert set(found["classes"]) <= set(CLASSES)
    if "label_counts" in meta:
        counts = {**meta["label_counts"], "labelled": 1, "unlabelled": 1}
        row_of(
            QueryRow,
            json.dumps({"round": 1, "site": "s", **counts, "minutes": meta.get("minutes")}),
        )
    if meta["steps"]:
        wire.rebuild(MODEL, message)


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_every_answer_is_one_the_driver_can_use_or_is_refused(seed, encrypted):
    """Nothing but WireError comes out of the check, whatever goes in."""
    draw = random.Random(seed)
    refused = 0
    accepted = 0
    for _ in range(800):
        message = mutated(draw)
        try:
            check(message, "s", request(draw.choice(("train", "idle"))), encrypted=encrypted)
        except WireError:
            refused += 1
            continue
        accepted += 1
        use(message)
    assert refused > 100
    assert accepted > 10 or encrypted


def test_whatever_stands_in_counts_is_used_or_refused():
    """Each value by itself is replaced by each word, and removed."""
    draw = np.random.default_rng(0)
    labels = np.repeat([0, 1], [30, 20])
    binned = AnswerCounts.of_one_answer(draw.dirichlet([1, 1], 50), labels).to_wire()
    binned["subgroups"] = _further_counts()["subgroups"]
    binned["subgroups"][0]["right"] = [[0, 0, 0], [0, 0, 0]]
    binned["subgroups"][0]["images"] = [[0, 0, 0], [0, 0, 0]]
    binned["clusters"] = _further_counts()["clusters"]
    rows = [row(split="test", n=50)]
    accepted = 0
    check(answer(metrics=rows, binned=copy.deepcopy(binned)), "s", request())
    for *way, last in places(binned):
        if isinstance(last, int) and last > 2:
            continue  # Intervals are checked alike.
        for word in WORDS:
            changed = copy.deepcopy(binned)
            target = functools.reduce(lambda inner, key: inner[key], way, changed)
            target[last] = word
            with suppress(WireError):
                check(answer(metrics=rows, binned=changed), "s", request())
                row_of(BinnedRow, json.dumps({"round": 1, "site": "s", **changed}, allow_nan=False))
                accepted += 1
    assert accepted > 10, "such as a 0 in the place of a 0"


def _further_counts():
    """Return counts of 50 images, also by sex and patient."""
    labels = np.repeat([0, 1], [30, 20])
    binned = AnswerCounts.of_one_answer(np.eye(2)[labels], labels).to_wire()
    column = {"column": "sex", "groups": ["F", "M", "not stated"]}
    column |= {"images": [[10, 16, 0], [0, 0, 0]], "right": [[10, 16, 0], [0, 0, 0]]}
    clusters = {"patients": [10, 0], "effective": [12, 0], "all_patients": 15, "all_effective": 20}
    return {**binned, "subgroups": [column], "clusters": clusters}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": [[10, 17, 0], [0, 0, 0]]}, "4 images left out for each group"),
        ({"images": [[10, 20, 0], [0, 0, 0]]}, "4 images left out for each group"),
        ({"images": [[4, 18, 0], [0, 0, 0]]}, "0, or 5 images or more"),
        ({"images": [[10, 16, 0]]}, "a count for each class and group"),
        ({"images": [[10, 16], [0, 0]]}, "a count for each class and group"),
        ({"right": [[11, 15, 0], [0, 0, 0]]}, "no more right answers than images"),
        ({"right": [[5, 16, 0], [0, 0, 0]]}, "right answers that fit those of the class"),
        ({"groups": ["F", "M", "diverse"]}, "not stated as the last"),
        ({"groups": ["F", "F", "not stated"]}, "different ones"),
        ({"groups": ["F", "Mueller\n", "not stated"]}, "names of groups"),
        ({"groups": [f"{number}" for number in range(13)]}, "different ones"),
        ({"column": "x" * 41}, "1 to 40 printable characters"),
        ({"ids": ["a"]}, "expected no further name"),
    ],
)
def test_counts_by_subgroup_that_break_the_rule_are_refused(change, message):
    rows = [row(split="test", n=50)]
    sent = _further_counts()
    check(answer(metrics=rows, binned=sent), "s", request())
    sent["subgroups"][0] |= change
    with pytest.raises(WireError, match=message):
        check(answer(metrics=rows, binned=sent), "s", request())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"subgroups": []}, "1 to 5 different columns"),
        ({"subgroups": _further_counts()["subgroups"] * 2}, "1 to 5 different columns"),
        (
            {
                "subgroups": [
                    {**_further_counts()["subgroups"][0], "column": f"column {number}"}
                    for number in range(6)
                ]
            },
            "1 to 5 different columns",
        ),
        ({"subgroups": None}, "subgroups"),
        *[
            ({"clusters": {**_further_counts()["clusters"], name: value}}, message)
            for name, value, message in (
                ("patients", [12, 0], "counts in fives"),
                ("patients", [10], "a count for each class"),
                ("patients", [35, 0], "no more than images"),
                ("effective", [31, 0], "no more than images"),
                ("effective", [12, 3], "0 where there are no patients"),
                ("effective", [0, 0], "no more than images"),
                ("all_effective", 31, "no more than images"),
                ("all_patients", 35, "no more than images"),
                ("images_of_patients", [3, 2, 1], "expected no further name"),
            )
        ],
    ],
)
def test_further_counts_that_are_not_possible_are_refused(change, message):
    binned = {**_further_counts(), **change}
    with pytest.raises(WireError, match=message):
        check(answer(metrics=[row(split="test", n=50)], binned=binned), "s", request())


@pytest.mark.parametrize(
    "clusters",
    [
        {"patients": [30, 20], "effective": [30, 20], "all_patients": 50, "all_effective": 50},
        {"patients": [5, 0], "effective": [1, 0], "all_patients": 5, "all_effective": 1},
    ],
    ids=["an image of each patient", "images of few patients that are all alike"],
)
def test_patients_at_both_bounds_are_taken(clusters):
    binned = {**_further_counts(), "clusters": clusters}
    check(answer(metrics=[row(split="test", n=50)], binned=binned), "s", request())


@pytest.mark.parametrize(
    ("images", "right", "message"),
    [
        # One image of Canons more than of their models: who is missing there is in a small group.
        ([13, 10, 0], [13, 9, 0], "the same images of a class in all columns"),
        ([12, 10, 0], [12, 9, 0], "the same images of a class in all columns"),
        ([12, 10, 0], [12, 10, 0], ""),
        # Each column leaves out as many images as its own small group asks for, but not both.
        ([16, 10, 0], [16, 10, 0], "4 images left out for each group"),
    ],
)
def test_columns_of_subgroups_are_counted_on_the_same_images(images, right, message):
    sent = _further_counts()
    (column,) = sent["subgroups"]
    other = {**column, "column": "camera", "groups": ["Canon", "Zeiss", "not stated"]}
    sent["subgroups"] = [
        {**column, "images": [[9, 13, 0], [0] * 3], "right": [[9, 13, 0], [0] * 3]},
        {**other, "images": [images, [0] * 3], "right": [right, [0] * 3]},
    ]
    if sum(images) == 26:
        sent["subgroups"][0] = column
    with pytest.raises(WireError, match=message) if message else nullcontext():
        check(answer(metrics=[row(split="test", n=50)], binned=sent), "s", request())


@pytest.mark.parametrize("name", ["subgroups", "clusters"])
def test_further_counts_are_refused_where_the_method_does_not_declare_them(name):
    undeclared = replace(NEEDS, sends=replace(NEEDS.sends, **{name: False}))
    sent = answer(metrics=[row(split="test", n=50)], binned=_further_counts())
    with pytest.raises(WireError, match=f"{name}: expected none in this job"):
        answer_checks.check_answer(sent, "s", request(), rules_of(undeclared, CLASSES))


def test_counts_go_with_an_evaluation_alone():
    labels = np.repeat([0, 1], [30, 20])
    binned = AnswerCounts.of_one_answer(np.eye(2)[labels], labels).to_wire()
    with pytest.raises(WireError, match="no more images than the 0 of the metrics"):
        check(answer(binned=binned), "s", request())
    unevaluated = Message({**request().meta, "evaluate": False}, request().arrays)
    with pytest.raises(WireError, match="counts of s: expected none where no evaluation was asked"):
        check(answer(binned=binned), "s", unevaluated)


SECRET = "mueller-4711"


def refusal_of(message: Message) -> RefusedError | None:
    try:
        check(message, "s", request())
    except RefusedError as error:
        return error
    return None


@pytest.mark.parametrize("seed", range(4))
def test_a_refusal_tells_the_server_nothing_of_what_was_found(seed, monkeypatch):
    """Whatever stands in the wrong place, as a value or as a name."""
    hidden = (
        SECRET,
        {SECRET: 1},
        [SECRET],
        {"loss": SECRET},
        [{SECRET: 1}],
        SECRET.encode(),
        471147114711,
        "\ud800",
    )
    monkeypatch.setattr(sys.modules[__name__], "WORDS", hidden)
    draw = random.Random(seed)
    refused = 0
    for _ in range(400):
        message = mutated(draw)
        message.meta = {
            str(name).replace("/x", SECRET): value for name, value in message.meta.items()
        }
        error = refusal_of(message)
        if error:
            refused += 1
            assert not re.search("mueller|4711", public_text(error))
            assert len(str(error)) < 1500
    assert refused > 200


def fault_count(meta) -> int:
    try:
        Answer.model_validate(meta)
    except ValidationError as error:
        return error.error_count()
    return 0


def deep() -> list:
    value: list = []
    for _ in range(100_000):
        value = [value]
    return value


def endless_names() -> dict[str, int]:
    return {f"name-{number}": -1 for number in range(200_000)}


@pytest.mark.proves(
    "site",
    "texts, paths, further tensors, wrong rows or endless nesting in a reply",
    "refused by the server at the first fault; texts do not even leave the site",
)
@pytest.mark.parametrize(
    "change",
    [
        endless_names,
        lambda: {"train": endless_names()},
        lambda: {"label_counts": endless_names()},
        lambda: {"metrics": [endless_names()]},
        lambda: {"metrics": [row(n=-1, path="x")] * 200_000},
        lambda: {"metrics": deep()},
        lambda: {"train": {"loss": deep()}},
        lambda: {"steps": deep()},
        lambda: {"site": "s" * 10**7},
    ],
    ids=range(9),
)
def test_faults_without_number_are_not_described_one_by_one(change):
    """Descriptions of all would take up many times the answer's own size."""
    message = answer(**change())
    assert refusal_of(message)
    assert len(str(refusal_of(message))) < 1500
    assert fault_count(message.meta) < 100


@pytest.mark.parametrize(
    "mean", [{"mean/a.weight": None}, {"mean/a.weight": [1.0]}, {3: np.zeros(2, np.float32)}]
)
def test_a_mean_that_is_no_arrays_is_refused(mean):
    with pytest.raises(WireError):
        answer_checks.check_mean(
            Message({"site": "s", "round": 1}, mean), "s", request(), {"a.weight": (2,)}
        )


# --- what a site says of its errors


def test_what_was_found_in_a_refused_answer_stays_at_the_site(tmp_path, monkeypatch):
    site = new_client("site-1", tiny(), tmp_path)
    rows = [row(name="f1/image_0042.png")]
    monkeypatch.setattr(Learner, "evaluate", lambda self, model: Evaluation(rows, None))
    exchange = Exchange(1, dict(site.learner.networks.template), {})
    reply = site.handle(requests(site.experiment, exchange, ["site-1"])["site-1"])
    assert reply.meta["error"].startswith("metrics of site-1, name: expected one of")
    assert "0042" not in reply.meta["error"]


def test_the_path_of_a_damaged_file_stays_at_the_site(tmp_path, caplog):
    site = new_client("site-1", tiny("rscfed"), tmp_path)
    (tmp_path / "memory" / RUN).mkdir(parents=True)
    (tmp_path / "memory" / RUN / "00001-000.safetensors").write_bytes(b"")
    exchange = Exchange(2, dict(site.learner.networks.template), {})
    reply = site.handle(requests(site.experiment, exchange, ["site-1"])["site-1"])
    assert (
        reply.meta["error"]
        == "RunError: what it keeps of the run; the details are in the site's own log"
    )
    assert str(tmp_path) in caplog.text


def test_an_error_inside_a_check_is_a_refusal_that_is_not_chained_to_it():
    """A log that prints a chain would quote the answer."""
    not_to_be_read = request()
    del not_to_be_read.meta["evaluate"]
    with pytest.raises(RefusedError, match="KeyError: 'evaluate'") as refused:
        check(answer(), "s", not_to_be_read)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            WorkError("training", expected="a finite loss", found="nan", remedy="x"),
            "training: expected a finite loss",
        ),
        (
            WireError("tensor a", expected="shape 2", found="shape 3", remedy="x"),
            "tensor a: expected shape 2, found",
        ),
        (RunError("/data", expected="/data", found="/data", remedy="/data"), "RunError: "),
        (
            DataError("/data", expected="/data", found="/data", remedy="/data"),
            "DataError: the site's data",
        ),
        (FileNotFoundError("/data"), "FileNotFoundError: an unexpected error"),
    ],
)
def test_only_texts_that_hold_no_path_are_sent(error, text):
    assert public_text(error).startswith(text)
    assert "/data" not in public_text(error)

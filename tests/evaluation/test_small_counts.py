"""What a site reports of a split reveals nothing of classes with fewer than five images there."""

import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from asking import requests
from clients import new_client
from fedward.client.site_data import DataSource
from fedward.config import DataSpec, Experiment
from fedward.errors import DataError
from fedward.evaluation.evaluated_images import images_of_common_classes
from fedward.evaluation.small_counts import (
    SMALLEST_COUNT,
    withhold_small_counts,
)
from fedward.methods.workflow import Exchange
from fedward.nets import build
from fedward.sites import SERVER, Images, load_site
from fedward.sites.split import group_split
from surveyed import write_hospital
from tiny import tiny

CLASSES = ("A", "B", "C", "D")
EXPERIMENT = Experiment(
    method="fedavg",
    data=DataSpec(classes=CLASSES, image_size=16),
    net="small_cnn",
    synthetic=None,
    seed=1,
)


def write_site(
    folder: Path, val: Sequence[int], test: Sequence[int], name: str = "site-1", shade: int = 0
) -> Path:
    """Write a site with these numbers of images of each class in each split.

    ``shade`` changes the pictures of rare classes. A picture is of one brightness; its class cannot
    be told from it with certainty.
    """
    arrays = {}
    draw = np.random.default_rng(7)
    for split, counts in (("train", [6] * len(CLASSES)), ("val", val), ("test", test)):
        labels = np.repeat(np.arange(len(CLASSES)), counts)
        levels = draw.permutation(256)[: len(labels)].astype(np.uint8)
        order = np.arange(len(labels))
        for number, label in enumerate(
            labels
        ):  # those of the common classes are the same in all files
            common = counts[label] >= SMALLEST_COUNT or split == "train"
            levels[number] = (
                37 * label + 11 * (number - sum(counts[:label])) + (0 if common else shade)
            ) % 256
        order = np.lexsort((labels, levels))
        arrays[f"{split}_images"] = np.broadcast_to(
            levels[order, None, None, None], (len(labels), 16, 16, 3)
        ).copy()
        arrays[f"{split}_images"][:, 0, 0] ^= 1  # an image of one colour is refused as blank
        arrays[f"{split}_labels"] = labels[order, None]
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / f"{name}.npz", **arrays)
    content = {
        "kind": "npz",
        "file": f"{name}.npz",
        "labels": dict(enumerate(CLASSES)),
        "max_rejected": 0.0,
    }
    (folder / f"{name}.yaml").write_text(json.dumps(content))
    return folder


def crafted(slopes: Sequence[float], offsets: Sequence[float]) -> dict[str, Tensor]:
    """A model whose logits are linear in brightness: slope * brightness + offset for each class."""
    state = {
        key: torch.zeros_like(value)
        for key, value in build("small_cnn", len(CLASSES)).state_dict().items()
    }
    state["features.0.weight"][0, :, 2, 2] = 1 / 6  # half of the input, which is in [-1, 1] ...
    state["features.0.bias"][0] = 0.5  # ... is in [0, 1] again
    state["features.3.weight"][0, 0, 2, 2] = 1.0
    state["features.8.weight"][0, :16] = 1 / 16
    for name in ("features.10", "projection.0", "projection.2"):
        state[f"{name}.weight"][0, 0] = 1.0
    state["classifier.weight"][:, 0] = torch.tensor(slopes)
    state["classifier.bias"][:] = torch.tensor(offsets)
    return state


def always(place: int) -> dict[str, Tensor]:
    return crafted([0.0] * 4, [10.0 * (index == place) for index in range(4)])


def either(below: int, above: int, threshold: float) -> dict[str, Tensor]:
    """One class for images that are darker than a threshold, another for the brighter ones."""
    slopes = [0.0] * 4
    offsets = [-1e4] * 4
    slopes[above], offsets[above], offsets[below] = 1e3, -1e3 * threshold, 0.0
    return crafted(slopes, offsets)


ATTACKS = [
    *(always(place) for place in range(4)),
    *(either(a, b, 0.1 + 0.1 * a) for a in range(4) for b in range(4) if a != b),
    crafted([torch.nan, 0.0, 0.0, 0.0], [0.0] * 4),
    crafted([3e38] * 4, [0.0] * 4),
]


def everything_sent(folder: Path, own: Path, models: Sequence[dict[str, Tensor]]) -> list[Any]:
    """The whole answers of a site that evaluates one model after the other."""
    site = new_client("site-1", EXPERIMENT, own, [folder])
    answers = []
    for number, model in enumerate(models, 1):
        answer = site.handle(
            requests(EXPERIMENT, Exchange(number, model, {}), ["site-1"])["site-1"]
        )
        answers.append(answer.meta)
        assert not answer.arrays
    return answers


def rows(answer: dict[str, Any], split: str) -> dict[str, Any]:
    return {row["name"]: row for row in answer["metrics"] if row["split"] == split}


@pytest.mark.proves(
    "lead",
    "images of a rare class, counted by surveys, crafted or random models, errors or sums",
    "all answers are the same for 0 to 4 of them, bit for bit",
)
def test_crafted_models_learn_nothing_of_small_counts(tmp_path):
    """Each rare class by itself, and both; the others' counts are told exactly."""
    first = None
    for c, d, shade in [(0, 0, 0), (1, 4, 3), (2, 3, 90), (3, 1, 140), (4, 2, 250)]:
        val = (9, 6, c, d)
        test = (d, 12, 5, c)
        folder = write_site(tmp_path / f"{c}{d}{shade}", val, test, shade=shade)
        sent = everything_sent(folder, tmp_path / f"own{c}{d}{shade}", ATTACKS)
        first = first or sent
        assert sent == first
    assert first is not None
    answered = [answer for answer in first if "error" not in answer]
    assert len(answered) == len(ATTACKS) - 1, (
        "the model that answers NaN is the only one that cannot be evaluated"
    )
    constant = rows(answered[0], "val")
    assert {row["n"] for row in constant.values()} == {15}
    assert constant["accuracy"]["value"] == pytest.approx(9 / 15)
    told = {name: row["value"] for name, row in constant.items() if name.startswith("support/")}
    assert told == {"support/A": 9.0, "support/B": 6.0, "support/C": None, "support/D": None}
    assert [rows(answered[0], split)["accuracy"]["classes"] for split in ("val", "test")] == [
        ["A", "B"],
        ["B", "C"],
    ]


@pytest.mark.proves(
    "lead",
    "images of a rare class, counted by surveys, crafted or random models, errors or sums",
    "all answers are the same for 0 to 4 of them, bit for bit",
)
@settings(
    deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    common=st.lists(st.integers(5, 12), min_size=1, max_size=3),
    one=st.lists(st.integers(0, 4), min_size=4, max_size=4),
    other=st.lists(st.integers(0, 4), min_size=4, max_size=4),
    shades=st.tuples(st.integers(0, 255), st.integers(0, 255)),
    models=st.lists(
        st.tuples(*[st.lists(st.floats(-50, 50), min_size=4, max_size=4)] * 2),
        min_size=1,
        max_size=4,
    ),
)
def test_no_models_tell_rare_classes_apart(tmp_path_factory, common, one, other, shades, models):
    sent = []
    for rare, shade in zip((one, other), shades, strict=True):
        base = tmp_path_factory.mktemp("site")
        counts = [*common, *rare[len(common) :]]
        folder = write_site(base / "files", counts, counts[::-1], shade=shade)
        sent.append(everything_sent(folder, base / "own", [crafted(*model) for model in models]))
    assert sent[0] == sent[1]


@pytest.mark.proves(
    "lead",
    "images of a rare class, counted by surveys, crafted or random models, errors or sums",
    "all answers are the same for 0 to 4 of them, bit for bit",
)
def test_images_of_rare_classes_cause_no_error(tmp_path):
    """A logit overflows above a brightness of 0.45; only images of the rare class are as bright."""
    overflow = crafted([1.9e37, 0.0, 0.0, 0.0], [0.0] * 4)
    overflow["projection.2.weight"][0, 0] = 40.0
    for count in (0, 4):
        folder = write_site(tmp_path / str(count), (9, 6, count, 0), (9, 6, 0, 0), shade=150)
        (answer,) = everything_sent(folder, tmp_path / f"own{count}", [overflow])
        assert answer["metrics"]
    common = write_site(tmp_path / "common", (9, 6, 5, 0), (9, 6, 0, 0), shade=150)
    arrays = dict(np.load(common / "site-1.npz"))
    arrays["val_images"][arrays["val_labels"][:, 0] == CLASSES.index("C")] |= 128
    np.savez(common / "site-1.npz", **arrays)
    (answer,) = everything_sent(common, tmp_path / "own", [overflow])
    assert "error" in answer, "of five images, it would tell"


@pytest.mark.proves(
    "lead",
    "the number of a class's training images, from one step of a model of zeros",
    "**not covered**: an update depends on its labels; noise or encryption is for that",
)
def test_an_update_tells_the_classes_of_training_images(tmp_path):
    """The gradient of a bias is the mean over images of probability minus label."""
    folder = write_site(tmp_path / "files", (9, 6, 0, 0), (9, 6, 0, 0))
    options = {"optimizer": "sgd", "momentum": 0.0, "learning_rate": 1.0, "class_weighting": "none"}
    job = EXPERIMENT.model_copy(
        update={"options": {**options, "images_per_round": None, "batch": 32}}
    )
    site = new_client("site-1", job, tmp_path / "own", [folder])
    model = crafted([0.0] * 4, [0.0] * 4)
    trained, steps, _ = site.learner.train(model, [], 1)
    found = (trained["classifier.bias"] + 0.25) * 24
    assert steps == 1
    assert found.tolist() == pytest.approx([6.0] * 4, abs=1e-4)


@pytest.mark.proves(
    "lead",
    "a job that leaves a class out, whose images then count as unusable",
    "**not covered**: a site refuses the job if they exceed `max_rejected` (default 5 "
    "% of all rows)",
)
def test_a_class_left_out_may_be_more_than_a_site_rejects(tmp_path: Path) -> None:
    for rare, refused in ((2, False), (3, True)):
        held = [("NV", "train", 37, 160, "a*", "X"), ("NV", "test", 10, 60, "b*", "X")]
        file = write_hospital(tmp_path / f"{rare}", [*held, ("DF", "test", rare, 230, "c*", "X")])
        spec = DataSpec(classes=("NV", "MEL"), image_size=16)
        with (
            pytest.raises(DataError, match="at most 5% of 50 rows unusable")
            if refused
            else nullcontext()
        ):
            load_site(file, spec)


@pytest.mark.proves(
    "lead",
    "the size of a drawn test split, where a patient has images of several classes",
    "**not covered**: images of a rare class influence where other patients go",
)
def test_images_of_a_rare_class_move_others_in_drawn_splits() -> None:
    """Of 40 patients with an image each, the first ones have one of another class, too.

    None of them is in five images.
    """
    sizes = set[int]()
    for rare in range(5):
        groups = [f"p{number}" for number in (*range(40), *range(rare))]
        labels = np.array([0] * 40 + [1] * rare)
        parts = group_split(groups, labels, [0.6, 0.15, 0.25], seed=0)
        sizes.add(int(((parts == 2) & (labels == 0)).sum()))
    assert len(sizes) > 1


def test_a_class_needs_five_images_and_order_is_kept():
    labels = np.array([2, 0, 1, 0, 2, 0, 1, 0, 1, 0, 1], np.int64)
    images = Images(
        tuple("abcdefghijk"), np.arange(11, dtype=np.uint8).reshape(11, 1, 1, 1), labels
    )
    kept = images_of_common_classes(images)
    assert kept.ids == ("b", "d", "f", "h", "j")
    assert kept.labels.tolist() == [0] * 5
    assert kept.pixels.ravel().tolist() == [1, 3, 5, 7, 9]
    assert images_of_common_classes(kept) is kept
    assert len(images_of_common_classes(images.named(["a"]))) == 0
    assert len(images_of_common_classes(images.named([]))) == 0


def test_training_images_and_the_servers_own_are_all_used(tmp_path, caplog):
    folder = write_site(tmp_path / "files", (9, 2, 0, 0), (5, 5, 5, 1))
    write_site(folder, (9, 2, 0, 0), (5, 5, 5, 1), name=SERVER)
    with caplog.at_level("INFO"):
        data = DataSource("site-1", EXPERIMENT, tmp_path, (folder,)).read(class_totals=False)
    assert (len(data.labelled), len(data.val), len(data.test)) == (24, 9, 15)
    assert "site-1: 2 of 11 val images are not used" in caplog.text
    assert "site-1: 1 of 16 test images are not used" in caplog.text
    assert (
        len(DataSource(SERVER, EXPERIMENT, tmp_path, (folder,)).read(class_totals=False).val) == 11
    )


def test_synthetic_images_are_evaluated_without_rare_classes(tmp_path):
    site = new_client("site-1", tiny("fedavg"), tmp_path)
    exchange = Exchange(1, build("small_cnn", 8, seed=0).state_dict(), {})
    answer = site.handle(requests(site.experiment, exchange, ["site-1"])["site-1"])
    found = rows(answer.meta, "test")
    counts = np.bincount(site.data.test.labels, minlength=8)
    assert found["accuracy"]["n"] == len(site.data.test)
    for name, count in zip(site.data.classes, counts, strict=True):
        assert found[f"support/{name}"]["value"] == (count if count >= SMALLEST_COUNT else None)


def rows_of(split: str, counts: dict[str, int]) -> list[dict[str, object]]:
    common = {
        "split": split,
        "n": sum(counts.values()),
        "classes": [name for name, count in counts.items() if count],
    }
    found = [{**common, "name": "accuracy", "value": 0.5}]
    for name, count in counts.items():
        found += [
            {**common, "name": f"{kind}/{name}", "value": 0.5 if count else None}
            for kind in ("f1", "auroc")
        ]
        found.append({**common, "name": f"support/{name}", "value": float(count)})
    return found


def test_no_row_tells_a_rare_class_from_an_absent_one():
    """Each split for itself: on validation images nothing is withheld."""
    absent = {"A": 9, "B": 30, "C": 0, "D": 4}
    small = {"A": 9, "B": 30, "C": 4, "D": 0}
    val = rows_of("val", {"A": 9, "B": 5, "C": 6, "D": 7})
    found, other = (
        withhold_small_counts([*val, *rows_of("test", counts)]) for counts in (absent, small)
    )
    assert found == other
    assert found[: len(val)] == val
    for row in found[len(val) :]:
        assert row["classes"] == ["A", "B"]
        assert (row["value"] is None) == (str(row["name"])[-2:] in ("/C", "/D"))

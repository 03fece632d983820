"""Whole runs of FedIRM, and attacks on the relation matrix that leaves a site."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from asking import requests
from clients import new_client
from drawn_sites import write_site
from fedward.client.survey import counted_images
from fedward.config import DataSpec, Experiment, SyntheticData
from fedward.errors import WireError
from fedward.methods import method_of
from fedward.methods.fedirm.relations import ROWS
from fedward.methods.workflow import ClientTask, Exchange
from fedward.protocol.answer_checks import check_answer
from fedward.protocol.wire import Message, decode_update, encode_update, shapes
from fedward.security.sums import grant, image_set
from interrupted import interrupted
from run_files import assert_equal, rows, weights
from running import resume_local, run_local
from starting import initial_model
from tiny import tiny

pytestmark = pytest.mark.usefixtures("without_report")

SITES = ["site-1", "site-2", "site-6", "site-9"]
"""1 and 9 have all their labels, 2 and 6 have none."""
DIFF = f"diff/{ROWS}"
CLASSES = ("A", "B", "C")


def fedirm(**changes: Any) -> Experiment:
    """Three rounds, the first of them the warm-up."""
    synthetic = SyntheticData(images=120, labelled=1.0, isolated=True)
    options = {"images_at_most": 48, "unlabelled_weight": 1.0, "relation_weight": 1.0}
    return tiny(
        "fedirm", **{"synthetic": synthetic, "evaluate_every": 3, "options": options, **changes}
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of an undisturbed run."""
    return run_local(fedirm(), tmp_path_factory.mktemp("fedirm") / "run", sites=SITES)


def test_sites_without_labels_match_the_classes_of_the_others(run: Path) -> None:
    assert [row["sites"] for row in rows(run, "relations")] == [["site-1", "site-9"]] * 3
    known = rows(run, "relations")[-1]["known"]
    assert len(known) > 1
    matrix = weights(run)[ROWS]
    sums = matrix.sum(dim=1)
    torch.testing.assert_close(sums[known], torch.ones(len(known)))
    assert int((sums > 0).sum()) == len(known)
    losses = {
        (row["site"], row["name"]): row["value"]
        for row in rows(run, "metrics")
        if row["round"] == 3 and row["split"] == "train"
    }
    for site in ("site-2", "site-6"):
        assert losses[site, "loss_relation"] > 0
        assert losses[site, "loss_consistency"] > 0
        assert (site, "loss_supervised") not in losses


def test_a_killed_run_resumes_with_the_same_bits(run: Path, tmp_path: Path) -> None:
    """In round 3, after half of the answers: two teachers are remembered."""
    interrupted(fedirm(), tmp_path / "run", SITES, 3, 2)
    resumed = resume_local(tmp_path / "run")
    assert_equal(weights(resumed), weights(run))
    assert rows(resumed, "relations") == rows(run, "relations")


# --- what leaves a site


def at_hospital() -> Experiment:
    data = DataSpec(classes=CLASSES, image_size=16)
    options = {"images_at_most": None, "batch": 8}
    return fedirm(data=data, synthetic=None, options=options)


def asked_of_a_hospital() -> Message:
    exchange = Exchange(1, initial_model(at_hospital()).state, {"site-1": ClientTask("supervised")})
    return requests(at_hospital(), exchange, [])["site-1"]


def answer_of(site_folder: Path, own_folder: Path) -> Message:
    client = new_client("site-1", at_hospital(), own_folder, [site_folder])
    answer: Message = client.answer(asked_of_a_hospital())
    return answer


@pytest.mark.proves(
    "lead",
    "a job that asks a site for its relations of classes, one of which has 0 to 4 labelled images "
    "there",
    "the answer is the same, bit for bit, whatever these images are, and has no row of the class",
)
def test_a_rare_class_has_no_row_and_no_influence(tmp_path: Path) -> None:
    common = [range(12), range(30)]
    answers = []
    for name, rare in (("none", range(0)), ("four", range(4)), ("five", range(5))):
        folder = write_site(tmp_path / name, "site-1", CLASSES, [*common, rare])
        answers.append(answer_of(folder, tmp_path / f"own-{name}"))
    none, four, five = answers
    for name, array in none.arrays.items():
        assert np.array_equal(four.arrays[name], array), name
    matrix = none.arrays[DIFF]
    np.testing.assert_allclose(matrix.sum(axis=1), [1, 1, 0], atol=1e-6)
    np.testing.assert_allclose(five.arrays[DIFF].sum(axis=1), [1, 1, 1], atol=1e-6)


@pytest.mark.proves(
    "lead",
    "two fedirm jobs, between which a hospital has got one image more",
    "the hospital gives no relations of a set that differs in one image from one it gave before",
)
def test_relations_of_nearly_the_same_images_are_refused(tmp_path: Path) -> None:
    before = write_site(tmp_path / "before", "site-1", CLASSES, [range(12), range(30), range(5)])
    after = write_site(tmp_path / "after", "site-1", CLASSES, [range(12), range(31), range(5)])
    assert ROWS in str(list(answer_of(before, tmp_path / "own").arrays))
    ledger = list((tmp_path / "own").rglob("sums-site-1.jsonl"))
    assert len(ledger) == 1
    data = new_client("site-1", at_hospital(), tmp_path / "other", [after]).data
    images = image_set(counted_images(data.labelled, data.classes))
    # The policy of a simulation lets sets differ in one image; a hospital's asks for 32.
    refusal = grant(ledger[0], "f" * 32, "oneshot", images, 32, None)
    assert refusal is not None
    assert refusal.name == "minimum_images"


def _negative(array: np.ndarray) -> None:
    array[0] = [1.4, -0.4, 0.0]


def _too_much(array: np.ndarray) -> None:
    array[0] = [0.9, 0.9, 0.9]


def _too_little(array: np.ndarray) -> None:
    array[0] *= 0.9


def _hidden_numbers(array: np.ndarray) -> None:
    array[2] = [0.1, -0.1, 0.0]


def _not_a_number(array: np.ndarray) -> None:
    array[0, 0] = np.nan


@pytest.mark.proves(
    "site",
    "a relation matrix whose rows are no distributions, or that hold NaN or hidden numbers",
    "site and server refuse the answer before anything of it is used",
)
@pytest.mark.parametrize(
    "forge", [_negative, _too_much, _too_little, _hidden_numbers, _not_a_number]
)
def test_forged_relations_are_refused(forge: Callable[[np.ndarray], None], tmp_path: Path) -> None:
    experiment = at_hospital()
    folder = write_site(tmp_path / "files", "site-1", CLASSES, [range(12), range(30), range(0)])
    answer = answer_of(folder, tmp_path / "own")
    rules = experiment.answer_rules(method_of(experiment).requirements)
    asked = asked_of_a_hospital()
    check_answer(answer, "site-1", asked, rules)
    in_float16 = decode_update(encode_update(answer), shapes(asked))
    check_answer(in_float16, "site-1", asked, rules)
    forged = answer.arrays[DIFF].copy()
    forge(forged)
    with pytest.raises(WireError, match=ROWS.replace(".", r"\.")):
        check_answer(Message(answer.meta, {**answer.arrays, DIFF: forged}), "site-1", asked, rules)


def test_a_site_without_labels_may_send_no_matrix(tmp_path: Path) -> None:
    experiment = fedirm()
    method = method_of(experiment)
    exchange = Exchange(2, initial_model(experiment).state, {"site-2": ClientTask("unsupervised")})
    asked = requests(experiment, exchange, [])["site-2"]
    answer = new_client("site-2", experiment, tmp_path).answer(asked)
    assert answer.arrays
    assert DIFF not in answer.arrays
    matrix = np.full((8, 8), 1 / 8, np.float32)
    smuggled = Message(answer.meta, {**answer.arrays, DIFF: matrix})
    with pytest.raises(WireError, match="does not go up"):
        check_answer(smuggled, "site-2", asked, experiment.answer_rules(method.requirements))

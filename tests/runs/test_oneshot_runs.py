"""Runs of the head in one round: the same head wherever images are, and what leaves a site."""

from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import fedward
from asking import requests
from clients import new_client
from drawn_sites import write_site
from fedward.config import DataSpec, Experiment
from fedward.console.console import Console
from fedward.lab.local import LocalTransport, Sites
from fedward.methods.oneshot.discriminant import SHRINKAGES, chosen_shrinkage, discriminant
from fedward.methods.workflow import ClientTask, Exchange
from fedward.operation.audit_check import verify
from fedward.protocol.transport import Deliver
from fedward.protocol.wire import Message
from fedward.runs.sentences import no_head
from fedward.starting_model import Weights
from fedward.storage.info import read_info
from fedward.training.features import Encoder
from interrupted import interrupted
from run_files import assert_equal, rows, steady_rows, weights
from running import resume_local, run_experiment, run_local
from starting import initial_model
from tiny import tiny

pytestmark = pytest.mark.usefixtures("without_report")

SITES = ["site-1", "site-6", "site-9"]
CLASSES = ("A", "B", "C")
HEAD = ["classifier.weight", "classifier.bias"]
MOMENTS = ["moments.shares", "moments.sums", "moments.products"]


def oneshot(**changes: Any) -> Experiment:
    return tiny("oneshot", **{"net": "small_cnn_gn", **changes})


def at_hospitals(**changes: Any) -> Experiment:
    data = DataSpec(classes=CLASSES, image_size=16)
    return oneshot(**{"data": data, "synthetic": None, "minimum_replies": 1, **changes})


def measured(
    experiment: Experiment, folder: Path, site_folder: Path, name: str = "site-1"
) -> Message:
    """Return what a site with a file answers to an honest request."""
    first = initial_model(experiment)
    exchange = Exchange(1, first.state, {name: ClientTask("measure")})
    asked = requests(experiment, exchange, [name])[name]
    asked = Message({**asked.meta, "base": first.base}, asked.arrays)
    return new_client(name, experiment, site_folder, [folder]).answer(asked)


def head(run: Path) -> list[Tensor]:
    return [weights(run)[name] for name in HEAD]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of an undisturbed run."""
    return run_local(oneshot(), tmp_path_factory.mktemp("oneshot") / "run", sites=SITES)


# --- the head


def test_one_round_makes_an_ordinary_head(run: Path) -> None:
    first = initial_model(oneshot()).state
    state = weights(run)
    assert list(state) == [*HEAD, *MOMENTS]
    assert not torch.equal(state[HEAD[0]], first[HEAD[0]])
    assert all(torch.equal(state[name], first[name]) for name in MOMENTS), (
        "no model tells sums over images"
    )
    assert [row["round"] for row in rows(run, "rounds")] == [1]
    assert {row["round"] for row in rows(run, "metrics") if row["split"] == "val"} == {0, 1}
    assert verify(run).files


def test_a_loaded_model_predicts(run: Path) -> None:
    model = fedward.load_model(run)
    images = torch.rand(5, 3, 16, 16)
    assert_equal(
        {name: dict(model.net.state_dict())[name] for name in HEAD},
        dict(zip(HEAD, head(run), strict=True)),
    )
    torch.testing.assert_close(model(images).sum(dim=1), torch.ones(5))


def test_sites_make_the_head_of_their_features(tmp_path: Path) -> None:
    """Two divisions of the same images agree, and with float64 features of all by hand."""
    whole = [range(12), range(20), range(8)]
    write_site(tmp_path / "one", "site-1", CLASSES, whole)
    write_site(tmp_path / "two", "site-1", CLASSES, [range(5), range(5, 20), []], seed=1)
    write_site(tmp_path / "two", "site-2", CLASSES, [range(5, 12), range(5), range(8)], seed=2)
    heads = []
    for name, sites in (("one", 1), ("two", 2)):
        names = [f"site-{number}" for number in range(1, sites + 1)]
        run = run_local(
            at_hospitals(), tmp_path / f"run-{name}", sites=names, site_folders=[tmp_path / name]
        )
        heads.append(head(run))
    for a, b in zip(*heads, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3 * float(b.abs().max()))
    client = new_client("site-1", at_hospitals(), tmp_path / "own", [tmp_path / "one"])
    part = client.learner.images["labelled"]
    x = part.take(torch.arange(40)).double()
    y = part.labels
    hot = torch.nn.functional.one_hot(y, 3).double()
    moments = (hot.mean(dim=0), hot.T @ x / 40, x.T @ x / 40)
    by_hand = discriminant(*moments, chosen_shrinkage(*moments, 40))
    for a, expected in zip(heads[0], by_hand, strict=True):
        torch.testing.assert_close(
            a.double(), expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max())
        )


def test_a_killed_run_resumes_with_the_same_bits(run: Path, tmp_path: Path) -> None:
    interrupted(oneshot(), tmp_path / "run", SITES, 1, 1)
    assert_equal(weights(resume_local(tmp_path / "run")), weights(run))


def test_impossible_sums_cost_their_site_alone(tmp_path: Path) -> None:
    """The head is that of the other sites, bit for bit."""

    class Lying(LocalTransport):
        def exchange(self, requests: Any, timeout: int, deliver: Deliver) -> None:
            def change(site: str, answer: Message) -> None:
                if site == "site-9" and answer.arrays:
                    shares = np.full_like(answer.arrays["diff/moments.shares"], -5)
                    arrays = {**answer.arrays, "diff/moments.shares": shares}
                    answer = Message(answer.meta, arrays)
                deliver(site, answer)

            super().exchange(requests, timeout, change)

    experiment = oneshot(minimum_replies=2)
    transport = Lying(Sites(experiment, tmp_path / "sites"), SITES)
    run_experiment(experiment, tmp_path / "run", transport)
    (row,) = rows(tmp_path / "run", "rounds")
    assert row["replied"] == ["site-1", "site-6"]
    assert "sums of site-9: expected shares" in row["failed"]["site-9"]
    others = run_local(experiment, tmp_path / "others", sites=SITES[:2])
    assert_equal(
        dict(zip(HEAD, head(tmp_path / "run"), strict=True)),
        dict(zip(HEAD, head(others), strict=True)),
    )


def test_workers_measure_the_same_bits(run: Path, tmp_path: Path) -> None:
    both = run_local(oneshot(), tmp_path / "run", sites=SITES, workers=2)
    assert_equal(weights(both), weights(run))
    assert steady_rows(both, "metrics") == steady_rows(run, "metrics")


def test_encrypted_sums_make_the_same_head(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("tenseal")
    sealed = run_local(oneshot(secure_aggregation=True), tmp_path / "run", sites=SITES)
    for a, b in zip(head(sealed), head(run), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-3 * float(b.abs().max()))
    assert not list((sealed / "models").glob("*"))


def test_only_labelled_images_are_encoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows_of = list[int]()
    encode = Encoder._encoded

    def counted(self: Encoder, *arguments: Any, **options: Any) -> Any:
        encoded = encode(self, *arguments, **options)
        rows_of.append(len(encoded))
        return encoded

    monkeypatch.setattr(Encoder, "_encoded", counted)
    client = new_client(SITES[0], oneshot(), tmp_path)
    client.learner.images["labelled"]
    data = client.data
    assert len(data.unlabelled)
    assert rows_of == [1] * (len(data.labelled) + len(data.val) + len(data.test))


# --- what leaves a site


@pytest.mark.proves(
    "lead",
    "images of a rare class, counted by surveys, crafted or random models, errors or sums",
    "all answers are the same for 0 to 4 of them, bit for bit",
)
@pytest.mark.parametrize("trial", [[1], [2, 7], [3, 4, 5], [10, 11, 12, 13]], ids=len)
def test_rare_classes_are_in_no_sum(trial: list[int], tmp_path: Path) -> None:
    common = [range(12), range(30)]
    files_without = write_site(tmp_path / "without", "site-1", CLASSES, [*common, []])
    files_with_few = write_site(tmp_path / "rare", "site-1", CLASSES, [*common, trial])
    files_with_five = write_site(tmp_path / "enough", "site-1", CLASSES, [*common, range(5)])
    without = measured(at_hospitals(), files_without, tmp_path / "a")
    rare = measured(at_hospitals(), files_with_few, tmp_path / "b")
    five = measured(at_hospitals(), files_with_five, tmp_path / "c")
    for answer in (without, rare, five):
        answer.meta["train"].pop("seconds")
    assert rare.meta["labelled"] == 42
    assert rare.meta["unlabelled"] == 0
    assert rare.meta == without.meta
    for name, array in without.arrays.items():
        assert np.array_equal(rare.arrays[name], array), name
    shares, sums = (rare.arrays[f"diff/moments.{name}"] for name in ("shares", "sums"))
    assert shares[2] == np.float32(0 - np.float32(1 / 3))
    assert not sums[2].any()
    assert five.meta["labelled"] == 47
    assert five.arrays["diff/moments.sums"][2].any()


def test_a_class_without_a_head_is_named(tmp_path: Path) -> None:
    """Run folder and console say which class is never predicted, why, and what to do."""
    write_site(tmp_path / "files", "site-1", CLASSES, [range(12), range(20), range(4)])
    output = StringIO()
    run = run_local(
        at_hospitals(),
        tmp_path / "run",
        sites=["site-1"],
        site_folders=[tmp_path / "files"],
        console=Console(output),
    )
    (row,) = rows(run, "heads")
    assert (row["images"], row["absent"]) == (32, [2])
    assert row["shrinkage"] in SHRINKAGES
    assert read_info(run).summary.without_head == ("C",)
    printed = " ".join(output.getvalue().split())
    assert no_head(["C"]) in printed
    assert "No head for C: no site has five labelled images or more" in printed
    assert not head(run)[0][2].any()


@pytest.mark.proves(
    "server",
    "the answer of a site with too few labelled images of every class",
    "it declines, and sends no tensor or count",
)
def test_a_site_of_rare_classes_alone_declines(tmp_path: Path) -> None:
    answer = measured(
        at_hospitals(),
        write_site(tmp_path / "f", "site-1", CLASSES, [range(4), range(3), [1]]),
        tmp_path / "own",
    )
    assert not answer.arrays
    assert answer.meta["labelled"] == 0
    assert answer.meta["steps"] == 0


def test_other_methods_keep_their_rare_classes(tmp_path: Path) -> None:
    folder = write_site(tmp_path / "f", "site-1", CLASSES, [range(12), range(30), [1, 2]])
    experiment = tiny("fedavg", data=at_hospitals().data, synthetic=None)
    assert len(new_client("site-1", experiment, tmp_path / "own", [folder]).data.labelled) == 44


# --- what may go on from it


def test_other_methods_begin_with_its_weights(run: Path, tmp_path: Path) -> None:
    state, facts, _ = initial_model(
        tiny("ssfl", net="small_cnn_gn", trainable="head"), Weights.of(run)
    )
    assert facts is not None
    assert facts["taken"] == HEAD
    assert facts["new"] == []
    assert facts["unused"] == MOMENTS
    assert all(torch.equal(state[name], weights(run)[name]) for name in HEAD)
    ssfl = tiny("ssfl", net="small_cnn_gn", trainable="head")
    warm = run_local(ssfl, tmp_path / "warm", sites=SITES, init=run)
    last = {
        (row["site"], row["split"], row["name"]): row["value"]
        for row in rows(run, "metrics")
        if row["round"] == 1
    }
    first = [row for row in rows(warm, "metrics") if row["round"] == 0]
    assert first
    assert all(row["value"] == last[row["site"], row["split"], row["name"]] for row in first)

"""Labels at the server alone, from end to end: whose labels matter, resumed runs, reports."""

import json
import logging
import re
import shutil
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clients import public_images
from fedward.client.client import Client
from fedward.config import DataSpec, Experiment
from fedward.errors import ConfigError, RunError
from fedward.methods.server_labels import AT_SERVER
from fedward.protocol.wire import Message
from fedward.report import words
from fedward.report.sheet import render_sheet
from fedward.runs.choices import Choices
from fedward.runs.run import Run
from fedward.runs.site_lines import site_lines
from fedward.server.public import PublicImages
from interrupted import interrupted
from isolated import CLASSES, write_sites
from public_images import write_public_npz
from run_files import assert_equal, rows, steady_rows, weights
from running import resume_local, run_local
from starting import initial_model
from tiny import tiny

pytestmark = pytest.mark.usefixtures("without_report")

SITES = ["site-1", "site-2"]
SERVER_FILE = "{kind: npz, file: public.npz, labels: {0: A, 1: B, 2: C}}"


def server_labels(method: str = "ssfl", **options: Any) -> Experiment:
    """Three rounds on synthetic images; sites show half of their labels, which nobody may see."""
    options = {"server_labels": True, "participants": None, **options}
    return tiny(method, options=options)


def on_files(method: str, **options: Any) -> Experiment:
    experiment = server_labels(method, **options)
    data = DataSpec(classes=CLASSES, image_size=16)
    return experiment.model_copy(update={"data": data, "synthetic": None})


def write_server(folder: Path, server_file: str = SERVER_FILE, **counts: int) -> Path:
    """Write the files of three sites, of which two have labels, and of the server."""
    write_sites(folder, labelled_sites=2)
    write_public_npz(folder / "public.npz", **(counts or {"train": 12, "val": 6, "test": 4}))
    (folder / "server.yaml").write_text(server_file)
    return folder


def permute_labels(file: Path, split: str) -> None:
    """Give the images of a split each other's labels."""
    arrays = dict(np.load(file))
    arrays[f"{split}_labels"] = np.roll(arrays[f"{split}_labels"], 1, axis=0)
    np.savez(file, **arrays)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of an undisturbed run."""
    return run_local(server_labels(), tmp_path_factory.mktemp("straight") / "run", sites=SITES)


# --- whose labels matter


def test_the_server_learns_from_labels_and_sites_from_images_alone(straight: Path) -> None:
    trained = [row for row in rows(straight, "metrics") if row["split"] == "train"]
    losses = {(row["site"], row["name"]) for row in trained if row["name"].startswith("loss_")}
    assert losses == {
        ("server", "loss_supervised"),
        ("site-1", "loss_pseudo"),
        ("site-2", "loss_pseudo"),
    }
    of_server = [row for row in trained if row["name"] == "loss_supervised"]
    assert [(row["round"], row["n"]) for row in of_server] == [(0, 33), (1, 33), (2, 33), (3, 33)]
    labelled = {row["value"] for row in trained if row["name"] == "labelled"}
    assert labelled == {0.0}, "not even how many labels a site has is told"


@pytest.mark.parametrize("method", ["fedavg", "ssfl", "fedperl"])
@pytest.mark.proves(
    "server",
    "learning something of the labels of sites in a job whose labels are at the server",
    "permuted training labels of all sites change no weight, no number and no answer",
)
def test_permuted_labels_of_sites_change_nothing_that_leaves_them(
    tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: dict[str, list[Message]] = {}
    handle = Client.handle

    def noted(self: Client, request: Message) -> Message:
        answer = handle(self, request)
        answers[current].append(answer)
        return answer

    monkeypatch.setattr(Client, "handle", noted)
    files = write_server(tmp_path / "files")
    runs = {}
    for current in ("as they are", "permuted"):
        answers[current] = []
        if current == "permuted":
            permute_labels(files / "images.npz", "train")
        experiment = on_files(method)
        runs[current] = run_local(experiment, tmp_path / current, sites=SITES, site_folders=[files])
        shutil.rmtree(runs[current] / "sites")
    one, other = runs.values()
    assert_equal(weights(one), weights(other))
    for log in ("metrics", "peers", "bytes"):
        assert steady_rows(one, log) == steady_rows(other, log)
    for ours, theirs in zip(*answers.values(), strict=True):
        assert list(ours.arrays) == list(theirs.arrays)
        for name in ours.arrays:
            assert np.array_equal(ours.arrays[name], theirs.arrays[name])
        assert ours.meta["labelled"] == theirs.meta["labelled"] == 0


def test_the_server_trains_on_labelled_training_images_alone(tmp_path: Path) -> None:
    files = write_server(tmp_path / "files", SERVER_FILE.replace("}}", "}, labelled: 0.5}"))
    public = public_images(on_files("ssfl"), tmp_path / "cache", [files])
    public.require({"labels"})
    assert public.number == 6
    model = initial_model(on_files("ssfl"))[0]
    trained, means = public.learn(model, 0, AT_SERVER, {})
    assert set(means) == {"loss", "loss_supervised", "seconds"}
    again = public_images(on_files("ssfl"), tmp_path / "cache", [files])
    assert_equal(trained, again.learn(model, 0, AT_SERVER, {})[0])


# --- what the server alone can do


def test_sites_that_keep_no_label_leave_the_server_alone(tmp_path: Path) -> None:
    """With a threshold of 1 ssfl is fedavg, whose sites have nothing to learn from."""
    alone = run_local(server_labels("fedavg"), tmp_path / "alone", sites=SITES)
    unsure = run_local(server_labels(threshold=1.0), tmp_path / "unsure", sites=SITES)
    assert_equal(weights(alone), weights(unsure))
    assert all(row["replied"] == [] for row in rows(alone, "rounds"))
    assert json.loads((alone / "run.json").read_text())["status"] == "finished"


def test_a_run_in_which_no_site_answers_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unanswered(self: Any, requests: Any, timeout: int, deliver: Any) -> None:
        return

    monkeypatch.setattr("fedward.lab.local.LocalTransport.exchange", unanswered)
    with pytest.raises(RunError, match="too few in 3 exchanges in a row") as error:
        run_local(server_labels(rounds=5), tmp_path / "run", sites=SITES)
    assert "no site has labels" not in str(error.value), "they may have some, which are not used"


# --- resumed and encrypted


@pytest.mark.parametrize("round_", [1, 3])
def test_a_run_killed_in_a_round_resumes_bit_identically(
    straight: Path, tmp_path: Path, round_: int
) -> None:
    interrupted(server_labels(), tmp_path / "run", SITES, round_, answered=1)
    resumed = resume_local(tmp_path / "run")
    assert_equal(weights(resumed), weights(straight))
    assert steady_rows(resumed, "metrics") == steady_rows(straight, "metrics")


def test_a_run_killed_after_the_servers_training_resumes_the_same(
    straight: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn = PublicImages.learn

    def killed(self: PublicImages, model: Any, round_: int, task: str, memory: Any) -> Any:
        result = learn(self, model, round_, task, memory)
        if round_ == 2:
            raise KeyboardInterrupt
        return result

    with monkeypatch.context() as patch:
        patch.setattr(PublicImages, "learn", killed)
        with pytest.raises(KeyboardInterrupt):
            run_local(server_labels(), tmp_path / "run", sites=SITES)
    resumed = resume_local(tmp_path / "run")
    assert_equal(weights(resumed), weights(straight))
    assert steady_rows(resumed, "metrics") == steady_rows(straight, "metrics")


def test_encrypted_updates_give_the_same_model(straight: Path, tmp_path: Path) -> None:
    pytest.importorskip("tenseal")
    experiment = server_labels().model_copy(update={"secure_aggregation": True})
    encrypted = weights(run_local(experiment, tmp_path / "run", sites=SITES))
    for key, value in weights(straight).items():
        torch.testing.assert_close(encrypted[key], value, rtol=1e-3, atol=1e-4, msg=key)


# --- the server's images


@pytest.mark.parametrize(
    ("server_file", "counts", "found"),
    [
        ("", {}, r"no file server\.yaml and no synthetic images"),
        (SERVER_FILE.replace("}}", "}, labelled: 0}"), {}, r"server\.yaml names none"),
        (SERVER_FILE, {"train": 0, "val": 6, "test": 0}, r"server\.yaml names none"),
    ],
)
def test_a_server_without_labels_ends_the_run_before_round_one(
    tmp_path: Path, server_file: str, counts: dict[str, int], found: str
) -> None:
    files = write_server(tmp_path / "files", server_file, **counts)
    if not server_file:
        (files / "server.yaml").unlink()
    with pytest.raises(
        ConfigError,
        match=rf"method ssfl: expected labelled training images.*{found}.*server_labels=false",
    ):
        run_local(on_files("ssfl"), tmp_path / "run", sites=SITES, site_folders=[files])


def test_classes_that_nobody_can_teach_are_named_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = write_server(tmp_path / "files", train=2, val=3, test=0)
    with caplog.at_level(logging.WARNING, logger="fedward"):
        public_images(on_files("ssfl"), tmp_path / "cache", [files]).require({"labels"})
    assert "server has no labelled training image of C, which this run cannot teach" in caplog.text


def test_a_diverging_server_names_its_own_rate(tmp_path: Path) -> None:
    experiment = server_labels(server_learning_rate=1e30)
    with pytest.raises(
        Exception, match=r"server, at_server, round 0: .*Lower server_learning_rate"
    ):
        public_images(experiment, tmp_path).learn(initial_model(experiment)[0], 0, AT_SERVER, {})


def test_a_server_whose_one_image_batchnorm_cannot_normalise_is_told_so(tmp_path: Path) -> None:
    files = write_server(tmp_path / "files", train=1, val=3, test=0)
    experiment = on_files("ssfl", images_per_round=None)
    experiment = experiment.model_copy(update={"net": "tf_efficientnet_lite0"})
    images = public_images(experiment, tmp_path / "cache", [files])
    with pytest.raises(
        RunError, match=r"server, at_server, round 0: .*BatchNorm.*more images.*larger batch"
    ):
        images.learn(initial_model(experiment)[0], 0, AT_SERVER, {})


# --- the report


def sentences(run: Run) -> str:
    return " ".join(words.findings(run, Choices.of(run, run.key_metric), site_lines(run)))


def test_the_report_says_where_the_labels_were(straight: Path, tmp_path: Path) -> None:
    run = Run.load(straight)
    assert (
        "The server alone had labels: it trained on 33 labelled images of its own, before the first"
        " round and after each. The sites used no label for training."
    ) in sentences(run)
    assert "before training" not in sentences(run) + words.first_model(run)
    sheet = unescape(render_sheet(run))
    assert "without labels at 2 sites, simulated on one machine." in sheet
    alone = run_local(server_labels("fedavg", rounds=1), tmp_path / "alone", sites=SITES)
    sheet = unescape(render_sheet(Run.load(alone)))
    sheet = " ".join(sheet.split())
    assert "It was trained with labelled images of the server's own. " in sheet
    assert "It learned from 33 images with a label at the server. It was tested on" in sheet
    assert "It was tested at 2 sites, and no site trained it." in sheet


def test_reports_of_labels_at_sites_say_nothing_of_it(tmp_path: Path) -> None:
    folder = run_local(tiny("fedavg", options={"rounds": 1}), tmp_path / "run", sites=SITES)
    run = Run.load(folder)
    assert "server" not in sentences(run)
    assert words.first_model(run) == "the model before training"
    sheet = unescape(render_sheet(run))
    assert "server" not in sheet
    assert re.search(r"It learned from \d+ images with a label\. Its sites also hold \d+", sheet)

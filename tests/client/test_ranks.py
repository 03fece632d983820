"""A site's training in two processes: that of one with twice the batch.

Two weights count as equal when they differ by less than 1e-6, which is some ten times what float32
rounds here, and a thousandth of what training changed.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from asking import requests
from clients import new_client
from fedward.client import ranks
from fedward.client.client import Client
from fedward.client.ranks import Processes, check_processes
from fedward.config import DataSpec, Experiment
from fedward.errors import ConfigError, DataError
from fedward.methods import method_of
from fedward.methods.workflow import ClientTask, Exchange
from fedward.model_state import State
from fedward.nets import build
from fedward.protocol.wire import Message
from fedward.seeds import Draws
from fedward.sites import SiteData
from fedward.sites.site_file import read_site_file
from fedward.storage.model_files import StoredState
from fedward.training.device_data import DeviceData
from fedward.training.distributed.launch import launch, private_folder
from fedward.training.learner import Learner
from fedward.training.networks import Networks
from isolated import CLASSES, isolated, write_sites
from rank_cases import CASES, grouped
from tiny import batch_norm_net, tiny

CPU = torch.device("cpu")
TOLERANCE = 1e-6


def never() -> bool:
    return False


# --- the same numbers


def one_process(site: str, experiment: Experiment, data: SiteData, times: int = 1) -> Learner:
    """Return a learner that trains in one process with so many times the job's batch."""
    algorithm = method_of(experiment)
    networks = Networks(experiment, algorithm, CPU)
    batch = times * algorithm.settings.batch
    return Learner(
        site, experiment, algorithm, networks, DeviceData(data, CPU), Draws(experiment.seed), batch
    )


def assert_close(actual: State, expected: State) -> None:
    assert set(actual) == set(expected)
    for key, value in expected.items():
        torch.testing.assert_close(actual[key], value, rtol=0, atol=TOLERANCE, msg=key)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the results of all cases, trained by two processes that are started once."""
    with (
        pytest.MonkeyPatch.context() as patch,
        private_folder(tmp_path_factory.mktemp("two")) as folder,
    ):
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        write_sites(folder / "sites")
        launch("rank_cases", folder, 2, "site-1", never)
        yield folder


@pytest.mark.parametrize("name", CASES)
def test_two_processes_are_one_with_twice_the_batch(
    name: str, trained: Path, tmp_path: Path
) -> None:
    case = CASES[name]
    model, memory, (_, means) = case.train(
        partial(one_process, times=2), tmp_path / "one", trained / "sites"
    )
    steps = case.train(one_process, tmp_path / "job", trained / "sites")[2][0]
    for rank in ("0", "1"):
        there = trained / name / rank
        assert_close(StoredState(there / "model.safetensors"), model)
        assert_close(StoredState(there / "memory.safetensors"), memory)
        answer = json.loads((there / "answer.json").read_text())
        assert answer["means"] == pytest.approx(means, rel=1e-4, abs=1e-6)
        assert answer["steps"] == steps, (
            "a site's weight is that of its images, whatever its machine"
        )


@pytest.mark.parametrize("name", [name for name in CASES if not name.endswith("nothing_kept")])
def test_each_case_trains_and_the_batch_matters(name: str, trained: Path, tmp_path: Path) -> None:
    """Otherwise the equality above would show nothing."""
    case = CASES[name]
    spec = case.experiment
    start = build(spec.net, len(spec.data.classes), seed=0, trainable=spec.trainable).state_dict()
    two = StoredState(trained / name / "0" / "model.safetensors")
    moved = max(float((two[key] - start[key]).abs().max()) for key in two)
    assert moved > 1000 * TOLERANCE
    if name not in ("less_than_a_batch", "one_image"):
        one = case.train(one_process, tmp_path / "one", trained / "sites")[0]
        assert max(float((two[key] - one[key]).abs().max()) for key in two) > 100 * TOLERANCE


def test_the_cases_hold_what_makes_a_mean_of_means_wrong(trained: Path) -> None:
    shares_kept = {
        name: json.loads((trained / name / "0" / "answer.json").read_text())["means"].get("kept")
        for name in CASES
    }
    assert 0.05 < shares_kept["fixmatch"] < 0.95
    assert 0.05 < shares_kept["peers"] < 0.95
    assert shares_kept["nothing_kept"] == 0
    assert len(StoredState(trained / "lasting_teacher" / "0" / "memory.safetensors")) > 0


def test_a_process_without_rows_still_computes(trained: Path) -> None:
    assert {path.name for path in trained.glob("equal-*")} == {"equal-0", "equal-1"}


def test_processes_train_without_torchs_compiler(trained: Path) -> None:
    """Its import would take as long as torch's, in each process of each exchange.

    Later cases need timm.
    """
    for rank in range(2):
        assert (
            json.loads((trained / "one_image" / str(rank) / "answer.json").read_text())["imported"]
            == []
        )


# --- a site that its own file gives two processes


def request(site: Client, task: str) -> Message:
    model = build(site.experiment.net, len(site.experiment.data.classes), seed=3).state_dict()
    exchange = Exchange(3, model, {site.name: ClientTask(task)})
    return requests(site.experiment, exchange, [site.name])[site.name]


def test_a_site_answers_from_as_many_processes_as_its_file_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    case = grouped("rscfed", "site-2", "unsupervised")
    sites = write_sites(tmp_path / "sites")
    file = sites / f"{case.site}.yaml"
    file.write_text(file.read_text() + "\nprocesses: 2\n")
    assert read_site_file(file).processes == 2
    two = new_client(case.site, case.experiment, tmp_path / "two", [sites], device="cpu")
    options = {**case.experiment.options, "batch": 2 * case.experiment.options["batch"]}
    twice = case.experiment.model_copy(update={"options": options})
    assert two.data.processes == 2
    file.write_text(file.read_text().replace("processes: 2", "processes: 1"))
    one = new_client(case.site, twice, tmp_path / "one", [sites], device="cpu")
    expected = one.handle(request(one, case.task))
    answer = two.handle(request(two, case.task))
    assert "error" not in answer.meta
    assert answer.meta["metrics"] == expected.meta["metrics"]
    assert list(answer.arrays) == list(expected.arrays)
    for name, array in expected.arrays.items():
        np.testing.assert_allclose(answer.arrays[name], array, rtol=0, atol=TOLERANCE, err_msg=name)
    (remembered,) = (tmp_path / "two" / "memory").rglob("*.safetensors")
    (teacher,) = (tmp_path / "one" / "memory").rglob("*.safetensors")
    assert_close(StoredState(remembered), StoredState(teacher))
    assert {path.name for path in (tmp_path / "two").iterdir()} == {
        "answers",
        "memory",
        "sources",
    }, "the processes' folder is removed"


def test_one_process_is_the_default_and_starts_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "Popen", None)
    sites = write_sites(tmp_path / "sites")
    case = grouped("rscfed", "site-2", "unsupervised")
    assert read_site_file(sites / "site-2.yaml").processes == 1
    site = new_client(case.site, case.experiment, tmp_path / "one", [sites])
    assert site.handle(request(site, case.task)).meta["steps"] > 0


@pytest.mark.parametrize("processes", [0, -1, 1.5, "many"])
def test_a_number_of_processes_that_is_none_is_refused(tmp_path: Path, processes: object) -> None:
    file = write_sites(tmp_path / "sites") / "site-2.yaml"
    file.write_text(f"{file.read_text()}\nprocesses: {processes}\n")
    with pytest.raises(DataError, match="processes"):
        read_site_file(file)


def train(site: Client) -> object:
    model = build("small_cnn_gn", 8, seed=1).state_dict()
    return Processes(site.source, "", site.learner, 2).train(
        model, [], 1, task="train", part=0, memory={}, aborted=never
    )


def test_batch_norm_without_shared_statistics_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedward.training.networks.build", lambda *_, **__: batch_norm_net(1))
    site = new_client("site-1", tiny("fedavg"), tmp_path, device="cpu")
    with pytest.raises(ConfigError, match=r"site-1.*BatchNorm.*Lower `processes`"):
        train(site)


def test_more_processes_than_gpus_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    learner = new_client("site-1", tiny("fedavg"), tmp_path).learner
    networks = Networks(learner.experiment, learner.algorithm, torch.device("cuda"))
    with pytest.raises(DataError, match=r"site-1.*each of 1 GPUs.*found 2"):
        check_processes(replace(learner, networks=networks), 2)


def test_auxiliary_heads_are_trained_in_one_process_alone(tmp_path: Path) -> None:
    site = new_client("site-1", tiny("fedal", options={"sampler": "mcdal"}), tmp_path)
    with pytest.raises(ConfigError, match=r"site-1, processes: .*auxiliary heads"):
        check_processes(site.learner, 2)


def test_data_that_changed_during_the_job_is_refused(tmp_path: Path) -> None:
    """Processes read it themselves, and may find other images than the site's process counted."""
    sites = write_sites(tmp_path / "sites")

    def client(name: str, folder: str) -> Client:
        return new_client(name, isolated("wfedavg"), tmp_path / folder, [sites])

    site = client("site-1", "site")
    same = ranks._images_digest(site.data)
    assert same == ranks._images_digest(client("site-1", "again").data)
    assert same != ranks._images_digest(client("site-2", "other").data)
    source = replace(site.source, synthetic=None)
    asked = ranks._Request(
        source, "", None, False, False, frozenset(), "other", 1, "train", 0, "cpu", False, 1
    )
    (tmp_path / "request.json").write_bytes(ranks._REQUEST.dump_json(asked))
    with pytest.raises(DataError, match=r"site site-1: its images or labels have changed"):
        ranks._train_share(tmp_path, 0, 1)


@pytest.mark.parametrize("hidden", [False, True])
def test_every_process_leaves_out_images_that_people_refused_and_hidden_labels(
    hidden: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites = write_sites(tmp_path / "sites", labelled_sites=int(hidden))
    data_spec = DataSpec(classes=CLASSES, image_size=16)
    options = {"server_labels": hidden}
    experiment = tiny("ssfl", data=data_spec, synthetic=None, options=options)
    site = new_client("site-1", experiment, tmp_path, [sites], device="cpu")
    learner = site.learner
    data_read = list[SiteData]()
    data = replace(learner.images.data, refused=frozenset(learner.images.data.unlabelled.ids[:3]))

    def read(name: str, folder: Path, *others: object) -> None:
        content = (folder / "request.json").read_bytes()
        data_read.append(ranks._read_data(ranks._REQUEST.validate_json(content)))
        raise InterruptedError

    monkeypatch.setattr(ranks, "launch", read)
    processes = Processes(
        site.source, "", replace(learner, images=learner.images.relabelled(data)), 2
    )
    with pytest.raises(InterruptedError):
        processes.train(
            learner.networks.template, [], 1, task="train", part=0, memory={}, aborted=never
        )
    assert data_read[0].refused == data.refused
    assert len(DeviceData(data_read[0], CPU)["unlabelled"]) == len(data.unlabelled) - 3

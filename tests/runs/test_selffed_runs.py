"""SelfFed from end to end: both phases in one run, the server's images, and a resumed run."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from asking import requests
from clients import new_client, public_images
from fedward.client import ranks
from fedward.client.client import Client
from fedward.config import DataSpec, Experiment
from fedward.errors import ConfigError, WorkError
from fedward.flare.privacy import privatise
from fedward.lab.local import LocalTransport, Sites
from fedward.methods.requirements import TensorRules
from fedward.methods.selffed.algorithm import CONTRAST, FINE_TUNE, PRETRAIN, SelfFedState
from fedward.methods.workflow import ClientTask, Exchange
from fedward.protocol import wire
from fedward.report import write_report
from fedward.server.public import PublicImages
from fedward.starting_model import Weights
from fedward.storage.model_files import StoredState, load_state
from interrupted import interrupted
from isolated import CLASSES, write_sites
from public_images import write_public_npz
from run_files import assert_equal, rows, steady_rows, weights
from running import resume_local, run_experiment, run_local
from starting import initial_model
from tiny import tiny

pytestmark = pytest.mark.usefixtures("without_report", "narrow_swin")

SITES = ["site-1", "site-6", "site-9"]


def selffed(**options: Any) -> Experiment:
    """Four rounds, of which the first pre-trains; a site may miss one."""
    return tiny("selffed", options={"rounds": 4, "participants": 2, **options})


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of an undisturbed run."""
    return run_local(selffed(), tmp_path_factory.mktemp("selffed") / "run", sites=SITES)


def total(folder: Path, way: str) -> int:
    return sum(row[way] for row in rows(folder, "bytes"))


def start(experiment: Experiment, folder: Path) -> dict[str, torch.Tensor]:
    template = new_client("site-1", experiment, folder).learner.networks.template
    return {key: value.clone() for key, value in template.items()}


# --- a run


def test_each_round_trains_what_its_phase_does(straight: Path) -> None:
    losses = {
        (row["round"], row["site"], row["name"])
        for row in rows(straight, "metrics")
        if row["split"] == "train" and row["name"].startswith("loss_")
    }
    trained = {(row["round"], site) for row in rows(straight, "rounds") for site in row["replied"]}
    names = {
        1: "loss_reconstruction",
        2: "loss_supervised",
        3: "loss_supervised",
        4: "loss_supervised",
    }
    expected = {(round_, site, names[round_]) for round_, site in trained}
    assert losses == expected | {
        (2, "server", "loss_contrastive"),
        (3, "server", "loss_contrastive"),
    }


def test_untrained_classifiers_are_never_evaluated(straight: Path) -> None:
    judged = {row["round"] for row in rows(straight, "metrics") if row["split"] == "val"}
    assert judged == {2, 3, 4}, "0 is the fresh model, and 1 the pre-trained one"
    assert json.loads((straight / "best.json").read_text())["round"] >= 1


def test_the_state_holds_what_the_next_round_needs(straight: Path) -> None:
    state = load_state(straight / "rounds" / "00004", SelfFedState)
    replied = [
        site for row in rows(straight, "rounds") for site in row["replied"] if row["round"] > 1
    ]
    assert state.participations == {site: replied.count(site) for site in set(replied)}
    assert state.queue["keys"].shape == (16, 128)
    assert {name.split(".")[0] for name in state.target} == {"encoder", "projection"}


def test_the_report_of_such_a_run_is_written(straight: Path) -> None:
    assert "selffed" in write_report(straight).read_text()


@pytest.mark.parametrize(("round_", "answered"), [(1, 1), (3, 1)])
def test_a_run_killed_in_a_round_resumes_bit_identically(
    straight: Path, tmp_path: Path, round_: int, answered: int
) -> None:
    interrupted(selffed(), tmp_path / "run", SITES, round_, answered)
    resumed = resume_local(tmp_path / "run")
    assert_equal(weights(resumed), weights(straight))
    for log in ("metrics", "bytes"):
        assert steady_rows(resumed, log) == steady_rows(straight, log)


def test_a_run_killed_during_the_servers_step_resumes_the_same(
    straight: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn = PublicImages.learn

    def broken(self: PublicImages, model: Any, round_: int, task: str, memory: Any) -> Any:
        result = learn(self, model, round_, task, memory)
        if round_ == 3:
            raise KeyboardInterrupt
        return result

    with monkeypatch.context() as patch:
        patch.setattr(PublicImages, "learn", broken)
        with pytest.raises(KeyboardInterrupt):
            run_local(selffed(), tmp_path / "run", sites=SITES)
    resumed = resume_local(tmp_path / "run")
    assert_equal(weights(resumed), weights(straight))
    assert steady_rows(resumed, "metrics") == steady_rows(straight, "metrics")


def test_queue_and_target_of_contrast_stay_at_their_site(straight: Path, tmp_path: Path) -> None:
    run = run_local(selffed(contrastive="client"), tmp_path / "run", sites=SITES)
    losses = {
        row["name"]
        for row in rows(run, "metrics")
        if row["split"] == "train" and row["site"] in SITES
    }
    assert {"loss_reconstruction", "loss_supervised", "loss_contrastive"} <= losses
    assert not any(row["site"] == "server" for row in rows(run, "metrics"))
    remembered = sorted((run / "sites").glob("*/memory/*/*.safetensors"))
    assert remembered
    for path in remembered:
        assert {name.split("/")[0] for name in StoredState(path)} == {"target", "queue"}
    heads = StoredState(run / "model.safetensors")
    projection = sum(heads[name].nbytes for name in heads if name.startswith("projection."))
    for ours, theirs in zip(rows(run, "bytes"), rows(straight, "bytes"), strict=True):
        is_fine_tuned = theirs["up"] > 0 and theirs["round"] > 1
        assert ours["up"] - theirs["up"] == (projection if is_fine_tuned else 0)


def test_the_weights_are_those_of_a_run_in_which_all_goes_up(
    straight: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TensorRules, "withheld", lambda self, task: ())
    everything = run_local(selffed(), tmp_path / "run", sites=SITES)
    assert_equal(weights(straight), weights(everything))
    assert steady_rows(straight, "metrics") == steady_rows(everything, "metrics")
    assert total(straight, "up") < total(everything, "up")
    assert total(straight, "down") == total(everything, "down")


def test_encrypted_runs_send_only_what_a_phase_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tenseal")
    plain = selffed(beta=1, contrastive="off", rounds=2, warm_up=0)
    experiment = plain.model_copy(update={"secure_aggregation": True})
    few = run_local(experiment, tmp_path / "few", sites=SITES[:2])
    monkeypatch.setattr(TensorRules, "withheld", lambda self, task: ())
    everything = run_local(experiment, tmp_path / "all", sites=SITES[:2])
    assert json.loads((few / "run.json").read_text())["status"] == "finished"
    assert_equal(weights(few), weights(everything))
    assert total(few, "up") < total(everything, "up")


def test_noise_reaches_only_what_a_phase_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = Client.handle

    def noisy(self: Client, request: wire.Message) -> wire.Message:
        reply = handle(self, request)
        return replace(reply, arrays=privatise(reply.arrays, clip=1.0, noise_multiplier=1e-3))

    monkeypatch.setattr(Client, "handle", noisy)
    experiment = selffed(rounds=2, pretraining_rounds=2)
    run = run_local(experiment, tmp_path / "run", sites=SITES)
    first = initial_model(experiment)[0]
    last = weights(run)
    changed = {name.split(".")[0] for name in first if not torch.equal(first[name], last[name])}
    assert changed == {"encoder", "mask_token", "decoder"}


# --- a site


def answer(experiment: Experiment, folder: Path, task: str, round_: int) -> wire.Message:
    exchange = Exchange(round_, start(experiment, folder), {"site-1": ClientTask(task)})
    return new_client("site-1", experiment, folder).handle(requests(experiment, exchange)["site-1"])


@pytest.mark.parametrize(
    ("options", "task", "round_", "trained"),
    [
        ({}, PRETRAIN, 1, {"encoder", "mask_token", "decoder"}),
        ({"pretext": "contrastive"}, PRETRAIN, 1, {"encoder", "projection"}),
        ({}, FINE_TUNE, 2, {"encoder", "classifier"}),
        ({"contrastive": "client"}, FINE_TUNE, 2, {"encoder", "classifier", "projection"}),
        ({"contrastive": "client", "upload": "encoder"}, FINE_TUNE, 2, {"encoder", "projection"}),
    ],
)
def test_what_a_phase_trains_goes_up_and_nothing_else(
    tmp_path: Path, options: dict[str, str], task: str, round_: int, trained: set[str]
) -> None:
    experiment = selffed(**options)
    reply = answer(experiment, tmp_path, task, round_)
    assert {name.split("/")[1].split(".")[0] for name in reply.arrays} == trained
    before = start(experiment, tmp_path)
    learner = new_client("site-1", experiment, tmp_path).learner
    after = learner.train(before, [], round_, task=task).model
    moved = {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])}
    assert moved - {"classifier"} == trained - {"classifier"}


def test_masks_differ_by_site_and_round_and_can_be_repeated(tmp_path: Path) -> None:
    experiment = selffed(images_at_most=8)
    means = {}
    for site in SITES[:2]:
        for round_ in (1, 1, 2):
            trained = new_client(site, experiment, tmp_path).learner.train(
                start(experiment, tmp_path), [], round_, task=PRETRAIN
            )
            means.setdefault((site, round_), set()).add(trained[2]["loss_reconstruction"])
    assert [len(values) for values in means.values()] == [1, 1, 1, 1]
    assert len(set.union(*means.values())) == 4


def test_several_processes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"site-1, processes: .*features and predicted pixels"):
        ranks.check_processes(new_client("site-1", selffed(), tmp_path).learner, 2)


# --- a run that only pre-trains


def test_a_run_that_only_pre_trains_says_it_is_not_evaluated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_local(selffed(rounds=2, pretraining_rounds=2), tmp_path / "run", sites=SITES[:2])
    assert {row["split"] for row in rows(run, "metrics")} == {"train"}
    assert not list(run.glob("best.*"))
    about = json.loads((run / "model.json").read_text())
    assert set(about["untrained"]) == {"classifier.weight", "classifier.bias"}
    assert about["note"] == "No round trained these tensors."
    assert [row["round"] for row in rows(run, "bytes")] == [1, 1, 2, 2], (
        "nobody is asked to evaluate"
    )
    sentence = "The classifier has not been trained in this run, so there is nothing to judge."
    assert sentence in capsys.readouterr().out
    page = write_report(run).read_text()
    assert sentence in page
    assert "best.safetensors" not in page
    facts = initial_model(selffed(), Weights.of(run))[1]
    assert facts
    assert facts["new"] == ["classifier.weight", "classifier.bias"]


def test_so_where_its_classifiers_would_have_stayed(tmp_path: Path) -> None:
    run = run_local(
        selffed(rounds=1, warm_up=0, upload="encoder"), tmp_path / "run", sites=SITES[:1]
    )
    assert json.loads((run / "model.json").read_text())["note"] == "No round trained these tensors."
    page = write_report(run).read_text()
    assert "there is nothing to judge" in page
    assert "of its own and kept it" not in page


def test_a_run_of_both_phases_says_nothing_of_the_kind(straight: Path) -> None:
    assert "untrained" not in json.loads((straight / "run.json").read_text())
    assert "untrained" not in json.loads((straight / "model.json").read_text())
    assert "nothing to judge" not in write_report(straight).read_text()


# --- the server's own images


def from_files(contrastive: str = "server") -> Experiment:
    experiment = tiny("selffed", options={"contrastive": contrastive}, synthetic=None)
    return experiment.model_copy(update={"data": DataSpec(classes=CLASSES, image_size=28)})


def run_on_files(tmp_path: Path, folder: Path, experiment: Experiment) -> Path:
    sites = Sites(experiment, tmp_path / "cache", [folder])
    transport = LocalTransport(sites, ["site-1", "site-2"])
    return run_experiment(experiment, tmp_path / "run", transport, site_folders=[folder])


def test_without_server_images_a_run_ends_before_round_one(tmp_path: Path) -> None:
    folder = write_sites(tmp_path / "files")
    with pytest.raises(
        ConfigError, match=r"no file server.yaml and no synthetic images.*contrastive=client"
    ):
        run_on_files(tmp_path, folder, from_files())
    assert not (tmp_path / "run").exists(), (
        "it can be run again, with other settings, into the same folder"
    )


def test_a_hospitals_own_file_is_not_the_servers(tmp_path: Path) -> None:
    folder = write_sites(tmp_path / "files")
    (folder / "site-1.yaml").rename(folder / "fedward_site.yaml")
    assert not public_images(from_files(), tmp_path / "cache", [folder]).there
    with pytest.raises(ConfigError, match=r"no file server\.yaml and no synthetic images"):
        run_local(from_files(), tmp_path / "run", sites=["site-1"], site_folders=[folder])


@pytest.mark.parametrize("name", ["site-1.yaml", "fedward_site.yaml"])
def test_a_sites_file_under_the_servers_name_is_refused(tmp_path: Path, name: str) -> None:
    folder = write_sites(tmp_path / "files")
    (folder / "site-1.yaml").rename(folder / "kept.yaml")
    for link in (name, "server.yaml"):
        (folder / link).symlink_to("kept.yaml")
    with pytest.raises(
        ConfigError, match=rf"/server\.yaml: .*no site's, found that of site-1, .*/{name}"
    ):
        run_local(from_files(), tmp_path / "run", sites=["site-1"], site_folders=[folder])
    assert not (tmp_path / "run").exists()


def test_the_server_learns_from_no_test_image(tmp_path: Path) -> None:
    images = write_public_npz(tmp_path / "public.npz", train=5, val=6, test=7)
    (tmp_path / "server.yaml").write_text(
        "{kind: npz, file: public.npz, labels: {0: A, 1: B, 2: C}, labelled: 0.5}"
    )
    public = public_images(from_files(), tmp_path / "cache", [tmp_path])
    public.require({"training"})
    not_for_testing = {
        image.tobytes() for split in ("train", "val") for image in images[f"{split}_images"]
    }
    trained_on = {
        image.permute(1, 2, 0).numpy().tobytes()
        for image in public.learner.images["all"].pixels.cpu()
    }
    assert public.number == 11
    assert trained_on == not_for_testing


def test_a_server_file_without_images_to_learn_from_is_refused(tmp_path: Path) -> None:
    write_public_npz(tmp_path / "public.npz", train=0, val=0, test=7)
    (tmp_path / "server.yaml").write_text(
        "{kind: npz, file: public.npz, labels: {0: A, 1: B, 2: C}}"
    )
    with pytest.raises(ConfigError, match=r"server\.yaml names none"):
        public_images(from_files(), tmp_path / "cache", [tmp_path]).require({"training"})


def test_the_servers_step_equals_a_sites_contrastive_phase(tmp_path: Path) -> None:
    experiment = selffed()
    public = public_images(experiment, tmp_path, [])
    model = start(experiment, tmp_path)
    memory = {}
    trained, means = public.learn(model, 2, CONTRAST, memory)
    moved = {name.split(".")[0] for name in model if not torch.equal(model[name], trained[name])}
    assert moved == {"encoder", "projection"}
    assert {"loss", "loss_contrastive", "seconds"} == set(means)
    assert set(memory) == {"target", "queue"}
    assert public.number == 40
    assert len(memory["queue"]["keys"]) == 16
    again = public_images(experiment, tmp_path, []).learn(model, 2, CONTRAST, {})[0]
    assert_equal(trained, again)


def test_a_diverging_server_step_names_the_servers_rate(tmp_path: Path) -> None:
    experiment = selffed(contrastive_rate=1e30)
    with pytest.raises(
        WorkError,
        match=r"server, contrast, round 2: Training diverged.*Lower contrastive_rate",
    ):
        public_images(experiment, tmp_path, []).learn(start(experiment, tmp_path), 2, CONTRAST, {})

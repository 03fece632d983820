"""SelfFed's sites that upload the encoder alone: each keeps a classifier that nobody else sees."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from asking import requests
from clients import new_client
from fedward.client.memory import OWN, site_models
from fedward.config import Experiment
from fedward.lab.local import LocalTransport
from fedward.methods import method_of, settings_of
from fedward.methods.averages import weighted_average
from fedward.methods.selffed.algorithm import FINE_TUNE, PRETRAIN
from fedward.methods.workflow import Exchange
from fedward.protocol.transport import Deliver
from fedward.protocol.wire import Message
from fedward.registry import METHODS
from fedward.report import write_report
from fedward.storage.model_files import StoredState
from interrupted import interrupted
from run_files import assert_equal, rows, steady_rows
from running import resume_local, run_local
from starting import initial_model
from tiny import tiny

pytestmark = pytest.mark.usefixtures("without_report", "narrow_swin")

SITES = ["site-1", "site-6"]
HEAD = {"classifier.weight", "classifier.bias"}


def uploading(**options: Any) -> Experiment:
    """Three rounds, of which the first pre-trains; all sites take part."""
    shared = {"rounds": 3, "warm_up": 0, "contrastive": "off", "upload": "encoder"}
    return tiny("selffed", options={**shared, **options})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of an undisturbed run."""
    return run_local(uploading(), tmp_path_factory.mktemp("upload") / "run", sites=SITES)


def json_of(folder: Path, name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
    return content


def head_of(folder: Path, site: str) -> Mapping[str, Tensor]:
    """Return the classifier a site kept in its own folder."""
    memory = site_models(folder / "sites" / site / "memory", json_of(folder, "run")["id"])
    return memory.before(99, 0)[OWN]


def by_hand(
    experiment: Experiment, folder: Path
) -> tuple[list[dict[str, Tensor]], dict[str, dict[str, Tensor]]]:
    """Return the global model after each round, and each site's classifier.

    Sites train, and encoders are averaged.
    """
    sites = {name: new_client(name, experiment, folder / name) for name in SITES}
    models = [dict(initial_model(experiment)[0])]
    heads = {name: {} for name in SITES}
    for round_, task in ((1, PRETRAIN), (2, FINE_TUNE), (3, FINE_TUNE)):
        model = models[-1]
        sent = []
        sizes = []
        for name, site in sites.items():
            trained = site.learner.train({**model, **heads[name]}, [], round_, task=task)[0]
            heads[name] = {key: trained[key] for key in trained if key in HEAD}
            travelled = {
                key: model[key] + (trained[key] - model[key]) for key in model if key not in HEAD
            }
            sent.append(travelled)
            sizes.append(
                len(site.data.labelled) + (len(site.data.unlabelled) if task == PRETRAIN else 0)
            )
        mean = weighted_average(sent, [float(size) for size in sizes])
        models.append({key: mean.get(key, model[key]) for key in model})
    return models, heads


# --- a run


def test_encoders_are_averaged_and_classifiers_stay_at_sites(run: Path, tmp_path: Path) -> None:
    models, heads = by_hand(uploading(), tmp_path)
    assert_equal(dict(StoredState(run / "model.safetensors")), models[-1])
    for site in SITES:
        assert_equal(head_of(run, site), heads[site])
    first, second = (heads[site]["classifier.weight"] for site in SITES)
    assert not torch.equal(first, second)
    for name in HEAD:
        assert torch.equal(models[-1][name], models[0][name]), "the server's is the first one"
    (site,) = SITES[:1]
    learner = new_client(site, uploading(), tmp_path / site).learner
    measured = learner.evaluate({**models[-1], **heads[site]}).metrics
    expected = {
        (row["split"], row["name"]): row["value"] for row in measured if "/" not in row["name"]
    }
    logged = {
        (row["split"], row["name"]): row["value"]
        for row in rows(run, "metrics")
        if (row["round"], row["site"]) == (3, site)
        and row["split"] != "train"
        and "/" not in row["name"]
    }
    assert logged == expected


def test_sites_start_from_the_servers_classifier(tmp_path: Path) -> None:
    pretrained = run_local(uploading(rounds=1), tmp_path / "run", sites=SITES)
    first = initial_model(uploading())[0]
    for site in SITES:
        assert_equal(
            head_of(pretrained, site), {name: first[name] for name in first if name in HEAD}
        )


def test_an_upload_is_what_a_phase_trains_but_the_classifier(run: Path) -> None:
    model = StoredState(run / "model.safetensors")
    for round_, parts in (
        (1, {"encoder", "mask_token", "decoder"}),
        (2, {"encoder"}),
        (3, {"encoder"}),
    ):
        expected = sum(model[name].nbytes for name in model if name.split(".")[0] in parts)
        uploads = [row["up"] for row in rows(run, "bytes") if row["round"] == round_]
        assert uploads == [expected] * 2


@pytest.mark.parametrize(("round_", "answered"), [(2, 1), (3, 1), (3, 2)])
def test_a_killed_run_resumes_with_the_same_classifiers(
    run: Path, tmp_path: Path, round_: int, answered: int
) -> None:
    interrupted(uploading(), tmp_path / "run", SITES, round_, answered)
    resumed = resume_local(tmp_path / "run")
    assert_equal(
        dict(StoredState(resumed / "model.safetensors")),
        dict(StoredState(run / "model.safetensors")),
    )
    for site in SITES:
        assert_equal(head_of(resumed, site), head_of(run, site))
    for log in ("metrics", "bytes"):
        assert steady_rows(resumed, log) == steady_rows(run, log)


def test_a_classifier_that_is_sent_all_the_same_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange = LocalTransport.exchange

    def leaking(
        self: LocalTransport, requests: dict[str, Message], timeout: int, deliver: Deliver
    ) -> None:
        def add(site: str, answer: Message) -> None:
            if site == SITES[0] and answer.arrays:
                head = requests[site].arrays["model/classifier.bias"]
                answer.arrays["diff/classifier.bias"] = head
            deliver(site, answer)

        exchange(self, requests, timeout, add)

    monkeypatch.setattr(LocalTransport, "exchange", leaking)
    leaked = run_local(uploading(rounds=2), tmp_path / "run", sites=SITES)
    withheld_names = (
        "(classifier., projection.)",
        "(classifier., mask_token, decoder., projection.)",
    )
    for row, withheld in zip(rows(leaked, "rounds"), withheld_names, strict=True):
        assert row["replied"] == SITES[1:]
        expected = f"expected none of what does not go up {withheld}, found classifier.bias"
        assert expected in row["failed"][SITES[0]]


def test_a_site_without_its_classifier_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = initial_model(uploading())[0]
    site = new_client(SITES[0], uploading(), tmp_path)

    def evaluate(round_: int) -> list[str]:
        caplog.clear()
        site.handle(requests(uploading(), Exchange(round_, model, {}), SITES[:1])[SITES[0]])
        return [record.message for record in caplog.records if record.levelname == "WARNING"]

    assert evaluate(1) == []
    (warning,) = evaluate(2)
    assert warning == (
        "site site-1, round 2: no classifier of its own is remembered here, the server's first "
        "tensors are used"
    )
    assert evaluate(3) == []


def test_nothing_is_said_where_it_is_there_or_all_is_sent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for upload in ("encoder", "model"):
        run_local(uploading(upload=upload, rounds=2), tmp_path / upload, sites=SITES[:1])
    assert "of its own is remembered" not in caplog.text
    assert "private" not in json_of(tmp_path / "model", "run")
    assert "untrained" not in json_of(tmp_path / "model", "model")


def test_contrast_keeps_queue_and_target_at_the_site(tmp_path: Path) -> None:
    client = run_local(uploading(contrastive="client", rounds=2), tmp_path / "run", sites=SITES[:1])
    (newest,) = sorted((client / "sites").glob("*/memory/*/00002-000.safetensors"))
    assert {name.split("/")[0] for name in StoredState(newest)} == {"target", "queue", OWN}


def test_under_secure_aggregation_no_classifier_is_encrypted(tmp_path: Path) -> None:
    pytest.importorskip("tenseal")
    experiment = uploading(beta=1, rounds=2).model_copy(update={"secure_aggregation": True})
    sealed = run_local(experiment, tmp_path / "run", sites=SITES)
    assert json_of(sealed, "run")["status"] == "finished"
    first = initial_model(experiment)[0]
    last = StoredState(sealed / "model.safetensors")
    assert {name for name in first if torch.equal(first[name], last[name])} >= HEAD
    for site in SITES:
        assert set(head_of(sealed, site)) == HEAD


# --- what is said of it


def test_files_and_report_say_that_the_classifier_is_untrained(run: Path) -> None:
    assert json_of(run, "run")["private"] == ["classifier."]
    for name in ("model", "best"):
        assert set(json_of(run, name)["untrained"]) == HEAD
        assert "kept" in json_of(run, name)["note"]
    page = write_report(run).read_text()
    assert "The classifier in model.safetensors and best.safetensors is untrained." in page


# --- who may


def test_by_default_and_in_all_other_methods_nothing_stays() -> None:
    for method in set(METHODS) - {"alone"}:
        assert method_of(tiny(method)).requirements.tensors.private == ()
        if method != "selffed":
            assert method_of(tiny(method)).requirements.tensors.withheld("train") == ()
    assert method_of(uploading()).requirements.tensors.private == ("classifier.",)


def test_other_methods_refuse_the_setting() -> None:
    """FedPerl among them: its peers are whole models."""
    for method in set(METHODS) - {"selffed"}:
        with pytest.raises(ValidationError, match="upload"):
            settings_of(method, {"upload": "encoder"})

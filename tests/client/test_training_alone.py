"""Sites that train alone: each keeps and evaluates its own model, and no tensor leaves it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from clients import new_client
from fedward.client.memory import OWN, site_models
from fedward.config import Experiment
from fedward.errors import ConfigError
from fedward.inference.model import load_model
from fedward.lab.local import LocalTransport
from fedward.methods import method_of, settings_of
from fedward.methods.requirements import EVERY_TENSOR
from fedward.operation.audit_check import verify
from fedward.protocol.transport import Deliver
from fedward.protocol.wire import Message
from fedward.report import write_report
from fedward.storage.model_files import StoredState
from interrupted import interrupted
from run_files import assert_equal, rows, steady_rows, weights
from running import resume_local, run_local
from starting import initial_model
from tiny import tiny

pytestmark = pytest.mark.usefixtures("without_report")

SITES = ["site-1", "site-6"]


def alone(**options: Any) -> Experiment:
    """Two rounds on labelled images; or, where the options say so, on all."""
    return tiny("alone", options={"rounds": 2, **options})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of an undisturbed run."""
    return run_local(alone(), tmp_path_factory.mktemp("alone") / "run", sites=SITES)


def kept_model(folder: Path, site: str, round_: int) -> Mapping[str, Tensor]:
    """Return the model that a site had in its own folder after a round."""
    run_id = json.loads((folder / "run.json").read_text())["id"]
    memory = site_models(folder / "sites" / site / "memory", run_id)
    return memory.before(round_ + 1, 0)[OWN]


def values_over_classes(metrics: list[dict[str, Any]]) -> dict[tuple[str, str], float]:
    """Return split and name -> value of the rows that are not about a single class."""
    return {(row["split"], row["name"]): row["value"] for row in metrics if "/" not in row["name"]}


# --- what is trained, evaluated and kept


def test_each_site_goes_on_with_its_own_model_and_evaluates_it(run: Path, tmp_path: Path) -> None:
    """The oracle trains each site by itself, from round to round."""
    first = initial_model(alone())[0]
    models = []
    for site in SITES:
        learner = new_client(site, alone(), tmp_path / site).learner
        model = first
        for round_ in (1, 2):
            model = learner.train(dict(model), [], round_, task="train")[0]
            assert_equal(kept_model(run, site, round_), model)
            of_round = [
                row
                for row in rows(run, "metrics")
                if (row["round"], row["site"]) == (round_, site) and row["split"] != "train"
            ]
            assert values_over_classes(of_round)
            assert values_over_classes(of_round) == values_over_classes(
                learner.evaluate(model).metrics
            )
        models.append(model)
    assert any(not torch.equal(models[0][name], models[1][name]) for name in first)


@pytest.mark.parametrize(("method", "learns_from"), [("fedavg", "labels"), ("ssfl", "all_images")])
def test_a_site_gets_the_model_of_a_federation_of_itself(
    tmp_path: Path, method: str, learns_from: str
) -> None:
    """Up to rounding: there the server adds a difference in float32 to the model that it sent."""
    site = SITES[0]
    ours = run_local(alone(learns_from=learns_from), tmp_path / "ours", sites=[site])
    lone = tiny(method, options={"rounds": 2})
    theirs = run_local(lone, tmp_path / "theirs", sites=[site])
    first = initial_model(lone)[0]
    after_one = StoredState(theirs / "rounds" / "00001" / "state.safetensors")
    for name, tensor in kept_model(ours, site, 1).items():
        assert torch.equal(first[name] + (tensor - first[name]), after_one[f"model/{name}"]), name
    for name, tensor in kept_model(ours, site, 2).items():
        torch.testing.assert_close(tensor, weights(theirs)[name], rtol=0, atol=1e-6)


def test_a_killed_run_resumes_with_the_same_models(run: Path, tmp_path: Path) -> None:
    interrupted(alone(), tmp_path / "run", SITES, 2, 1)
    resumed = resume_local(tmp_path / "run")
    for site in SITES:
        assert_equal(kept_model(resumed, site, 2), kept_model(run, site, 2))
    assert steady_rows(resumed, "metrics") == steady_rows(run, "metrics")


# --- what leaves a site


def test_no_tensor_goes_up_and_the_servers_model_stays_the_first(run: Path) -> None:
    assert {row["up"] for row in rows(run, "bytes")} == {0}
    for name, tensor in weights(run).items():
        assert torch.equal(tensor, initial_model(alone())[0][name])


@pytest.mark.proves(
    "site",
    "in a job in which each site trains alone, a site sends a tensor of its model all the same",
    "refused on arrival; the site counts as failed",
)
def test_a_tensor_that_is_sent_all_the_same_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange = LocalTransport.exchange

    def leaking(
        self: LocalTransport, requests: dict[str, Message], timeout: int, deliver: Deliver
    ) -> None:
        def add(site: str, answer: Message) -> None:
            if site == SITES[0]:
                name = next(iter(requests[site].arrays))
                answer.arrays[name.replace("model/", "diff/")] = requests[site].arrays[name]
            deliver(site, answer)

        exchange(self, requests, timeout, add)

    monkeypatch.setattr(LocalTransport, "exchange", leaking)
    leaked = run_local(alone(rounds=1), tmp_path / "run", sites=SITES)
    (row,) = rows(leaked, "rounds")
    assert row["replied"] == SITES[1:]
    assert "expected none of what does not go up" in row["failed"][SITES[0]]


# --- what a run cannot do, and what is said of it


def test_without_a_label_the_run_fails(tmp_path: Path) -> None:
    """Not because the server's model is the first one, but because no site could train."""
    experiment = alone(rounds=3).model_copy(
        update={"synthetic": alone().synthetic.model_copy(update={"labelled": 0.0})}
    )
    with pytest.raises(Exception, match="no site has labels"):
        run_local(experiment, tmp_path / "run", sites=SITES)


def test_what_needs_a_mean_is_refused() -> None:
    for changes in (
        {"secure_aggregation": True},
        {"update_dtype": "float16"},
        {"options": {"robust": "median"}},
        {"options": {"average_decay": 0.5}},
    ):
        with pytest.raises(ConfigError, match="alone cannot work with"):
            tiny("alone", **changes)
    with pytest.raises(ValueError, match="proximal_weight"):
        settings_of("alone", {"proximal_weight": 0.1})
    assert method_of(alone()).requirements.tensors.private == (EVERY_TENSOR,)


def test_report_and_commands_say_that_the_models_are_at_the_sites(run: Path) -> None:
    assert verify(run).files
    page = write_report(run).read_text()
    assert "Each site trained a model of its own and kept it" in page
    sheet = (run / "clinician.html").read_text()
    assert f"Each of {len(SITES)} sites trained a model of its own, on its images." in sheet
    with pytest.raises(ConfigError, match="each site trained alone and kept its model"):
        load_model(run)

"""Hospitals with their default policy: what a lead's job may not do there, and approval."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from nvflare.fuel.flare_api.flare_api import Session
from torch import Tensor

from fedward.cli import main
from fedward.config import DataSpec, Experiment
from fedward.errors import RunError
from fedward.flare.jobs.configurations import experiment_in
from fedward.flare.jobs.export import export_job
from fedward.flare.jobs.submit import fetch, session, submit, wait
from fedward.methods.weight_limits import effective_number
from fedward.security.policy import POLICY_FILE
from finished_run import finished_run
from local_federation import HOSPITALS, LEAD, Federation
from reported import progress_with
from starting import initial_model
from tiny import clinical
from waiting import PATIENCE

pytestmark = pytest.mark.secure
EVERYONE = sorted(HOSPITALS)
VICTIM = "hospital-b"


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    with Federation(tmp_path_factory.mktemp("federation"), image_size=16) as running:
        yield running


@pytest.fixture
def lead(federation: Federation) -> Iterator[Session]:
    with session(federation.kit(LEAD)) as flare:
        yield flare


@pytest.fixture
def policy(federation: Federation) -> Iterator[Callable[..., None]]:
    """Gives the victim a policy for the time of a test."""
    file = federation.kit(VICTIM) / "local" / POLICY_FILE
    original = file.read_text()
    yield lambda **rules: federation.give_policy(VICTIM, **rules)
    file.write_text(original)


def rounds(out: Path) -> list[dict[str, Any]]:
    (log,) = out.rglob("rounds.jsonl")
    return [json.loads(line) for line in log.read_text().splitlines()]


def refused(federation: Federation, lead: Session, job: Path, out: Path) -> str:
    """Run a job that no site may train, and return the error that its lead gets."""
    with pytest.raises(RunError) as error:
        fetch(lead, wait(lead, submit(lead, job), PATIENCE), out)
    (row,) = rounds(out)
    assert row["replied"] == []
    assert row["bytes_up"] == 0
    return str(error.value)


def crafted(experiment: Experiment) -> dict[str, Tensor]:
    """Return weights with which the update of one image reveals its label and its features."""
    model, _, _ = initial_model(experiment)
    weights = {}
    for name, tensor in model.items():
        weights[name] = tensor * 0 if name.startswith("classifier") else tensor
    return weights


@pytest.mark.proves(
    "lead",
    "settings that let few images, steps, replies or sites decide an update, hand on "
    "one hospital's model, or never end",
    "refused before data are read; the lead reads the rule",
)
def test_one_image_of_one_hospital_is_not_for_the_lead(federation, lead, tmp_path):
    settings = {
        "images_per_round": 1,
        "batch": 1,
        "optimizer": "sgd",
        "momentum": 0.0,
        "learning_rate": 1.0,
    }
    experiment = clinical(minimum_replies=1, options={**settings, "participants": 1, "rounds": 1})
    init = finished_run(tmp_path / "init", experiment, crafted(experiment))
    export_job(experiment, tmp_path / "job", clinical=True, sites=[VICTIM], init=init)
    text = refused(federation, lead, tmp_path / "job", tmp_path / "out")
    assert f"{VICTIM} refuses: policy of {VICTIM}" in text
    for reason in (
        "minimum_sites: at least 3, the run has 1",
        "minimum_replies: at least 3, the job says 1",
        "minimum_participants: at least 3, the job says 1",
        "minimum_images: at least 32, the job says 1",
        "minimum_steps: at least 4, the job says 1",
        "minimum_batch: at least 8, the job says 1",
        "starting_weights: none, the run starts from ",
    ):
        assert reason in text


@pytest.mark.proves(
    "lead",
    "settings that let few images, steps, replies or sites decide an update, hand on "
    "one hospital's model, or never end",
    "refused before data are read; the lead reads the rule",
)
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"options": {"images_per_round": None, "local_epochs": 10**9}},
            "maximum_images: at most 1000000, the round would go through more here",
        ),
        ({"data": DataSpec(image_size=1024)}, "maximum_image_size: at most 512, the job says 1024"),
    ],
)
@pytest.mark.slow
def test_no_job_is_endless_work(federation, lead, tmp_path, changes, reason):
    options = {"rounds": 1, **changes.get("options", {})}
    experiment = clinical(**{**changes, "options": options})
    export_job(experiment, tmp_path / "job", clinical=True)
    refused(federation, lead, tmp_path / "job", tmp_path / "out")
    (row,) = rounds(tmp_path / "out")
    for hospital in HOSPITALS:
        assert reason in row["failed"][hospital]


@pytest.mark.proves(
    "lead",
    "sizes, distances or participations by which one or two sites are the average",
    "levelled: no site has more than half of a mean of three, which is worth two and "
    "a half equal ones; fewer replies are refused",
)
@pytest.mark.slow
def test_no_average_of_three_is_one_of_two(federation, lead, tmp_path):
    scaled = {"rounds": 1, "distance_scale": 1e7}
    two_replies = clinical("wfedavg", minimum_replies=2, options=scaled)
    export_job(two_replies, tmp_path / "two", clinical=True)
    text = refused(federation, lead, tmp_path / "two", tmp_path / "refused")
    assert text.count("minimum_replies: at least 3, the job says 2") == len(HOSPITALS)
    export_job(clinical("wfedavg", options=scaled), tmp_path / "three", clinical=True)
    folder = fetch(lead, wait(lead, submit(lead, tmp_path / "three"), PATIENCE), tmp_path / "out")
    (row,) = (json.loads(line) for line in (folder / "groups.jsonl").read_text().splitlines())
    assert row["sites"] == EVERYONE
    assert min(row["weights"]) > 0.12
    assert effective_number(row["weights"]) >= 2.5 * (1 - 1e-9)


@pytest.mark.proves(
    "lead",
    "settings that let few images, steps, replies or sites decide an update, hand on "
    "one hospital's model, or never end",
    "refused before data are read; the lead reads the rule",
)
def test_no_hospitals_model_is_for_another_and_no_job_is_endless(federation, tmp_path, capsys):
    """A site names every rule that refuses."""
    endless = {"anonymise": False, "images_per_round": 8 * 10**9}
    export_job(clinical("fedperl", options=endless), tmp_path / "job", clinical=True)
    command = ["submit", str(federation.kit(LEAD)), str(tmp_path / "job")]
    assert main([*command, "--out", str(tmp_path / "out"), "--supervise"]) == 1
    printed = capsys.readouterr()
    assert printed.out.count("attempt ") == 1, "a policy is not asked again"
    (row,) = rounds(tmp_path / "out")
    for hospital in HOSPITALS:
        for reason in (
            "lone_peers: no site's model to another site alone, the job says anonymise = false",
            "maximum_images: at most 1000000, the job says 8000000000",
        ):
            assert reason in row["failed"][hospital]
        assert f"{hospital} refuses: policy of {hospital}" in printed.err


@pytest.mark.proves(
    "files",
    "a policy that is unreadable, wrong, ambiguous or open to everybody",
    "every job is refused; only the site's log says why",
)
@pytest.mark.slow
def test_a_hospital_whose_rules_cannot_be_read_is_shut(federation, lead, policy, tmp_path):
    policy(minimum_patients=100)
    export_job(clinical(options={"rounds": 1}), tmp_path / "job", clinical=True)
    with pytest.raises(RunError) as error:
        fetch(lead, wait(lead, submit(lead, tmp_path / "job"), PATIENCE), tmp_path / "out")
    text = str(error.value)
    assert f"{VICTIM} refuses: policy of {VICTIM}: expected a file with the site's rules" in text
    assert "minimum_patients" not in text
    logs = federation.kit(VICTIM).rglob("log.txt")
    assert any("minimum_patients" in log.read_text() for log in logs)


@pytest.mark.slow
def test_a_hospital_that_requires_noise_takes_part_with_it(federation, lead, policy, tmp_path):
    policy(noise="required")
    export_job(clinical(options={"rounds": 1}), tmp_path / "job", clinical=True)
    scopes = federation.kit(VICTIM) / "local" / "privacy.json"
    original = scopes.read_text()
    noise = {"clip": 0.001, "noise_multiplier": 4.0, "delta": 1e-5, "max_epsilon": 20.0}
    content = json.loads(original)
    path = "fedward.flare.privacy.GaussianUpdateFilter"
    content["scopes"][0]["task_result_filters"] = [{"path": path, "args": noise}]
    scopes.write_text(json.dumps(content))
    try:
        fetch(lead, wait(lead, submit(lead, tmp_path / "job"), PATIENCE), tmp_path / "out")
    finally:
        scopes.write_text(original)
    (row,) = rounds(tmp_path / "out")
    assert row["replied"] == EVERYONE


@pytest.mark.proves(
    "lead",
    "a job at a site that asks for approval, also if another job was approved, or "
    "this one with another setting",
    "waits without reading data, and goes on with all once it is approved",
)
@pytest.mark.slow
def test_a_job_waits_for_a_hospitals_administrator(federation, lead, policy, tmp_path, capsys):
    policy(approval="required")
    experiment = clinical(options={"rounds": 1})
    other = experiment.model_copy(update={"seed": 4})
    kit = str(federation.kit(VICTIM))
    export_job(experiment, tmp_path / "job", clinical=True)
    export_job(other, tmp_path / "other", clinical=True)
    digest = experiment_in(tmp_path / "job" / "app" / "config").digest
    other_digest = experiment_in(tmp_path / "other" / "app" / "config").digest
    assert main(["approve", kit, other_digest]) == 0
    job_id = submit(lead, tmp_path / "job")
    assert progress_with("waiting", lead, job_id)["waiting"] == {VICTIM: digest}
    assert main(["status", str(federation.kit(LEAD)), job_id]) == 0
    assert main(["approve", kit]) == 0
    out = capsys.readouterr().out
    assert f"waiting   for approval: {VICTIM}" in out
    assert f"job {digest}\n  waits since" in out
    assert main(["approve", kit, digest]) == 0
    folder = fetch(lead, wait(lead, job_id, PATIENCE), tmp_path / "out")
    (row,) = rounds(tmp_path / "out")
    assert row["replied"] == EVERYONE
    assert json.loads((folder / "run.json").read_text())["summary"]["not_evaluated"] == {}

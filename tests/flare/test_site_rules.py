"""What doctor and administrator are told of a site's policy: rule by rule against a job, and of jobs that wait."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from fedward.cli import main
from fedward.flare.classes import FOREIGN
from fedward.flare.jobs.configurations import experiment_in
from fedward.flare.jobs.export import export_job
from fedward.flare.kits.doctor import site_rules
from fedward.flare.kits.kit import open_kit
from fedward.jobs import JOBS, load_experiment
from fedward.security.approvals import Approvals
from fedward.security.policy import FILE, Policy
from fedward.storage.initial import Weights, first_model, initial_model
from finished_run import finished_run
from foreign_jobs import SERVER, edit
from installed import install
from tiny import clinical

SITES = ["hospital-a", "hospital-b", "hospital-c"]
NOISE = {
    "path": "fedward.flare.privacy.GaussianUpdateFilter",
    "args": {"clip": 1.0, "noise_multiplier": 4.0, "delta": 1e-5, "max_epsilon": 20.0},
}


@pytest.fixture
def kit(tmp_path):
    """As much of a site's kit as its rules are."""
    folder = tmp_path / "hospital-b"
    (folder / "startup").mkdir(parents=True)
    (folder / "local").mkdir()
    server = {"name": "project", "service": {"target": "localhost:8002"}}
    (folder / "startup" / "fed_client.json").write_text(
        json.dumps({"servers": [server], "client": {"fqsn": "hospital-b"}})
    )
    (folder / "local" / "privacy.json").write_text(json.dumps({"scopes": [{"name": "clinical"}]}))
    shutil.copy(Path(site_rules.__file__).parents[1] / "templates" / FILE, folder / "local")
    return folder


ONLY_AT_WORK = {"maximum_questions", "maximum_questions_in_all", "maximum_sums"}
"""Rules of which a job's settings tell nothing."""


def rows(kit: Path, job: Path | None = None) -> dict:
    return {row.name: row for row in site_rules.check(open_kit(kit), job)}


def exported(folder: Path, experiment, **options) -> Path:
    export_job(experiment, folder, clinical=True, **options)
    return folder


@pytest.mark.parametrize("name", JOBS)
def test_each_shipped_job_keeps_every_rule_of_a_new_kit(kit, tmp_path, name):
    job = exported(tmp_path / name, load_experiment(name, clinical=True))
    found = rows(kit, job)
    assert {rule for rule, row in found.items() if row.status != "ok"} == ({"surveys"} if name == "survey" else set())
    assert found["policy"].found == f"local/{FILE}; all rules as by default"
    assert set(found) == set(Policy.model_fields) - ONLY_AT_WORK | {"policy", "approval"}


def test_broken_rules_are_told_one_by_one(kit, tmp_path, capsys):
    job = exported(tmp_path / "job", clinical(minimum_replies=1, options={"images_per_round": 8}), sites=SITES[:2])
    failed = {name for name, row in rows(kit, job).items() if row.status == "failed"}
    assert failed == {"minimum_sites", "minimum_replies", "minimum_images", "minimum_steps"}
    assert main(["doctor", str(kit), "--job", str(job)]) == 1
    out = capsys.readouterr().out
    assert "FAILED   minimum_replies\n" in out
    assert "found the job says 1\n" in out
    assert "expected at least 3\n" in out


def test_noise_is_that_of_the_jobs_scope(kit, tmp_path):
    (kit / "local" / FILE).write_text("noise: required")
    job = exported(tmp_path / "job", clinical())
    assert rows(kit, job)["noise"].status == "failed"
    scopes = [{"name": "research"}, {"name": "clinical", "task_result_filters": [NOISE]}]
    (kit / "local" / "privacy.json").write_text(json.dumps({"scopes": scopes}))
    found = rows(kit, job)
    assert (found["noise"].status, found["policy"].found) == ("ok", f"local/{FILE}; not the default: noise")


def test_the_sha256_an_export_prints_allows_its_weights(kit, tmp_path, capsys):
    experiment = load_experiment("fedavg", ["rounds=1"], clinical=True)
    run = finished_run(tmp_path / "run", experiment, initial_model(experiment, None)[0])
    command = ["jobs", str(tmp_path / "jobs"), "--only", "fedavg", "--clinical", "--set", "rounds=1", "--sites", *SITES]
    assert main([*command, "--init", str(run)]) == 0
    told = capsys.readouterr()
    digest = first_model(experiment, Weights.of(run))
    assert f"starting_weights: [{digest}]\n" in told.out
    assert f"starting_weights: none, the run starts from {digest}" in told.err
    assert rows(kit, tmp_path / "jobs" / "fedavg")["starting_weights"].status == "failed"
    (kit / "local" / FILE).write_text(f"starting_weights: [{digest}]")
    assert rows(kit, tmp_path / "jobs" / "fedavg")["starting_weights"].status == "ok"


def test_a_jobs_digest_can_be_copied_from_the_report(kit, tmp_path):
    (kit / "local" / FILE).write_text("approval: required")
    job = exported(tmp_path / "job", clinical())
    lines = rows(kit, job)["approval"].lines()
    assert experiment_in(job / "app" / "config").digest in [line.strip() for line in lines]
    assert max(map(len, lines)) <= 80


def test_an_export_that_the_default_policy_refuses_is_told_so(tmp_path, capsys):
    command = ["jobs", str(tmp_path), "--only", "fedavg", "--clinical"]
    assert main(command) == 0
    assert capsys.readouterr().err == ""
    assert main([*command, "--set", "minimum_replies=2"]) == 0
    told = "sites with the default policy refuse it; minimum_replies: at least 3, the job says 2"
    assert capsys.readouterr().err == f"fedward: warning: fedavg: {told}\n"


@pytest.mark.parametrize(
    ("spoil", "status", "told"),
    [
        (lambda file: file.unlink(), "warning", "the default of each rule holds"),
        (lambda file: file.chmod(0o664), "warning", "one that a group may change"),
        (lambda file: file.chmod(0o666), "failed", "one that anybody may change"),
        (lambda file: file.write_text("minimum_answers: 3"), "failed", "minimum_answers: unknown"),
        (lambda file: file.write_text("{"), "failed", "expected the node content"),
    ],
)
def test_a_policy_that_cannot_be_trusted_is_told(kit, spoil, status, told):
    spoil(kit / "local" / FILE)
    row = rows(kit)["policy"]
    assert row.status == status
    assert told in row.found


@pytest.mark.parametrize("kind", ["method", "network"])
def test_a_foreign_name_that_is_not_admitted_is_told(kit, tmp_path, monkeypatch, kind):
    points = {kind: {"trap": "trap_module:Thing"}}
    install(tmp_path / "packages", monkeypatch, "trap-package", "trap_module", "1 / 0", version="2.1", **points)
    job = exported(tmp_path / "job", clinical())

    def name_it(content):
        workflow = content["workflows"][0]
        if kind == "method":
            workflow["path"], workflow["args"]["method"] = FOREIGN, "trap"
        else:
            workflow["args"]["experiment"]["net"] = "trap"

    edit(SERVER, name_it)(job / "app")
    found = rows(kit, job)
    assert set(found) == {"policy", "draws", "extensions", "rules"}
    assert (found["extensions"].status, found["rules"].status) == ("failed", "skipped")
    assert found["extensions"].found == f"the job needs {kind} trap-package==2.1:trap"
    assert found["extensions"].expected == "none"
    assert f"change the rule in local/{FILE}" in found["extensions"].remedy
    assert "trap_module" not in sys.modules, "it is not even imported"


def test_a_job_that_is_none_of_ours_is_told(kit, tmp_path):
    job = exported(tmp_path / "job", clinical())
    config = job / "app" / "config" / "config_fed_server.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "workflows": []}))
    assert rows(kit, job)["rules"].status == "failed"


def test_rules_are_skipped_where_job_or_scopes_cannot_be_read(kit, tmp_path):
    job = exported(tmp_path / "job", clinical())
    (kit / "local" / "privacy.json").write_text("{")
    assert rows(kit, job)["rules"].status == "skipped"
    assert rows(kit, tmp_path / "none")["rules"].status == "skipped"


# --- fedward approve


def approve(kit: Path, *arguments: str) -> int:
    return main(["approve", str(kit), *arguments])


def test_an_administrator_sees_what_waits_and_what_it_would_do(kit, capsys):
    (kit / "local" / FILE).write_text("approval: required")
    experiment, approvals = (
        clinical(data={"classes": ["a", "\x1b[2J"], "image_size": 16}),
        kit / "fedward" / "approvals",
    )
    assert approve(kit) == 0
    assert capsys.readouterr().out == "no job is waiting or approved\n"
    assert not Approvals(approvals).ask(experiment)
    assert approve(kit) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"job {experiment.digest}\n  waits since 20")
    assert '"minimum_replies": 3' in " ".join(out.split())
    assert "at least 3, the job says 3" in out
    assert "\x1b" not in out
    assert approve(kit, experiment.digest) == 0
    assert capsys.readouterr().out == f"job {experiment.digest} is approved\n"
    assert Approvals(approvals).ask(experiment)
    assert approve(kit) == 0
    assert "\n  approved 20" in capsys.readouterr().out
    assert approve(kit, experiment.digest, "--withdraw") == 0
    assert not Approvals(approvals).ask(experiment)


def test_a_job_that_has_not_asked_is_approved_in_advance(kit, tmp_path, capsys):
    (kit / "local" / FILE).write_text("approval: required")
    job = exported(tmp_path / "job", clinical())
    digest = experiment_in(job / "app" / "config").digest
    waits = rows(kit, job)["approval"]
    assert (waits.status, waits.remedy) == (
        "warning",
        f"The job waits until it is approved: fedward approve KIT {digest}",
    )
    assert approve(kit, digest) == 0
    assert "in advance: it has not asked to run here yet" in capsys.readouterr().out
    assert rows(kit, job)["approval"].status == "ok"
    assert approve(kit) == 0
    assert capsys.readouterr().out.startswith(f"job {digest}\n  approved 20")


@pytest.mark.parametrize("arguments", [["0" * 63], ["job"], ["0" * 64, "--withdraw"], ["--withdraw"]])
def test_a_wrong_approval_changes_nothing(kit, capsys, arguments):
    assert approve(kit, *arguments) == 2
    assert "fedward: " in capsys.readouterr().err
    assert not (kit / "fedward").exists()


def test_only_a_site_approves(kit, capsys):
    (kit / "startup" / "fed_client.json").rename(kit / "startup" / "fed_admin.json")
    admin = {"host": "localhost", "port": 1, "scheme": "grpc", "username": "lead", "project_name": "p"}
    (kit / "startup" / "fed_admin.json").write_text(json.dumps({"admin": {**admin, "server_identity": "localhost"}}))
    assert approve(kit) == 2
    assert "expected a site's, found a user's" in capsys.readouterr().err

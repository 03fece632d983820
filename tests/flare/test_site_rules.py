"""What the doctor and the administrator read about a site's policy.

Rule by rule against a job, and about jobs that wait.
"""

import hashlib
import json
import shutil
import sys
from pathlib import Path

import pytest

from fedward.cli import main
from fedward.config import Experiment
from fedward.flare.classes import METHOD_CONTROLLER
from fedward.flare.jobs.configurations import experiment_in
from fedward.flare.jobs.export import export_job
from fedward.flare.kits.approve import differences
from fedward.flare.kits.doctor import policy
from fedward.flare.kits.kit import open_kit
from fedward.jobs import JOBS, load_experiment
from fedward.methods import job_of
from fedward.security.approvals import Approvals
from fedward.security.policy import POLICY_FILE, Policy
from fedward.starting_model import Weights, first_model
from finished_run import finished_run
from foreign_jobs import SERVER, edit
from installed import install
from starting import initial_model
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
    shutil.copy(Path(policy.__file__).parents[1] / "templates" / POLICY_FILE, folder / "local")
    return folder


ONLY_AT_WORK = {
    "maximum_questions",
    "maximum_questions_in_all",
    "maximum_sums",
    "card",
    "subgroups",
}
"""Rules of which a job's settings tell nothing."""


def rows(kit: Path, job: Path | None = None) -> dict:
    return {row.name: row for row in policy.check(open_kit(kit), job)}


def exported(folder: Path, experiment, **options) -> Path:
    export_job(experiment, folder, clinical=True, **options)
    return folder


REFUSING_RULES = {"survey": {"surveys"}, "fedmatch_peers": {"lone_peers"}}
"""Rules of a new kit that refuse a shipped job, because a hospital must want it expressly."""


@pytest.mark.parametrize("name", JOBS)
def test_each_shipped_job_keeps_every_rule_of_a_new_kit(kit, tmp_path, name):
    job = exported(tmp_path / name, load_experiment(name, clinical=True))
    rules = rows(kit, job)
    refusing = {rule for rule, row in rules.items() if row.status != "ok"}
    assert refusing == REFUSING_RULES.get(name, set())
    assert rules["policy"].found == f"local/{POLICY_FILE}; all rules as by default"
    assert set(rules) == set(Policy.model_fields) - ONLY_AT_WORK | {"policy", "approval"}


def test_broken_rules_are_reported_one_by_one(kit, tmp_path, capsys):
    job = exported(
        tmp_path / "job",
        clinical(minimum_replies=1, options={"images_per_round": 8}),
        sites=SITES[:2],
    )
    failed = {name for name, row in rows(kit, job).items() if row.status == "failed"}
    assert failed == {"minimum_sites", "minimum_replies", "minimum_images", "minimum_steps"}
    assert main(["doctor", str(kit), "--job", str(job)]) == 1
    out = capsys.readouterr().out
    assert "FAILED   minimum_replies\n" in out
    assert "found the job says 1\n" in out
    assert "expected at least 3\n" in out


def test_noise_is_that_of_the_jobs_scope(kit, tmp_path):
    (kit / "local" / POLICY_FILE).write_text("noise: required")
    job = exported(tmp_path / "job", clinical())
    assert rows(kit, job)["noise"].status == "failed"
    scopes = [{"name": "research"}, {"name": "clinical", "task_result_filters": [NOISE]}]
    (kit / "local" / "privacy.json").write_text(json.dumps({"scopes": scopes}))
    rules = rows(kit, job)
    assert rules["noise"].status == "ok"
    assert rules["policy"].found == f"local/{POLICY_FILE}; not the default: noise"


def test_the_sha256_an_export_prints_allows_its_weights(kit, tmp_path, capsys):
    experiment = load_experiment("fedavg", ["rounds=1"], clinical=True)
    run = finished_run(tmp_path / "run", experiment, initial_model(experiment)[0])
    command = [
        "jobs",
        str(tmp_path / "jobs"),
        "--only",
        "fedavg",
        "--clinical",
        "--set",
        "rounds=1",
        "--sites",
        *SITES,
    ]
    assert main([*command, "--init", str(run)]) == 0
    printed = capsys.readouterr()
    digest = first_model(experiment, job_of(experiment), Weights.of(run))
    assert f"starting_weights: [{digest}]\n" in printed.out
    assert f"starting_weights: none, the run starts from {digest}" in printed.err
    assert rows(kit, tmp_path / "jobs" / "fedavg")["starting_weights"].status == "failed"
    (kit / "local" / POLICY_FILE).write_text(f"starting_weights: [{digest}]")
    assert rows(kit, tmp_path / "jobs" / "fedavg")["starting_weights"].status == "ok"


def test_a_jobs_digest_can_be_copied_from_the_report(kit, tmp_path):
    (kit / "local" / POLICY_FILE).write_text("approval: required")
    job = exported(tmp_path / "job", clinical())
    lines = rows(kit, job)["approval"].lines()
    assert experiment_in(job / "app" / "config").digest in [line.strip() for line in lines]
    assert max(map(len, lines)) <= 80


def test_an_export_that_needs_images_at_the_server_says_so(tmp_path, capsys):
    assert main(["jobs", str(tmp_path), "--only", "selffed", "--clinical"]) == 0
    warning = (
        "fedward: warning: selffed: the server needs images of its own, "
        "named in local/server.yaml of its kit\n"
    )
    assert warning in capsys.readouterr().err
    assert main(["jobs", str(tmp_path), "--only", "server_alone", "--clinical"]) == 0
    assert "server_alone: the server needs labelled images of its own" in capsys.readouterr().err
    command = ["jobs", str(tmp_path), "--only", "selffed", "--clinical"]
    assert main([*command, "--set", "contrastive=off"]) == 0
    assert "server.yaml" not in capsys.readouterr().err


def test_an_export_that_the_default_policy_refuses_brings_a_warning(tmp_path, capsys):
    command = ["jobs", str(tmp_path), "--only", "fedavg", "--clinical"]
    assert main(command) == 0
    assert capsys.readouterr().err == ""
    assert main([*command, "--set", "minimum_replies=2"]) == 0
    warning = "sites with the default policy refuse it; minimum_replies: at least 3, the job says 2"
    assert capsys.readouterr().err == f"fedward: warning: fedavg: {warning}\n"


@pytest.mark.parametrize(
    ("spoil", "status", "expected"),
    [
        (lambda file: file.unlink(), "warning", "the default of each rule holds"),
        (lambda file: file.chmod(0o664), "warning", "mode 0664: a group may change it"),
        (lambda file: file.chmod(0o666), "failed", "mode 0666"),
        (lambda file: file.write_text("minimum_answers: 3"), "failed", "minimum_answers: unknown"),
        (lambda file: file.write_text("{"), "failed", "expected the node content"),
    ],
)
def test_a_policy_that_cannot_be_trusted_is_reported(kit, spoil, status, expected):
    spoil(kit / "local" / POLICY_FILE)
    row = rows(kit)["policy"]
    assert row.status == status
    assert expected in row.found


def test_draws_that_others_may_foresee_are_reported(kit):
    secret = kit / "fedward" / "draws.secret"
    secret.parent.mkdir()
    secret.write_bytes(bytes(32))
    secret.chmod(0o640)
    assert rows(kit)["draws"].status == "failed"
    assert "mode 0640" in rows(kit)["draws"].found
    secret.chmod(0o600)
    assert rows(kit)["draws"].status == "ok"
    (kit / "local" / POLICY_FILE).write_text("draws: seed")
    assert rows(kit)["draws"].status == "warning"
    assert "can tell which images each step used" in rows(kit)["draws"].found


@pytest.mark.parametrize("kind", ["method", "network"])
def test_a_foreign_name_that_is_not_admitted_is_reported(kit, tmp_path, monkeypatch, kind):
    points = {kind: {"trap": "trap_module:Thing"}}
    install(
        tmp_path / "packages",
        monkeypatch,
        "trap-package",
        "trap_module",
        "1 / 0",
        version="2.1",
        **points,
    )
    job = exported(tmp_path / "job", clinical())

    def name_it(content):
        workflow = content["workflows"][0]
        if kind == "method":
            workflow["path"], workflow["args"]["method"] = METHOD_CONTROLLER, "trap"
        else:
            workflow["args"]["experiment"]["net"] = "trap"

    edit(SERVER, name_it)(job / "app")
    rules = rows(kit, job)
    assert set(rules) == {"policy", "draws", "extensions", "rules"}
    assert rules["extensions"].status == "failed"
    assert rules["rules"].status == "skipped"
    assert rules["extensions"].found == f"the job needs {kind} trap-package==2.1:trap"
    assert rules["extensions"].expected == "none"
    assert f"change the rule in local/{POLICY_FILE}" in rules["extensions"].remedy
    assert "trap_module" not in sys.modules, "it is not even imported"


def test_a_job_of_another_package_is_reported(kit, tmp_path):
    job = exported(tmp_path / "job", clinical())
    config = job / "app" / "config" / "config_fed_server.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "workflows": []}))
    assert rows(kit, job)["rules"].status == "failed"


def test_rules_are_skipped_where_job_or_scopes_cannot_be_read(kit, tmp_path):
    job = exported(tmp_path / "job", clinical())
    (kit / "local" / "privacy.json").write_text("{")
    assert rows(kit, job)["rules"].status == "skipped"
    assert rows(kit, tmp_path / "none")["rules"].status == "skipped"


@pytest.mark.parametrize(
    ("content", "folder", "status", "expected"),
    [
        (b"weights", True, "ok", "{folder}/encoder.safetensors, as the job means it"),
        (b"others", True, "failed", "weights encoder.safetensors: "),
        (None, True, "failed", "weights encoder.safetensors: {folder}"),
        (b"weights", False, "failed", "weights encoder.safetensors: no such folder"),
    ],
)
def test_the_weights_that_a_job_names_are_looked_for(
    kit, tmp_path, monkeypatch, content, folder, status, expected
):
    (kit / "local" / POLICY_FILE).write_text("weights_files: any")
    monkeypatch.delenv("FEDWARD_WEIGHTS", raising=False)
    if folder:
        monkeypatch.setenv("FEDWARD_WEIGHTS", str(tmp_path))
    if content:
        (tmp_path / "encoder.safetensors").write_bytes(content)
    named = {"file": "encoder.safetensors", "sha256": hashlib.sha256(b"weights").hexdigest()}
    row = rows(kit, exported(tmp_path / "job", clinical(net="small_cnn_gn", pretrained=named)))[
        "weights"
    ]
    assert row.status == status
    assert row.found.startswith(expected.format(folder=tmp_path))


def test_an_approval_that_cannot_be_read_is_told_beside_the_rules(kit, tmp_path):
    (kit / "local" / POLICY_FILE).write_text("approval: required")
    job = exported(tmp_path / "job", clinical())
    digest = experiment_in(job / "app" / "config").digest
    assert approve(kit, digest) == 0
    (file,) = (kit / "fedward" / "approvals").glob("*.json")
    file.write_text("null")
    rules = rows(kit, job)
    assert rules["approval"].status == "failed"
    assert file.name in rules["approval"].found
    assert rules["minimum_sites"].status == "ok"


def test_a_folder_that_nothing_names_leaves_policy_and_rules_as_they_are(
    kit, tmp_path, monkeypatch
):
    """Jobs in containers keep secret and approvals in a folder of their own."""
    monkeypatch.delenv("FEDWARD_STATE", raising=False)
    resources = {"components": [{"id": "docker_launcher"}]}
    (kit / "local" / "resources.json").write_text(json.dumps(resources))
    (kit / "local" / POLICY_FILE).write_text("approval: required")
    rules = rows(kit, exported(tmp_path / "job", clinical()))
    assert rules["policy"].found == f"local/{POLICY_FILE}; not the default: approval"
    for name in ("draws", "approval"):
        assert rules[name].status == "skipped"
        assert "FEDWARD_STATE" in rules[name].found
    assert rules["minimum_sites"].status == "ok"


# --- fedward approve


def approve(kit: Path, *arguments: str) -> int:
    return main(["approve", str(kit), *arguments])


def test_an_administrator_sees_what_waits_and_what_it_would_do(kit, capsys):
    (kit / "local" / POLICY_FILE).write_text("approval: required")
    experiment = clinical()
    approvals = kit / "fedward" / "approvals"
    assert approve(kit) == 0
    assert capsys.readouterr().out == "no job is waiting or approved\n"
    assert not Approvals(approvals).ask(experiment, "clinical")
    assert approve(kit) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"job {experiment.digest}\n  waits since 20")
    assert out.splitlines()[2] == "  privacy scope clinical"
    assert "at least 3, the job says 3" in out
    (file,) = approvals.glob("*.json")
    assert f"  all settings: {file}\n" in out
    entry = json.loads(file.read_text())
    assert entry["experiment"]["seed"] == 3
    assert approve(kit, experiment.digest) == 0
    shown = f"job {experiment.digest} is approved under the privacy scope clinical\n"
    assert capsys.readouterr().out == shown
    assert Approvals(approvals).ask(experiment, "clinical")
    assert approve(kit) == 0
    assert "\n  approved 20" in capsys.readouterr().out
    assert approve(kit, experiment.digest, "--withdraw") == 0
    assert not Approvals(approvals).ask(experiment, "clinical")


def two_scopes(kit: Path, **more: str) -> None:
    scopes = [
        {"name": "clinical", "task_result_filters": [NOISE]},
        {"name": "plain", "task_result_filters": []},
    ]
    (kit / "local" / "privacy.json").write_text(json.dumps({"scopes": scopes, **more}))
    (kit / "local" / POLICY_FILE).write_text("approval: required")


@pytest.mark.proves(
    "lead",
    "an approved job is sent again under another privacy scope, such as one without noise",
    "waits without reading data, and is listed with that scope",
)
def test_an_administrator_approves_a_job_under_one_scope(kit, tmp_path, capsys):
    two_scopes(kit, default_scope="clinical")
    job = exported(tmp_path / "job", clinical())
    digest = experiment_in(job / "app" / "config").digest
    assert approve(kit, digest) == 0
    assert "under the privacy scope clinical in advance" in capsys.readouterr().out
    assert rows(kit, job)["approval"].status == "ok"
    edit("meta.json", lambda content: content.update(scope="plain"))(job)
    row = rows(kit, job)["approval"]
    assert row.status == "warning"
    assert row.remedy.endswith(f"fedward approve KIT {digest} --scope plain")
    assert approve(kit, digest, "--scope", "plain") == 0
    assert rows(kit, job)["approval"].status == "ok"
    assert approve(kit, digest, "--scope", "plain", "--withdraw") == 0
    assert "no longer approved under the privacy scope plain;" in capsys.readouterr().out
    assert rows(kit, job)["approval"].status == "warning"


def test_among_several_scopes_without_a_default_the_administrator_names_one(kit, capsys):
    """What waits at the moment does not decide it."""
    two_scopes(kit)
    experiment = clinical()
    folder = kit / "fedward" / "approvals"
    assert not Approvals(folder).ask(experiment, "plain")
    for arguments in ((), ("--withdraw",), ("--scope", "none such"), ("--scope", "")):
        assert approve(kit, experiment.digest, *arguments) == 2
        assert "clinical, plain" in capsys.readouterr().err
    assert not Approvals(folder).ask(experiment, "plain")
    assert approve(kit, "--scope", "plain") == 2
    assert "needs the digest of a job" in capsys.readouterr().err


def settings_shown(kit: Path, experiment: Experiment, capsys) -> str:
    """Let a job ask at a hospital that approves each one; return the lines with its settings."""
    (kit / "local" / POLICY_FILE).write_text("approval: required")
    assert not Approvals(kit / "fedward" / "approvals").ask(experiment, "clinical")
    assert approve(kit) == 0
    out = capsys.readouterr().out
    return out[out.index("  method ") : out.index("  all settings: ")]


def test_an_administrator_sees_what_is_not_as_by_default(kit, capsys):
    experiment = clinical(
        options={"rounds": 20, "participants": None, "learning_rate": 1e-4}, seed=7
    )
    assert settings_shown(kit, experiment, capsys).splitlines() == [
        "  method fedavg, and what is not as by default:",
        "    setting           this job                      default",
        "    data.image_size   16                            32",
        "    seed              7                             1",
        "    minimum_replies   3                             1",
        "    timeout           60                            3600",
        "    rounds            20                            500",
        "    participants      null                          3",
        "    images_per_round  32                            416",
        "    batch             8                             16",
        "    learning_rate     0.0001                        5e-05",
        "    clip_gradient     100.0                         null",
    ]


@pytest.mark.parametrize("name", [*JOBS, "multi_label"])
def test_nothing_but_differences_is_shown_of_any_job(name):
    """By what the job is if it is made of the differences alone."""
    multi_label = ["data.multi_label=true", "data.classes=[a, b]"]
    experiment = load_experiment(
        *(("ssfl", multi_label) if name == "multi_label" else (name,)), clinical=True
    )
    experiment = experiment.model_copy(update={"synthetic": None})
    shown = {
        setting: (json.loads(value), json.loads(default))
        for setting, value, default in differences(experiment)
    }
    assert all(value != default for value, default in shown.values())
    fields = {
        setting: value
        for setting, (value, _) in shown.items()
        if setting in Experiment.model_fields
    }
    data = {
        setting.removeprefix("data."): value
        for setting, (value, _) in shown.items()
        if "." in setting
    }
    options = {
        setting: value
        for setting, (value, _) in shown.items()
        if setting not in fields and "." not in setting
    }
    made = Experiment(
        method=experiment.method, synthetic=None, data=data, options=options, **fields
    )
    whole = {**made.options, **job_of(made).settings.model_dump(mode="json")}
    assert whole == job_of(experiment).settings.model_dump(mode="json")
    assert made.model_dump(exclude={"options"}) == experiment.model_dump(exclude={"options"})


@pytest.mark.proves(
    "lead",
    "a class named like a terminal's commands or a line of `fedward approve`",
    "shown written out, within the table of the job's settings",
)
def test_a_jobs_settings_cannot_pass_for_others_on_the_screen(kit, capsys):
    names = [
        "\x1b[2J",
        "\u202egnp",
        "x\n  approved 2026-11-26",
        "a name of " + 10 * "very many " + "words",
    ]
    shown = settings_shown(kit, clinical(data={"classes": names, "image_size": 16}), capsys)
    lines = shown.splitlines()
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "approved 2026" in " ".join(shown.split())
    assert all(line.startswith("    ") for line in lines[1:])
    assert max(map(len, lines)) <= 80


def test_a_job_with_settings_that_are_gone_hides_no_other(
    kit: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = Approvals(kit / "fedward" / "approvals")
    gone, there = clinical("ssfl"), clinical()
    assert not known.ask(gone)
    (file,) = (kit / "fedward" / "approvals").glob("*.json")
    entry = json.loads(file.read_text())
    entry["experiment"]["options"]["pseudo_labels"] = "magic"
    file.write_text(json.dumps(entry))
    assert not known.ask(there)
    assert approve(kit) == 0
    shown = capsys.readouterr().out
    assert f"job {gone.digest}" in shown
    assert "settings that this version of fedward does not have: the job cannot run here" in shown
    assert f"job {there.digest}" in shown
    assert shown.count("  method ") == 1


def test_approvals_that_are_not_trusted_are_named_and_hide_no_other(
    kit: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = kit / "fedward" / "approvals"
    Approvals(folder).approve("5" * 64)
    damaged, open_to_all = (folder / f"{digit * 64}.json" for digit in "19")
    damaged.write_text("{")
    open_to_all.write_text((folder / f"{'5' * 64}.json").read_text())
    open_to_all.chmod(0o606)
    assert approve(kit) == 2
    shown = capsys.readouterr()
    assert shown.out.startswith(f"job {'5' * 64}\n  approved 20")
    assert f"1. approval {damaged}: expected " in shown.err
    assert f"2. approval {open_to_all}: expected " in shown.err

    folder.chmod(0o777)
    assert approve(kit) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("approval ") == 1
    assert f"approval {folder}: expected " in shown.err


def test_a_job_that_has_not_asked_is_approved_in_advance(kit, tmp_path, capsys):
    (kit / "local" / POLICY_FILE).write_text("approval: required")
    job = exported(tmp_path / "job", clinical())
    digest = experiment_in(job / "app" / "config").digest
    waits = rows(kit, job)["approval"]
    assert waits.status == "warning"
    assert waits.remedy == f"The job waits until it is approved: fedward approve KIT {digest}"
    assert approve(kit, digest) == 0
    assert "in advance: it has not asked to run here yet" in capsys.readouterr().out
    assert rows(kit, job)["approval"].status == "ok"
    assert approve(kit) == 0
    assert capsys.readouterr().out.startswith(f"job {digest}\n  approved 20")


@pytest.mark.parametrize(
    "arguments", [["0" * 63], ["job"], ["0" * 64, "--withdraw"], ["--withdraw"]]
)
def test_a_wrong_approval_changes_nothing(kit, capsys, arguments):
    assert approve(kit, *arguments) == 2
    assert "fedward: " in capsys.readouterr().err
    assert not (kit / "fedward").exists()


def test_only_a_site_approves(kit, capsys):
    (kit / "startup" / "fed_client.json").rename(kit / "startup" / "fed_admin.json")
    admin = {
        "host": "localhost",
        "port": 1,
        "scheme": "grpc",
        "username": "lead",
        "project_name": "p",
    }
    (kit / "startup" / "fed_admin.json").write_text(
        json.dumps({"admin": {**admin, "server_identity": "localhost"}})
    )
    assert approve(kit) == 2
    assert "expected a site's, found a user's" in capsys.readouterr().err

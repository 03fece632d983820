"""Kits that FLARE's tool prepares for Docker, Kubernetes and Slurm keep fedward's rules."""

import json
import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import yaml
from nvflare.apis.fl_exception import UnsafeComponentError
from nvflare.apis.workspace import Workspace
from nvflare.app_common.widgets.component_path_authorizer import ComponentPathAuthorizer
from nvflare.app_opt.job_launcher.study_runtime import load_study_runtime_file
from nvflare.tool.deploy.deploy_commands import prepare_deployment

from fedward.flare.classes import ALLOWED
from fedward.flare.kits import doctor
from fedward.flare.kits.builder import CONNECTIONS, RESOURCES, app_check
from provisioned import provisioned

PROVISIONING = Path(__file__).parents[2] / "provisioning"
DEPLOY = PROVISIONING / "deploy"
RUNTIMES = {
    "docker": {"parent": {"docker_image": "fedward:test"}},
    "k8s": {"parent": {"docker_image": "fedward:test"}},
    "slurm": {"job_launcher": {"sandbox": "none", "python_path": "/usr/bin/python3"}},
}
NAMES = {"hospital-a": "site", "localhost": "server"}
LAUNCHERS = {"docker": "DockerJobLauncher", "k8s": "K8sJobLauncher", "slurm": "SlurmJobLauncher"}


@pytest.fixture(scope="module")
def kits(tmp_path_factory):
    return provisioned(tmp_path_factory.mktemp("workspace"))


def prepare(kit, runtime, folder):
    """Return the kit that FLARE's tool makes of a kit."""
    config = folder / f"{runtime}.yaml"
    config.write_text(yaml.safe_dump({"runtime": runtime, **RUNTIMES[runtime]}))
    words = {"kit": str(kit), "config": str(config), "output": str(folder / runtime)}
    prepare_deployment(Namespace(**words))
    return folder / runtime


def test_flares_command_makes_the_same_kit(kits, tmp_path):
    """The other tests call what the command calls, because each process takes a second to start."""
    called = prepare(kits / "hospital-a", "docker", tmp_path)
    made = tmp_path / "made" / "docker"
    command = [sys.executable, "-m", "nvflare.cli", "deploy", "prepare", kits / "hospital-a"]
    command += ["--config", tmp_path / "docker.yaml", "--output", made]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stdout + done.stderr

    def contents(folder):
        return {
            path.relative_to(folder): path.read_bytes().replace(bytes(folder), b"KIT")
            for path in folder.rglob("*")
            if path.is_file()
        }

    assert contents(made) == contents(called)


@pytest.fixture(
    scope="module", params=[(runtime, name) for runtime in RUNTIMES for name in NAMES], ids="-".join
)
def prepared(request, kits, tmp_path_factory):
    """Return a prepared kit, the one it was made from, the runtime and the role."""
    runtime, name = request.param
    return (
        prepare(kits / name, runtime, tmp_path_factory.mktemp("prepared")),
        kits / name,
        runtime,
        NAMES[name],
    )


def resources(kit):
    return json.loads((kit / "local" / RESOURCES).read_text())


def test_what_a_kit_says_of_jobs_is_kept(prepared):
    kit, before, _, role = prepared
    content = resources(kit)
    assert content["class_allow_list"] == list(ALLOWED[role])
    assert content["class_list_enforcement_mode"] == "enforce"
    assert content["app_validator"] == app_check(role)
    assert not (kit / "local" / "resources.json").exists()
    connections = json.loads((kit / "local" / CONNECTIONS).read_text())
    assert connections["internal"]["resources"]["connection_security"] == "mtls"
    assert connections["allow_adhoc_conns"] is False
    changed = {RESOURCES, CONNECTIONS}
    files = [
        path.relative_to(before)
        for path in (before / "local").rglob("*")
        if path.name not in changed
    ]
    assert Path("local/authorization.json") in files
    assert all((kit / file).read_bytes() == (before / file).read_bytes() for file in files)


def test_what_a_kit_says_of_logs_and_waiting_is_kept(prepared):
    kit, before, _, role = prepared
    if role == "site":
        assert resources(kit)["allow_log_streaming"] is False
        startup = "startup/fed_client.json"
        assert json.loads((kit / startup).read_text())["client"]["communication_timeout"] == 30
        assert (kit / startup).read_bytes() == (before / startup).read_bytes()
    else:
        assert resources(kit)["servers"][0]["heart_beat_timeout"] == 60
        assert "/tmp/" not in json.dumps(resources(kit)).replace("/var/tmp/", "").replace(
            str(kit), ""
        )


@pytest.mark.proves(
    "lead",
    "another class, at a kit that FLARE prepared for Docker, Kubernetes or Slurm",
    "refused: the prepared kit keeps its list, checks and log rule",
)
@pytest.mark.parametrize(
    "path",
    [
        "fedward.cli.main",
        "fedward.report.template.PackageLoader",
        "nvflare.app_common.workflows.fedavg.FedAvg",
        "nvflare.app_opt.job_launcher.docker_launcher.ClientDockerJobLauncher",
    ],
)
def test_other_classes_are_still_refused(prepared, path):
    workspace = Workspace(str(prepared[0]))
    authorizer = ComponentPathAuthorizer()
    for listed in ALLOWED[prepared[3]]:
        authorizer.authorize_component_config({"path": listed}, workspace=workspace)
    with pytest.raises(UnsafeComponentError, match="not in allow_list"):
        authorizer.authorize_component_config({"path": path}, workspace=workspace)


def rows(kit):
    return {row.name: row for row in doctor.examine(kit)[1]}


def test_the_doctor_knows_a_prepared_kit(prepared):
    kit, _, runtime, role = prepared
    found = rows(kit)
    for name in ("layout", "allow list", "app check", "prepared kit"):
        assert found[name].status == "ok", name
    assert found["launcher"].status == "warning"
    assert LAUNCHERS[runtime] in found["launcher"].found
    assert "--supervise" in found["launcher"].remedy
    if role == "site":
        assert found["logs"].status == "ok"


def test_a_prefix_in_a_prepared_kit_fails(kits, tmp_path):
    kit = prepare(kits / "hospital-b", "docker", tmp_path)
    content = resources(kit)
    content["class_allow_list"].append("fedward.")
    (kit / "local" / RESOURCES).write_text(json.dumps(content))
    assert rows(kit)["allow list"].status == "failed"


def test_copies_of_records_are_reported(kits, tmp_path):
    """FLARE copies the folders of jobs, and all that a site keeps, into the prepared kit."""
    used = kits / "hospital-c"
    for file in (
        "0f1e-job/meta.json",
        "0f1e-job/app_hospital-c/config/x.json",
        "fedward/privacy-hospital-c.jsonl",
    ):
        (used / file).parent.mkdir(parents=True, exist_ok=True)
        (used / file).write_text("{}")
        os.utime(used / file, (1, 1))
    row = rows(prepare(used, "slurm", tmp_path))["prepared kit"]
    assert row.status == "warning"
    assert "copies of 0f1e-job, fedward" in row.found
    assert "privacy budget" in row.remedy
    assert "prepared kit" not in rows(used)


def test_records_of_the_prepared_kits_own_jobs_are_no_copies(kits, tmp_path):
    kit = prepare(kits / "hospital-a", "docker", tmp_path)
    for file in ("0f1e-job/meta.json", "fedward/privacy-hospital-a.jsonl"):
        (kit / file).parent.mkdir(parents=True)
        (kit / file).write_text("{}")
    assert rows(kit)["prepared kit"].status == "ok"


def test_a_file_that_is_replaced_meanwhile_stops_no_look_for_copies(kits, tmp_path, monkeypatch):
    """A participant that runs writes its presence every few seconds."""
    kit = prepare(kits / "hospital-a", "docker", tmp_path)
    gone = kit / "fedward" / "presence.json.partial"
    gone.parent.mkdir()
    gone.write_text("{}")
    is_file, look = Path.is_file, Path.stat

    def stat(path: Path, **how: Any) -> os.stat_result:
        if path == gone:
            raise FileNotFoundError(gone)
        return look(path, **how)

    monkeypatch.setattr(Path, "is_file", lambda path: path == gone or is_file(path))
    monkeypatch.setattr(Path, "stat", stat)
    assert rows(kit)["prepared kit"].status == "ok"


@pytest.mark.parametrize("mode", ["docker", "k8s"])
def test_jobs_in_containers_import_nothing_from_their_folder(mode):
    """FLARE starts them in the folder of the job's files."""
    studies = load_study_runtime_file(str(DEPLOY / "study_runtime.yaml"), mode)
    assert studies["default"].env["PYTHONSAFEPATH"] == "1"


def test_batch_jobs_import_nothing_from_their_folder():
    setup = yaml.safe_load((DEPLOY / "slurm.yaml").read_text())["job_launcher"]["setup"]
    assert "export PYTHONSAFEPATH=1" in setup.splitlines()


def launcher(kit, change):
    """Change the arguments of a prepared kit's launcher."""
    content = resources(kit)
    (found,) = (part for part in content["components"] if part["id"].endswith("_launcher"))
    change(found["args"])
    (kit / "local" / RESOURCES).write_text(json.dumps(content))


def of_study(kit, **changes):
    """Change the environment of the study in a kit as we ship it; None removes a variable."""
    content = yaml.safe_load((DEPLOY / "study_runtime.yaml").read_text())
    environment = content["studies"]["default"]["env"]
    environment.update(changes)
    content["studies"]["default"]["env"] = {
        name: value for name, value in environment.items() if value is not None
    }
    (kit / "local" / "study_runtime.yaml").write_text(yaml.safe_dump(content))
    return content


@pytest.mark.parametrize("runtime", ["docker", "k8s"])
def test_containers_that_import_from_a_jobs_folder_are_reported(kits, tmp_path, runtime):
    kit = prepare(kits / "hospital-b", runtime, tmp_path)
    assert rows(kit)["job imports"].status == "warning"
    content = of_study(kit)
    assert rows(kit)["job imports"].status == "ok"
    assert rows(kit)["start script"].status == "skipped"
    assert "image must set" in rows(kit)["start script"].found
    of_study(kit, PYTHONSAFEPATH=None)
    row = rows(kit)["job imports"]
    assert row.status == "warning"
    assert "study default" in row.found
    assert "image" in row.remedy
    content["studies"]["trial"] = {"container": {"image": "other:1"}}
    (kit / "local" / "study_runtime.yaml").write_text(yaml.safe_dump(content))
    assert "study trial" in rows(kit)["job imports"].found
    of_study(kit, PYTHONSAFEPATH="")
    row = rows(kit)["job imports"]
    assert row.status == "failed"
    assert "FLARE refuses" in row.remedy


def test_an_environment_of_all_jobs_counts_too(kits, tmp_path):
    kit = prepare(kits / "hospital-b", "docker", tmp_path)
    for value, status in (("1", "ok"), ("", "warning")):
        launcher(
            kit, lambda args, value=value: args.update(default_job_env={"PYTHONSAFEPATH": value})
        )
        assert rows(kit)["job imports"].status == status


@pytest.mark.parametrize("name", NAMES)
def test_batch_jobs_that_may_import_from_their_folder_fail(kits, tmp_path, name):
    kit = prepare(kits / name, "slurm", tmp_path)
    assert rows(kit)["job imports"].status == "failed"
    shipped = yaml.safe_load((DEPLOY / "slurm.yaml").read_text())["job_launcher"]["setup"]
    launcher(kit, lambda args: args.update(setup=shipped))
    assert rows(kit)["job imports"].status == "ok"
    assert rows(kit)["start script"].status == "ok"
    for wrong in (
        "umask 077",
        "# export PYTHONSAFEPATH=1",
        f"{shipped}unset PYTHONSAFEPATH",
        "PYTHONSAFEPATH=1",
    ):
        launcher(kit, lambda args, wrong=wrong: args.update(setup=wrong))
        assert rows(kit)["job imports"].status == "failed", wrong
    study = {"format_version": 2, "studies": {"default": {"env": {"PYTHONSAFEPATH": "1"}}}}
    (kit / "local" / "study_runtime.yaml").write_text(yaml.safe_dump(study))
    assert rows(kit)["job imports"].status == "ok"
    script = kit / "startup" / "sub_start.sh"
    script.write_text(script.read_text().replace(" PYTHONSAFEPATH=1", ""))
    assert rows(kit)["start script"].status == "failed"

"""Kits prepared by FLARE's tool for Docker, Kubernetes and Slurm, with the shipped settings."""

import json
import os
import shutil
import subprocess
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from nvflare.tool.deploy.deploy_commands import prepare_deployment

from local_federation import Federation

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "provisioning" / "deploy"
PARTICIPANTS = ("localhost", "hospital-a")
RENDER = ["go", "run", Path(__file__).with_name("render.go")]
GO = {"GOPATH": "/usr/share/gocode", "GO111MODULE": "off"}
"""Debian's packages of Go lie there."""


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    federation = Federation(tmp_path_factory.mktemp("deploy"))
    federation.provision()
    for name in PARTICIPANTS:
        shutil.copy(DEPLOY / "study_runtime.yaml", federation.kit(name) / "local")
    return federation.kit("hospital-a").parent


def prepared(kits: Path, runtime: str, name: str) -> Path:
    output = kits.parent / runtime / name
    if not output.exists():
        config = DEPLOY / f"{runtime}.yaml"
        prepare_deployment(Namespace(kit=str(kits / name), output=str(output), config=str(config)))
    return output


def launcher(kit: Path, name: str) -> dict[str, Any]:
    components = json.loads((kit / "local" / "resources.json.default").read_text())["components"]
    (found,) = (one["args"] for one in components if one["id"] == name)
    return found


@pytest.mark.parametrize("name", PARTICIPANTS)
def test_docker_starts_the_image_and_jobs_with_the_least_rights(kits, name):
    kit = prepared(kits, "docker", name)
    image = yaml.safe_load((DEPLOY / "docker.yaml").read_text())["parent"]["docker_image"]
    assert image in (kit / "startup" / "start_docker.sh").read_text()
    job = launcher(kit, "docker_launcher")["default_job_container_kwargs"]
    assert job["read_only"] is True
    assert job["cap_drop"] == ["ALL"]
    assert job["security_opt"] == ["no-new-privileges:true"]


@pytest.mark.parametrize("name", PARTICIPANTS)
def test_slurm_starts_the_kit_in_the_foreground(kits, name):
    (
        kits / name / "local" / "study_runtime.yaml"
    ).unlink()  # a batch job sees the machine's folders
    kit = prepared(kits, "slurm", name)
    shutil.copy(DEPLOY / "study_runtime.yaml", kits / name / "local")
    assert "sub_start.sh" in (kit / "startup" / "start_slurm.sh").read_text()
    assert "umask 077" in launcher(kit, "slurm_launcher")["setup"]


@pytest.mark.parametrize("runtime", ["docker", "k8s"])
@pytest.mark.parametrize("name", PARTICIPANTS)
def test_what_a_participant_keeps_outlives_a_jobs_container(kits, runtime, name):
    runtime_file = prepared(kits, runtime, name) / "local" / "study_runtime.yaml"
    study = yaml.safe_load(runtime_file.read_text())["studies"]["default"]
    assert study["env"]["FEDWARD_STATE"] == "/data/default/state"
    assert study["datasets"]["state"]["mode"] == "rw"
    assert study["datasets"]["images"]["mode"] == "ro"


@pytest.mark.parametrize("name", PARTICIPANTS)
def test_kubernetes_runs_the_manifests_as_our_account(kits, name):
    import kubernetes_validate  # builds grammars for seconds, which only this test needs

    manifests = list(rendered(prepared(kits, "k8s", name) / "helm_chart"))
    for manifest in manifests:
        kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)
    (pod,) = (one["spec"]["template"]["spec"] for one in manifests if one["kind"] == "Deployment")
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["runAsUser"] == 10001
    (container,) = pod["containers"]
    assert container["command"] == ["/usr/local/bin/participant"]
    assert container["resources"]["limits"]["memory"]
    assert {one["kind"] for one in manifests} == {
        "Deployment",
        "Role",
        "RoleBinding",
        "Service",
        "ServiceAccount",
    }


def rendered(chart: Path) -> Iterator[dict[str, Any]]:
    """By Helm, or by its language's template packages."""
    if shutil.which("helm"):
        command = ["helm", "template", "test", chart, "--namespace", "fedward"]
    elif shutil.which("go") and Path(GO["GOPATH"], "src/github.com/Masterminds/sprig").is_dir():
        command = [*RENDER, chart, "fedward"]
    else:
        pytest.skip(
            "neither helm nor Debian's golang-go and golang-github-masterminds-sprig-dev are "
            "installed"
        )
    done = subprocess.run(
        command, env={**os.environ, **GO}, check=True, capture_output=True, text=True
    )
    return (one for one in yaml.safe_load_all(done.stdout) if one)

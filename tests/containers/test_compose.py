"""What the compose file lets each participant do, by its text; test_engine.py asks an engine."""

from pathlib import Path
from typing import Any

import pytest
import yaml

CONTAINERS = Path(__file__).parents[2] / "provisioning" / "containers"
HOSPITALS = ("hospital-a", "hospital-b", "hospital-c")
KIT = "/var/tmp/nvflare/workspace"


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((CONTAINERS / "compose.yaml").read_text())
    return content


@pytest.mark.proves(
    "outsider",
    "a hospital's container that connects to another hospital or to the internet",
    "impossible: each shares an internal network of `compose.yaml` with the server alone",
)
def test_a_hospital_meets_the_server_alone(compose):
    for hospital in HOSPITALS:
        (network,) = compose["services"][hospital]["networks"]
        members = [
            name for name, service in compose["services"].items() if network in service["networks"]
        ]
        assert sorted(members) == [hospital, "server"]
        assert compose["networks"][network] == {"internal": True}
        assert "ports" not in compose["services"][hospital]
        assert "fedward-server" in compose["services"]["server"]["networks"][network]["aliases"]


@pytest.mark.parametrize("name", ["server", *HOSPITALS])
def test_each_participant_has_the_least_rights(compose, name):
    service = compose["services"][name]
    assert service["user"] == "10001:10001"
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert {"mem_limit", "cpus", "pids_limit"} <= set(service)
    assert not {"privileged", "cap_add", "devices", "pid", "ipc", "network_mode"} & set(service)
    mounts = {
        target: (source, mode)
        for source, target, *mode in (one.split(":") for one in volumes(service))
    }
    assert mounts[f"{KIT}/startup"][1] == mounts[f"{KIT}/local"][1] == ["ro"]
    kits = {source for source, _ in mounts.values() if "KITS" in source}
    assert all(f"/{'fedward-server' if name == 'server' else name}" in source for source in kits)
    assert not any("docker.sock" in source for source, _ in mounts.values())


@pytest.mark.parametrize("hospital", HOSPITALS)
def test_a_hospitals_images_are_its_own_and_read_only(compose, hospital):
    (images,) = (one for one in volumes(compose["services"][hospital]) if "FEDWARD_DATA" in one)
    assert images.endswith(f"/{hospital}:/data:ro")


def test_the_base_image_is_pinned_by_its_digest():
    lines = (CONTAINERS / "Dockerfile").read_text().splitlines()
    (base,) = (line for line in lines if line.startswith("ARG BASE="))
    assert len(bytes.fromhex(base.partition("@sha256:")[2])) == 32
    assert [line.split(" AS ")[0] for line in lines if line.startswith("FROM")] == [
        "FROM ${BASE}",
        "FROM ${BASE}",
    ]


def volumes(service: dict[str, Any]) -> list[str]:
    return [one.replace(":?}", "}") for one in service["volumes"]]

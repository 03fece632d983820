"""A federation in containers, by the compose file, podman, and the image in FEDWARD_IMAGE."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from fedward.flare.jobs.export import export_job
from local_federation import HOSPITALS, LEAD, Federation
from tiny import clinical

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(
        not (os.environ.get("FEDWARD_IMAGE") and shutil.which("podman") and os.getuid() == 0),
        reason="needs podman, root and FEDWARD_IMAGE",
    ),
]
ROOT = Path(__file__).parents[2]
IMAGE = os.environ.get("FEDWARD_IMAGE", "")
KIT = "/var/tmp/nvflare/workspace"
SERVER = "fedward-server"
ACCOUNT = 10001
LEAST_RIGHTS = [
    "--read-only",
    "--read-only-tmpfs=false",
    "--tmpfs=/tmp",
    "--cap-drop=all",
    "--security-opt=no-new-privileges",
]
ADDRESSES = {hospital: f"10.77.{number}" for number, hospital in enumerate(HOSPITALS, 1)}


class Containers(Federation):
    """The participants of compose.yaml, with kits and images below a folder."""

    def up(self) -> None:
        self.folder.mkdir(parents=True)
        project = (
            (ROOT / "provisioning" / "project.yml")
            .read_text()
            .replace("name: localhost", f"name: {SERVER}")
        )
        (self.folder / "project.yml").write_text(project)
        command = [
            ROOT / "provisioning" / "build.sh",
            self.folder / "workspace",
            self.folder / "project.yml",
        ]
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        subprocess.run(command, env={**os.environ, "PATH": path}, check=True, capture_output=True)
        for hospital in HOSPITALS:
            self.give_data(hospital)
            images = self.folder / "data" / hospital
            images.mkdir()
            (self.folder / "data" / f"{hospital}.npz").rename(images / "images.npz")
            labels = dict(enumerate(self.spec.classes))
            site = {"kind": "npz", "file": "/data/images.npz", "labels": labels, "labelled": 0.5}
            (self.kit(hospital) / "local" / "fedward_site.yaml").write_text(yaml.safe_dump(site))
        for kit in map(self.kit, (SERVER, *HOSPITALS, LEAD)):
            for path in (kit, *kit.rglob("*")):
                os.chown(path, ACCOUNT, ACCOUNT)
        (self.folder / "names.yaml").write_text(yaml.safe_dump(fixed_addresses()))
        self.compose("up", "--detach")

    def compose(self, *arguments: str) -> None:
        """Internal networks of older podman versions resolve no names, so addresses are written."""
        files = [ROOT / "provisioning" / "containers" / "compose.yaml", self.folder / "names.yaml"]
        command = [
            Path(sys.executable).parent / "podman-compose",
            *(f"--file={file}" for file in files),
            *arguments,
        ]
        folders = {
            "FEDWARD_KITS": str(self.kit(SERVER).parent),
            "FEDWARD_DATA": str(self.folder / "data"),
        }
        done = subprocess.run(
            command, env={**os.environ, **folders}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


def fixed_addresses() -> dict[str, object]:
    server: dict[str, object] = {"people": {"aliases": [SERVER]}}
    services: dict[str, object] = {"server": {"networks": server}}
    networks = {}
    for hospital, address in ADDRESSES.items():
        server[hospital] = {"ipv4_address": f"{address}.10"}
        services[hospital] = {"extra_hosts": [f"{SERVER}:{address}.10"]}
        networks[hospital] = {"internal": True, "ipam": {"config": [{"subnet": f"{address}.0/24"}]}}
    return {"services": services, "networks": networks}


def podman(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["podman", *arguments], capture_output=True, text=True, check=False)


def address(container: str, network: str) -> str:
    template = f'{{{{(index .NetworkSettings.Networks "{network}").IPAddress}}}}'
    return podman("inspect", container, "--format", template).stdout.strip()


def inside(service: str, *command: str) -> subprocess.CompletedProcess[str]:
    return podman("exec", f"fedward_{service}_1", *command)


@pytest.fixture(scope="module")
def containers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containers]:
    folder = tmp_path_factory.mktemp("containers") / "federation"
    for one in (folder.parent, folder.parents[1], folder.parents[2]):
        one.chmod(0o755)
    federation = Containers(folder, image_size=16)
    try:
        federation.up()
        deadline = time.monotonic() + 300
        while not all(
            inside(name, "python3", "-m", "fedward.flare.kits.health").returncode == 0
            for name in ("server", *HOSPITALS)
        ):
            assert time.monotonic() < deadline, podman("logs", "fedward_hospital-a_1").stdout
            time.sleep(2)
        yield federation
    finally:
        federation.compose("down", "--volumes")


def test_a_job_runs(containers, tmp_path):
    export_job(
        clinical(timeout=120, options={"rounds": 1}),
        containers.folder / "job",
        clinical=True,
    )
    results = containers.folder / "results"
    results.mkdir()
    os.chown(results, ACCOUNT, ACCOUNT)
    mounts = [
        f"--volume={containers.kit(LEAD)}:/kit",
        f"--volume={containers.folder}/job:/job:ro",
        f"--volume={results}:/results",
    ]
    network = [
        "--network=fedward_people",
        f"--add-host={SERVER}:{address('fedward_server_1', 'fedward_people')}",
    ]
    command = ["fedward", "submit", "/kit", "/job", "--out", "/results/out"]
    done = podman("run", "--rm", *LEAST_RIGHTS, *network, *mounts, IMAGE, *command)
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = results.rglob("fedward/run.json")
    assert json.loads(run.read_text())["status"] == "finished"
    written = [path for path in containers.kit("hospital-a").rglob("*") if path.is_file()]
    ours = [path for path in written if not {"startup", "local"} & set(path.parts)]
    assert ours
    assert not any(path.stat().st_mode & 0o077 for path in ours)


def test_a_hospital_reaches_the_server_alone(containers):
    program = (
        "import socket, sys\n"
        "for place in sys.argv[1:]:\n"
        "    try: socket.create_connection((place, 8002), 3); print(place)\n"
        "    except OSError: pass\n"
    )
    own = ADDRESSES["hospital-a"]
    other = ADDRESSES["hospital-b"]
    hospital = address("fedward_hospital-b_1", "fedward_hospital-b")
    reached = inside(
        "hospital-a", "python3", "-c", program, f"{own}.10", f"{other}.10", hospital, "192.0.2.1"
    ).stdout
    assert reached.split() == [f"{own}.10"]


def test_a_participant_cannot_write_its_code_or_its_rules(containers):
    places = [
        f"{KIT}/startup/x",
        f"{KIT}/local/x",
        "/data/x",
        "/usr/local/bin/x",
        "/usr/local/lib/python3.11/site-packages/x",
        "/etc/x",
    ]
    for place in places:
        assert inside("hospital-a", "touch", place).returncode != 0, place
    assert inside("hospital-a", "id", "-u").stdout.strip() == str(ACCOUNT)
    assert "CapEff:\t0000000000000000" in inside("hospital-a", "cat", "/proc/self/status").stdout


def test_a_stopped_participant_ends_by_the_signal(containers):
    podman("stop", "--time=60", "fedward_hospital-c_1")
    assert (
        podman("inspect", "fedward_hospital-c_1", "--format", "{{.State.ExitCode}}").stdout.strip()
        == "143"
    )


def test_the_image_has_no_way_up():
    found = podman(
        "run",
        "--rm",
        "--user=0",
        "--entrypoint=find",
        IMAGE,
        "/",
        "-xdev",
        "-type",
        "f",
        "-perm",
        "/6000",
    )
    assert found.returncode == 0
    assert found.stdout == ""
    for tool in ("pip", "gcc"):
        assert (
            podman("run", "--rm", *LEAST_RIGHTS, IMAGE, "sh", "-c", f"command -v {tool}").returncode
            != 0
        )
    assert podman("run", "--rm", "--user=0", IMAGE).returncode == 78

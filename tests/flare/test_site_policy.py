"""What provisioning writes into the kits, compared with FLARE's defaults."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nvflare.apis.app_validation import AppValidator
from nvflare.fuel.sec.authz import AuthzContext, Person
from nvflare.fuel.utils.class_loader import load_class
from nvflare.security.security import FLAuthorizer

from fedward.errors import ConfigError
from fedward.flare.classes import ALLOWED, CONSOLE
from fedward.flare.kits import builder
from fedward.flare.kits.builder import SitePolicyBuilder
from fedward.sites.site_file import read_site_file
from provisioned import provisioned
from waiting import appears

RESOURCES = "resources.json.default"
SITES = ["hospital-a", "hospital-b", "hospital-c"]
Read = Callable[[str, str], Any]


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return provisioned(tmp_path_factory.mktemp("workspace"))


@pytest.fixture
def read(kits: Path) -> Read:
    return lambda name, file: json.loads((kits / name / "local" / file).read_text())


@pytest.mark.parametrize("name", ["localhost", *SITES])
def test_single_classes_are_allowed_and_apps_checked(read, name):
    resources = read(name, RESOURCES)
    role = "server" if name == "localhost" else "site"
    assert resources["class_allow_list"] == list(ALLOWED[role])
    assert not any(entry.endswith(".") for entry in resources["class_allow_list"])
    assert resources["class_list_enforcement_mode"] == "enforce"
    assert resources["app_validator"] == {
        "path": "fedward.flare.kits.apps.AppCheck",
        "args": {"role": role},
    }
    assert issubclass(load_class(resources["app_validator"]["path"]), AppValidator)


@pytest.mark.parametrize("name", ["localhost", *SITES])
def test_there_is_one_file_of_resources(kits, name):
    """FLARE's tool for containers keeps the .default and deletes the other."""
    assert [path.name for path in (kits / name / "local").glob("resources*")] == [RESOURCES]


@pytest.mark.parametrize(
    ("name", "given"), [("localhost", "/elsewhere"), (SITES[0], ""), (SITES[0], "/elsewhere")]
)
def test_a_participants_process_imports_nothing_from_its_kit(kits, tmp_path, name, given):
    """The working directory is the kit; a program in place of python3 writes what it was given."""
    kit = shutil.copytree(kits / name, tmp_path / "kit")
    (kit / "evil.py").write_text("")
    stub = tmp_path / "bin" / "python3"
    stub.parent.mkdir()
    stub.write_text(
        f"#!/bin/sh\nexec {sys.executable} -c 'import sys; print(sys.path); import evil'\n"
    )
    stub.chmod(0o755)
    environment = {"PATH": f"{stub.parent}:/usr/bin:/bin", "PYTHONPATH": given}
    command = [kit / "startup" / "sub_start.sh", "--once"]
    done = subprocess.run(
        command, cwd=kit, env=environment, capture_output=True, text=True, check=False
    )
    assert "No module named 'evil'" in done.stderr
    path = done.stdout.splitlines()[-1]
    assert path.startswith("[")
    assert "''" not in path
    assert str(kit) not in path
    assert ("'/elsewhere'" in path) is bool(given)


@pytest.mark.parametrize(
    ("name", "script"),
    [("localhost", "start.sh"), (SITES[0], "start.sh"), ("lead@hospital-a.org", "fl_admin.sh")],
)
def test_a_kit_starts_in_a_folder_with_spaces(kits, tmp_path, name, script):
    """A program in place of ``sub_start.sh`` and of python3 writes how it was called."""
    kit = shutil.copytree(kits / name, tmp_path / "o'k # 50% ü")
    for stub in (kit / "startup" / "sub_start.sh", tmp_path / "python3"):
        stub.write_text(
            '#!/bin/sh\nprintf "%s\\n" "$0" "$@" > "$CALLED.new"\nmv "$CALLED.new" "$CALLED"\n'
        )
        stub.chmod(0o755)
    called = tmp_path / "called"
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "CALLED": str(called)}
    subprocess.run([kit / "startup" / script], env=environment, check=True)
    # start.sh starts the other script in the background.
    words = (appears(called.read_text) or "").splitlines()
    if script == "start.sh":
        assert words == [str(kit / "startup" / "sub_start.sh")]
    else:
        assert words[1:5] == ["-m", CONSOLE, "-m", f"{kit}/startup/.."]


def test_another_start_script_of_flare_is_reported(tmp_path):
    (tmp_path / "sub_start.sh").write_text("python3 -m nvflare\n")
    with pytest.raises(ConfigError, match="one line export PYTHONPATH"):
        builder._shut_out_the_kit(tmp_path / "sub_start.sh")


@pytest.mark.parametrize("name", ["localhost", *SITES])
def test_nobody_brings_code_and_only_two_roles_submit(read, name):
    policy = read(name, "authorization.json")
    permissions = policy["permissions"]
    assert set(permissions) == {"project_admin", "org_admin", "lead", "member"}
    assert all(rights.get("byoc", "none") == "none" for rights in permissions.values())
    submitting = {
        role for role, rights in permissions.items() if rights.get("submit_job", "none") != "none"
    }
    assert submitting == {"project_admin", "lead"}
    assert FLAuthorizer("hospital_a", policy).get_policy()


SUBMITTERS = {
    "own": Person("ann@a.org", "hospital_a", "lead"),
    "colleague's": Person("bob@a.org", "hospital_a", "lead"),
    "stranger's": Person("eve@b.org", "hospital_b", "lead"),
}
"""Whose a job is, for Ann of hospital A -> who submitted it."""
HANDLED = ("abort_job", "delete_job", "download_job")


@pytest.mark.parametrize("name", ["localhost", *SITES])
@pytest.mark.parametrize(
    ("role", "handled", "copied", "operated"),
    [
        ("project_admin", set(SUBMITTERS), set(SUBMITTERS), {"hospital_a", "hospital_b"}),
        ("lead", {"own"}, {"own"}, set()),
        ("org_admin", {"own", "colleague's"}, set(), {"hospital_a"}),
        ("member", set(), set(), set()),
    ],
)
def test_each_role_may_do_what_the_documentation_says(read, name, role, handled, copied, operated):
    """By FLARE's own rules: whose jobs, and the sites of which organisations."""
    policy = read(name, "authorization.json")
    ann = Person("ann@a.org", "hospital_a", role)

    def may(right: str, submitter: Person = ann, organisation: str = "hospital_a") -> bool:
        authorizer = FLAuthorizer(organisation, policy)
        return bool(authorizer.evaluate(AuthzContext(right, ann, submitter))[0])

    for right in HANDLED:
        assert {whose for whose, by in SUBMITTERS.items() if may(right, by)} == handled
    assert {whose for whose, by in SUBMITTERS.items() if may("clone_job", by)} == copied
    for right in ("shutdown", "restart"):
        organisations = {"hospital_a", "hospital_b"}
        assert {each for each in organisations if may(right, organisation=each)} == operated
    assert may("list_jobs")
    assert not any(may(right) for right in ("cat", "ls", "byoc", "server-predeployed-flwr"))


@pytest.mark.parametrize("site", SITES)
def test_sites_keep_their_logs_and_admit_one_scope(read, site):
    assert read(site, RESOURCES)["allow_log_streaming"] is False
    privacy = read(site, "privacy.json")
    assert [scope["name"] for scope in privacy["scopes"]] == ["clinical"]
    assert "default_scope" not in privacy


@pytest.mark.parametrize("site", SITES)
def test_the_sample_of_a_site_file_can_be_filled_in(kits, tmp_path, site):
    sample = kits / site / "local" / "fedward_site.yaml.sample"
    filled = shutil.copy(sample, tmp_path / "fedward_site.yaml")
    assert read_site_file(filled).kind == "manifest"


def test_the_server_stores_nothing_under_tmp(read):
    text = json.dumps(read("localhost", RESOURCES))
    assert "/tmp" not in text
    assert text.count("/var/lib/fedward/") == 2


@pytest.mark.parametrize(
    ("name", "launcher"), [("localhost", "Server"), *((site, "Site") for site in SITES)]
)
def test_killed_job_processes_are_started_again(read, name, launcher):
    (component,) = (
        part for part in read(name, RESOURCES)["components"] if part["id"] == "process_launcher"
    )
    assert component == {
        "id": "process_launcher",
        "path": f"fedward.flare.launchers.{launcher}JobLauncher",
        "args": {},
    }


def test_the_server_counts_a_site_as_gone_within_a_minute(read):
    assert read("localhost", RESOURCES)["servers"][0]["heart_beat_timeout"] == 60


@pytest.mark.parametrize("site", SITES)
def test_a_question_lost_with_the_server_is_asked_again(kits, site):
    client = json.loads((kits / site / "startup" / "fed_client.json").read_text())["client"]
    assert client["communication_timeout"] == 30
    assert client["site_config"] == {}, "FLARE would send the server what it finds in the kit"
    assert client["ssl_cert"] == "client.crt"


def test_a_relative_store_is_refused():
    with pytest.raises(ConfigError, match="server_storage"):
        SitePolicyBuilder("store")

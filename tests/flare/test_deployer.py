"""A job's app comes to a kit as a whole or not at all.

The apps are signed with the certificates of a provisioned project.
"""

import io
import json
import shutil
import threading
import uuid
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nvflare.apis.fl_context import FLContext
from nvflare.apis.workspace import Workspace
from nvflare.fuel.sec.audit import AuditService
from nvflare.fuel.sec.authz import AuthorizationService
from nvflare.fuel.utils.zip_utils import zip_directory_to_bytes
from nvflare.lighter.utils import load_private_key_file, sign_folders
from nvflare.private.fed.app.fl_app_validator import FLAppValidator
from nvflare.private.fed.app.fl_conf import create_privacy_manager
from nvflare.private.fed.server.job_meta_validator import JobMetaValidator
from nvflare.private.fed.utils.app_authz import AppAuthzService
from nvflare.private.fed.utils.app_deployer import AppDeployer
from nvflare.private.privacy_manager import PrivacyService
from nvflare.security.security import FLAuthorizer

from fedward.cli import main
from fedward.flare.gate.refusals import Refusals
from fedward.flare.jobs.export import export_job
from fedward.flare.kits import app_check, apps, deployer
from foreign_jobs import bring
from provisioned import provisioned
from tiny import clinical

SITE = "hospital-a"
LEAD = "lead@hospital-a.org"


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return provisioned(tmp_path_factory.mktemp("workspace"))


@pytest.fixture
def kit(kits: Path, tmp_path: Path) -> Path:
    return shutil.copytree(kits / SITE, tmp_path / SITE)


@pytest.fixture(autouse=True)
def site(kit: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """FLARE's services as a site's process has them; returns the audit log."""
    monkeypatch.setattr(AuditService, "the_auditor", None)
    monkeypatch.setattr(deployer, "refusals", Refusals())
    monkeypatch.setattr(AppAuthzService, "app_validator", None)
    manager = create_privacy_manager(Workspace(str(kit), SITE), names_only=True)
    monkeypatch.setattr(PrivacyService, "manager", manager)
    monkeypatch.setattr(AppDeployer, "deploy", AppDeployer.deploy)
    flares_check = JobMetaValidator._validate_resource
    monkeypatch.setattr(JobMetaValidator, "_validate_resource", staticmethod(flares_check))
    AuditService.initialize(str(kit / "audit.log"))
    read_rights(kit, monkeypatch)
    deployer.install()

    class Check(apps.AppCheck):
        def __init__(self) -> None:
            self.role = "site"

    AppAuthzService.initialize(FLAppValidator("client", [Check()]))
    return kit / "audit.log"


def read_rights(kit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let FLARE read who has which rights at a site, as its process does when it starts."""
    rules = json.loads((kit / "local" / "authorization.json").read_text())
    monkeypatch.setattr(AuthorizationService, "the_authorizer", None)
    AuthorizationService.initialize(FLAuthorizer("hospital_a", rules))


@pytest.fixture
def app(tmp_path: Path) -> Path:
    export_job(clinical(options={"rounds": 1}), tmp_path / "job", clinical=True)
    return tmp_path / "job" / "app"


def signed(app: Path, kits: Path, person: str = LEAD) -> bytes:
    """Return an app zipped and signed with the kit of a person."""
    sign(app, kits, person)
    return zip_directory_to_bytes(str(app), "")


def sign(folder: Path, kits: Path, person: str) -> None:
    """Sign a folder, and all folders in it, with the kit of a person."""
    startup = kits / person / "startup"
    key = load_private_key_file(str(startup / "client.key"))
    sign_folders(str(folder), key, str(startup / "client.crt"))


def deploy(
    kit: Path, app: bytes, job: str | None = None, scope: str = "clinical", **more: Any
) -> str:
    meta = {
        **more,
        "submitter_name": LEAD,
        "submitter_org": "hospital_a",
        "submitter_role": "lead",
        "scope": scope,
    }
    return AppDeployer().deploy(
        Workspace(str(kit), SITE), job or str(uuid.uuid4()), meta, "app", app, FLContext()
    )


def folders(kit: Path) -> set[str]:
    """Return what lies in a kit, without the audit log."""
    return {path.name for path in kit.iterdir()} - {"audit.log"}


@pytest.mark.parametrize("meta", [None, [], "lead", {"submitter_name": ["a"]}])
def test_a_job_without_readable_meta_is_refused(kit, app, kits, site, meta):
    before = folders(kit)
    job = str(uuid.uuid4())
    assert AppDeployer().deploy(
        Workspace(str(kit), SITE), job, meta, "app", signed(app, kits), FLContext()
    )
    assert folders(kit) == before
    assert "[A:refused train.deploy]" in site.read_text()


def test_an_app_comes_to_its_place(kit, kits, app):
    job = str(uuid.uuid4())
    assert deploy(kit, signed(app, kits), job) == ""
    placed = {
        path.relative_to(kit / job).as_posix() for path in (kit / job).rglob("*") if path.is_file()
    }
    config = f"app_{SITE}/config"
    assert {
        f"{config}/config_fed_client.json",
        f"{config}/config_fed_server.json",
        "fl_app.txt",
        "meta.json",
    } <= placed
    assert (kit / job / "fl_app.txt").read_text() == "app"
    meta = json.loads((kit / job / "meta.json").read_text())
    assert meta["submitter_name"] == LEAD
    assert "byoc" not in meta
    assert (kit / job).stat().st_mode & 0o777 == 0o700
    assert not [name for name in folders(kit) if name.startswith(".")]


def zipped(*names: str, size: int = 0) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, b"0" * size)
    return packed.getvalue()


LONG = "config/" + "x" * 255
HOSTILE: dict[str, tuple[bytes, str]] = {
    "a package that torch tries to import": (zipped("custom/pynvml.py"), "'custom/pynvml.py'"),
    "a path too long for the kit's disk": (zipped("custom/pynvml.py", LONG), "'config/xxx"),
    "a path that leads out of the kit": (
        zipped("../../hospital-b/local/resources.json"),
        "'../../hospital-b",
    ),
    "an absolute path": (zipped("/etc/cron.d/job"), "'/etc/cron.d/job'"),
    "a file that unpacks to gigabytes": (
        zipped("config/config_fed_client.json", size=32 << 20),
        "33554432",
    ),
    "a known file twice": (
        zipped("config/config_fed_client.json", "config/config_fed_client.json"),
        "comes twice",
    ),
    "weights for a site, which only the server gets": (
        zipped("config/model.safetensors"),
        "'config/model.safetensors'",
    ),
    "a folder in a file's place": (
        zipped("config/config_fed_client.json/x"),
        "config_fed_client.json/x",
    ),
    "no zip file": (b"PK nothing", "expected a zip file"),
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case,
            marks=pytest.mark.proves(
                "lead", f"an app with {case}", "refused before it is unpacked"
            ),
        )
        for case in HOSTILE
    ],
)
def test_a_hostile_archive_is_not_unpacked(kit, site, monkeypatch, case):
    monkeypatch.setattr(deployer, "unzip_all_from_bytes", lambda *_: pytest.fail("it was unpacked"))
    before = folders(kit)
    archive, named = HOSTILE[case]
    assert named in deploy(kit, archive)
    assert folders(kit) == before
    assert f"[U:server for {LEAD}][A:refused train.deploy]" in site.read_text()


def test_a_link_in_an_archive_is_refused(kit, site):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        link = zipfile.ZipInfo("config/config_fed_client.json")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    before = folders(kit)
    assert deploy(kit, packed.getvalue()).startswith("app: ValueError")
    assert "symlink" in site.read_text()
    assert folders(kit) == before


@pytest.mark.parametrize(
    "job", ["startup", "local", "fedward", "..", "../hospital-b", "", "x" * 300]
)
def test_a_job_is_named_by_an_id(kit, kits, app, job):
    """FLARE deletes the folder of a job's name before it unpacks the app."""
    before = folders(kit)
    assert "expected an id as FLARE makes them" in deploy(kit, signed(app, kits), job or " ")
    assert folders(kit) == before
    assert (kit / "startup" / "client.key").exists()


@pytest.mark.proves(
    "lead",
    "a second app for a job, two at once, or one whose deployment fails",
    "one is deployed as a whole, or none",
)
def test_a_second_app_for_one_job_is_refused(kit, kits, app):
    job = str(uuid.uuid4())
    assert deploy(kit, signed(app, kits), job) == ""
    (kit / job / "log.txt").write_text("it runs")
    assert "one that is here already" in deploy(kit, signed(app, kits), job)
    assert (kit / job / "log.txt").read_text() == "it runs"


@pytest.mark.proves(
    "lead",
    "a second app for a job, two at once, or one whose deployment fails",
    "one is deployed as a whole, or none",
)
def test_of_two_apps_at_once_one_is_in_its_place_whole(kit, kits, app):
    job = str(uuid.uuid4())
    good = signed(app, kits)
    bad = zipped("custom/pynvml.py", LONG)
    told: list[str] = []
    threads = [
        threading.Thread(target=lambda each=each: told.append(deploy(kit, each, job)))
        for each in [good, bad] * 5
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert told.count("") == 1
    assert not list((kit / job).rglob("custom"))
    assert (kit / job / f"app_{SITE}" / "config" / "config_fed_client.json").exists()
    assert not [name for name in folders(kit) if name.startswith(".")]


@pytest.mark.parametrize(
    ("person", "accepted"),
    [
        (LEAD, True),
        ("lead@hospital-b.org", True),
        ("admin@consortium.org", True),
        ("member@hospital-b.org", False),
        ("it@hospital-c.org", False),
        ("hospital-b", False),
        ("localhost", False),
    ],
)
def test_a_job_is_signed_by_a_lead_or_a_project_admin(kits, kit, app, site, person, accepted):
    if person == "localhost":
        shutil.copy(
            kits / person / "startup" / "server.key", kits / person / "startup" / "client.key"
        )
        shutil.copy(
            kits / person / "startup" / "server.crt", kits / person / "startup" / "client.crt"
        )
    before = folders(kit)
    told = deploy(kit, signed(app, kits, person))
    assert (told == "") is accepted
    if not accepted:
        assert "found none" in told or "signed by a lead or project_admin" in told
        assert folders(kit) == before
        assert "refused train.deploy" in site.read_text()


@pytest.mark.proves(
    "lead",
    "a job that a revoked person had sent before",
    "refused by the server once it was restarted, and by a site that revoked the person itself",
)
def test_a_job_of_a_revoked_person_is_refused(kits, kit, app, site, monkeypatch):
    archive = signed(app, kits)
    assert main(["revoke", str(kit), LEAD]) == 0
    read_rights(kit, monkeypatch)
    before = folders(kit)
    told = deploy(kit, archive)
    assert f"found {LEAD} (lead), whom authorization.json refuses" in told
    assert folders(kit) == before
    assert "refused train.deploy" in site.read_text()
    assert deploy(kit, signed(app, kits, "lead@hospital-b.org")) == ""


@pytest.mark.proves(
    "member",
    "an app that a lead has signed, with a configuration that somebody else has signed again",
    "refused: each signer must be somebody who may submit jobs",
)
@pytest.mark.parametrize(
    ("person", "reason"),
    [
        ("member@hospital-b.org", "found member@hospital-b.org (member)"),
        (
            "lead@hospital-b.org",
            "found lead@hospital-b.org (lead), whom authorization.json refuses",
        ),
    ],
)
def test_every_signer_of_an_app_may_submit_jobs(kits, kit, app, monkeypatch, person, reason):
    """Each folder has signatures of its own. The outer ones cover the name of the inner folder."""
    assert main(["revoke", str(kit), "lead@hospital-b.org"]) == 0
    read_rights(kit, monkeypatch)
    sign(app, kits, LEAD)
    sign(app / "config", kits, person)
    before = folders(kit)
    assert reason in deploy(kit, zip_directory_to_bytes(str(app), ""))
    assert folders(kit) == before


def unsigned(app: Path) -> None:
    for file in app.rglob("*__nvfl*"):
        file.unlink()


def changed_after_signing(app: Path) -> None:
    bring(
        "config/config_fed_client.json", (app / "config/config_fed_client.json").read_text() + " "
    )(app)


def added_after_signing(app: Path) -> None:
    for name in ("config_fed_client.json", "config_fed_server.json"):
        text = (app / "config" / name).read_text()
        (app / "config" / name).unlink()
        (app / "config" / name).write_text(text + "\n")


@pytest.mark.parametrize("alter", [unsigned, changed_after_signing, added_after_signing])
def test_an_app_without_a_valid_signature_is_refused(kits, kit, app, alter: Callable[[Path], None]):
    signed(app, kits)
    alter(app)
    before = folders(kit)
    assert "a valid signature of its submitter" in deploy(kit, zip_directory_to_bytes(str(app), ""))
    assert folders(kit) == before


@pytest.mark.proves(
    "lead",
    "a second app for a job, two at once, or one whose deployment fails",
    "one is deployed as a whole, or none",
)
@pytest.mark.parametrize(
    "step", ["unzip_all_from_bytes", "verify_folder_signature_and_get_signers", "_checked_meta"]
)
@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), RuntimeError("anything"), MemoryError()]
)
def test_whatever_fails_nothing_stays(kits, kit, app, step, error, monkeypatch):
    job = str(uuid.uuid4())
    before = folders(kit)

    def fail(*_: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(deployer, step, fail)
        assert type(error).__name__ in deploy(kit, signed(app, kits), job)
    assert folders(kit) == before
    assert deploy(kit, signed(app, kits), job) == ""


def test_an_error_of_a_disk_names_no_folder_of_the_site_to_the_lead(
    kits, kit, app, site, monkeypatch
):
    """An error of the operating system has the path at which it happened."""

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device", str(kit))

    monkeypatch.setattr(deployer.os, "rename", fail)
    answer = deploy(kit, signed(app, kits))
    assert answer == f"app: OSError; the details are in the audit log of {SITE}"
    assert str(kit) in site.read_text()


def test_a_file_that_cannot_be_read_is_refused_without_its_place(kits, kit, app, monkeypatch):
    archive = signed(app, kits)

    def fail(path: Path, **_: object) -> object:
        raise OSError(5, "Input/output error", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(app_check, "read_json_file", fail)
        answer = deploy(kit, archive)
    assert "found input/output error" in answer
    assert str(kit) not in answer


def test_what_a_killed_process_left_is_removed(kits, kit, app):
    (kit / ".deploy-0123" / "app" / "custom").mkdir(parents=True)
    assert deploy(kit, signed(app, kits)) == ""
    assert not (kit / ".deploy-0123").exists()


def test_a_folder_aside_has_a_name_as_long_as_a_jobs(kit):
    with deployer._staging_folder(kit) as aside:
        assert len(aside.name) == len(str(uuid.uuid4()))
    assert not aside.exists()


def test_a_job_brings_no_code_because_its_sender_says_so(kits, kit, app):
    """FLARE's process of a job with this mark would import from the folder of the app."""
    job = str(uuid.uuid4())
    assert deploy(kit, signed(app, kits), job, byoc=True) == ""
    assert "byoc" not in json.loads((kit / job / "meta.json").read_text())


def test_another_privacy_scope_is_refused_in_flares_words(kits, kit, app):
    assert deploy(kit, signed(app, kits), scope="public") == "privacy scope 'public' is not allowed"


# --- the resources that a job asks for


def of_a_gpu(amount: Any) -> dict[str, Any]:
    return {"num_of_gpus": 1, "mem_per_gpu_in_GiB": amount}


SPECS: list[Any] = [
    {SITE: of_a_gpu(-1e999)},
    {SITE: of_a_gpu(float("nan"))},
    {SITE: of_a_gpu(10**400)},
    {SITE: {"process": of_a_gpu(-1)}},
    {SITE: {"process": {"num_of_gpus": 1.5}}},
    {SITE: {"docker": {"shm_size": -1e999}}},
    {SITE: {"k8s": {"cpu": float("inf")}}},
    {SITE: {"process": 1}},
    {"hospital-b": {"num_of_gpus": True}},
    {"@default": {"num_of_gpus": -1}},
    {"@default": {"num_of_gpus": 1}, SITE: {"mem_per_gpu_in_GiB": -1}},
    {SITE: 1},
    [SITE],
    1,
]


@pytest.mark.proves(
    "lead",
    "resources for a job that are no amounts, such as minus infinity of a GPU's memory",
    "refused by the server when the job is submitted, and by each site",
)
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_resources_that_are_no_amounts_are_refused(kits, kit, app, tmp_path, spec):
    refusal = deploy(kit, signed(app, kits), resource_spec=spec)
    assert refusal.startswith("resource_spec of the job")
    assert submitted(tmp_path / "job", spec) == refusal, "the lead reads it at the submission"


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {SITE: of_a_gpu(8)},
        {SITE: {"num_of_gpus": 1, "num_of_cpus": 2, "memory": "4Gi"}},
        {SITE: {"docker": {"shm_size": "8g"}, "process": of_a_gpu(7.5)}},
        {"@default": {"num_of_gpus": 0}},
        {"@default": {"num_of_gpus": 2, "num_of_cpus": 4, "memory": "16Gi"}},
    ],
    ids=str,
)
def test_resources_as_flare_knows_them_are_asked_for(kits, kit, app, tmp_path, spec):
    assert deploy(kit, signed(app, kits), resource_spec=spec) == ""
    assert submitted(tmp_path / "job", spec) == ""


def submitted(job: Path, spec: Any) -> str:
    """Return why the server does not take a job with these resources; empty if it does."""
    file = job / "meta.json"
    meta = {**json.loads(file.read_text()), "resource_spec": spec}
    file.write_text(json.dumps(meta))
    return str(
        JobMetaValidator().validate("job", zip_directory_to_bytes(str(job.parent), "job"))[1]
    )

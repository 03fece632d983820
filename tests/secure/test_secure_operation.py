"""A federation over the years: what it says about itself, and who is shut out of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from nvflare.fuel.flare_api.api_spec import AuthorizationError
from prometheus_client.parser import text_string_to_metric_families

from fedward.cli import main
from fedward.errors import RunError
from fedward.flare.jobs.export import export_job
from fedward.flare.jobs.submit import fetch, session, submit, wait
from local_federation import HOSPITALS, LEAD, SERVER, Federation
from tiny import clinical
from waiting import PATIENCE, appears

pytestmark = [pytest.mark.secure, pytest.mark.slow]


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("metrics")


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory, metrics: Path) -> Iterator[Federation]:
    folder = tmp_path_factory.mktemp("federation")
    environment = {"FEDWARD_METRICS": str(metrics)}
    with Federation(folder, image_size=16, environment=environment) as running:
        yield running


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A clinical job of one round."""
    export_job(clinical(options={"rounds": 1}), tmp_path / "job", clinical=True)
    return tmp_path / "job"


# --- metrics


def test_metrics_files_can_be_read_by_another_account(federation, metrics, job, tmp_path):
    """Participants run with a umask of 077."""
    kits = {name: metrics / f"fedward_kit_{name}.prom" for name in (SERVER, *HOSPITALS)}
    assert appears(lambda: all(file.exists() for file in kits.values()))
    with session(federation.kit(LEAD)) as lead:
        job_id = submit(lead, job)
        fetch(lead, wait(lead, job_id, PATIENCE), tmp_path / "out")
    files = [*kits.values(), metrics / f"fedward_job_job_{job_id}.prom"]
    assert sorted(metrics.glob("*.prom")) == sorted(files)
    assert {file.stat().st_mode & 0o777 for file in files} == {0o644}
    contacts = [f'contact_timestamp_seconds{{site="{name}"}}' for name in HOSPITALS]
    assert appears(lambda: all(sample in kits[SERVER].read_text() for sample in contacts))
    for name, file in kits.items():
        families = {family.name for family in text_string_to_metric_families(file.read_text())}
        assert {
            "fedward_certificate_expiry_timestamp_seconds",
            "fedward_disk_free_bytes",
        } <= families
        assert ("fedward_last_contact_timestamp_seconds" in families) is (name == SERVER)


# --- who is shut out

OTHER = "lead@hospital-b.org"


@pytest.mark.proves(
    "member",
    "a person whom `fedward revoke` names, with the key or an open session",
    "refused once the server was restarted",
)
def test_a_revoked_person_is_refused_in_an_open_session(federation, job):
    with session(federation.kit(OTHER)) as before:
        assert before.get_system_info()
        assert main(["revoke", str(federation.kit(SERVER)), OTHER]) == 0
        federation.stop_one(SERVER)
        federation.start(SERVER)
        federation.wait_until_ready()
        with session(federation.kit(LEAD)) as lead:
            submit(lead, job)
            jobs = [each["job_id"] for each in lead.list_jobs()]
        for attempt in (
            before.list_jobs,
            before.get_system_info,
            lambda: before.clone_job(jobs[0]),
        ):
            with pytest.raises(AuthorizationError):
                attempt()
    with session(federation.kit(OTHER)) as again:
        with pytest.raises(AuthorizationError):
            again.list_jobs()
        with pytest.raises(RunError):
            submit(again, job)
    with session(federation.kit(LEAD)) as lead:
        assert [each["job_id"] for each in lead.list_jobs()] == jobs

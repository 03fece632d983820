"""What the lead sees of a hung server, a network that swallows, and a job that is stopped."""

import json
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from black_hole import Way
from faults import parent_process

from fedward.cli import main
from fedward.errors import RunError
from fedward.flare.jobs import remote
from fedward.flare.jobs.export import export_job
from fedward.flare.jobs.remote import RemoteSession, UnreachableError
from fedward.flare.jobs.status import has_ended, run_of
from fedward.flare.jobs.submit import fetch, session, submit, wait
from fedward.flare.jobs.supervise import Supervisor
from fedward.flare.kits import health
from fedward.flare.kits.presence import RECENT
from fedward.flare.places import new_run
from fedward.security.policy import OPEN
from local_federation import ADMIN, HOSPITALS, LEAD, MEMBER, SERVER, Federation
from tiny import tiny
from waiting import PATIENCE, appears

pytestmark = pytest.mark.secure

FAR = "hospital-c"
"""The hospital whose way to the server can swallow everything."""

SECONDS = 20.0
"""For what is left beside a limit: the start of processes on a busy machine."""


class DistantFederation(Federation):
    """A federation in which one hospital has a way of its own to the server."""

    def __init__(self, folder: Path) -> None:
        anything = OPEN.model_dump(mode="json")
        super().__init__(
            folder, image_size=16, images=60, environment={"OMP_NUM_THREADS": "1"}, policy=anything
        )
        self.way = Way(self.port)

    def provision(self) -> None:
        """Make all kits; that of the far hospital names its way in place of the server."""
        super().provision()
        file = self.kit(FAR) / "startup" / "fed_client.json"
        content = json.loads(file.read_text())
        content["servers"][0]["service"]["target"] = f"{SERVER}:{self.way.port}"
        file.write_text(json.dumps(content))

    def parent(self, name: str) -> psutil.Process:
        """Return a participant's process that outlives its jobs."""
        pattern = parent_process(name).split(".*")[0]
        (found,) = (one for one in self.processes(name) if pattern in " ".join(one.cmdline()))
        return found


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DistantFederation]:
    with DistantFederation(tmp_path_factory.mktemp("distant")) as running:
        yield running
        running.way.close()


@contextmanager
def standing_still(process: psutil.Process) -> Iterator[None]:
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def export(folder: Path, **settings: Any) -> Path:
    plan = tiny(
        "fedavg",
        timeout=30,
        synthetic=None,
        options={"participants": None, "images_per_round": 16, **settings},
    )
    export_job(plan, folder / "job", clinical=True)
    return folder / "job"


class Supervised:
    """A supervisor at work in a thread."""

    def __init__(self, federation: Federation, job: Path, out: Path) -> None:
        self.said: list[str] = []
        self.run = new_run(LEAD)
        self.end: Path | Exception | None = None
        self._supervisor = Supervisor(federation.kit(LEAD), job, self.run, 120.0, self.said.append)
        self._thread = threading.Thread(target=self._work, args=[out], daemon=True)
        self._thread.start()

    def says(self, text: str) -> bool:
        """Return whether it comes to say a line with this text before it ends."""
        return (
            bool(appears(lambda: self.end or any(text in line for line in self.said)))
            and not self.end
        )

    def result(self) -> Path | Exception | None:
        """Return the folder of the finished run, or the error."""
        self._thread.join(PATIENCE)
        return self.end

    def _work(self, out: Path) -> None:
        try:
            self.end = self._supervisor.finish(out)
        except Exception as error:
            self.end = error


def healthy(federation: Federation, name: str) -> bool:
    return health.main([str(federation.kit(name))]) == 0


# --- a server that stands still


@pytest.mark.proves(
    "faults",
    "the server hangs (SIGSTOP)",
    "commands end within their limit and say so; a supervisor waits, and fetches the finished run",
)
def test_no_command_waits_for_a_server_that_stands_still(federation, capsys):
    before = len(psutil.Process().children())
    with RemoteSession(federation.kit(LEAD)) as opened, standing_still(federation.parent(SERVER)):
        began = time.monotonic()
        with pytest.raises(UnreachableError, match="expected an answer from the server"):
            opened.get_system_info()
        assert time.monotonic() - began < remote.ANSWER_SECONDS + SECONDS
        began = time.monotonic()
        assert main(["status", str(federation.kit(MEMBER))]) == 1
        assert time.monotonic() - began < remote.LOGIN_SECONDS + SECONDS
    assert "expected a server that accepts it, found" in capsys.readouterr().err
    assert len(psutil.Process().children()) == before
    assert main(["status", str(federation.kit(MEMBER))]) == 0
    assert "no job runs" in capsys.readouterr().out


@pytest.mark.proves(
    "faults",
    "the server hangs (SIGSTOP)",
    "commands end within their limit and say so; a supervisor waits, and fetches the finished run",
)
@pytest.mark.slow
def test_a_supervisor_outlives_a_server_that_stands_still(federation, tmp_path):
    supervised = Supervised(federation, export(tmp_path, rounds=100), tmp_path / "out")
    assert supervised.says("of 100: 3 of 3 sites replied"), supervised.said
    with standing_still(federation.parent(SERVER)):
        assert supervised.says("waiting for the server")
    run = supervised.result()
    assert isinstance(run, Path), run
    info = json.loads((run / "run.json").read_text())
    assert info["status"] == "finished"
    assert info["id"] == supervised.run
    assert sum("attempt" in line for line in supervised.said) == 1


# --- stopped by somebody


@pytest.mark.proves(
    "faults",
    "a person stops a supervised job",
    "it is not sent again. The lead reads that somebody stopped it, and how to go on",
)
@pytest.mark.parametrize("user", [LEAD, pytest.param(ADMIN, marks=pytest.mark.slow)])
def test_what_a_person_stops_stays_stopped(federation, tmp_path, user):
    supervised = Supervised(federation, export(tmp_path, rounds=1000), tmp_path / "out")
    assert supervised.says("of 1000: 3 of 3 sites replied")
    with session(federation.kit(user)) as person:
        (job,) = (job["job_id"] for job in person.list_jobs() if job["status"] == "RUNNING")
        person.abort_job(job)
    error = supervised.result()
    assert isinstance(error, RunError), error
    assert (
        f"job {job}: expected a job that nobody stops, found it was stopped by somebody else"
        in str(error)
    )
    assert f"fedward submit KIT JOB --continue {supervised.run}" in str(error)
    with session(federation.kit(LEAD)) as lead:
        assert [
            one["job_id"]
            for one in lead.list_jobs()
            if run_of(lead.get_job_meta(one["job_id"])) == supervised.run
        ] == [job]
    assert not list((tmp_path / "out").glob("*.stopped.json"))


# --- a network that swallows


def stop_what_runs(lead: RemoteSession) -> None:
    for job in lead.list_jobs():
        if not has_ended(job):
            with suppress(Exception):  # it has ended meanwhile
                lead.abort_job(job["job_id"])


@pytest.mark.proves(
    "faults",
    "the network swallows all traffic of a site, and no connection closes",
    "the site's health check fails within 45 s and a heartbeat, and the lead reads its name",
)
@pytest.mark.slow
def test_a_black_hole_is_seen_from_both_sides(federation, tmp_path, capsys):
    assert appears(lambda: healthy(federation, FAR))
    supervised = Supervised(federation, export(tmp_path, rounds=1000), tmp_path / "out")
    assert supervised.says("of 1000: 3 of 3 sites replied")
    began = time.monotonic()
    federation.way.swallow()
    try:
        assert appears(lambda: not healthy(federation, FAR))
        assert time.monotonic() - began < RECENT + SECONDS
        assert f"site {FAR}: not connected, last contact 4" in capsys.readouterr().out
        assert supervised.says(f"{FAR} is lost: the server has not heard of it for 3")
        assert time.monotonic() - began < RECENT + 2 * SECONDS
        assert healthy(federation, SERVER)
        assert healthy(federation, "hospital-a")
    finally:
        federation.way.let_through()
    assert appears(lambda: healthy(federation, FAR))
    with session(federation.kit(LEAD)) as lead:
        # Repeated, because the supervisor may just be sending the job again for the site.
        assert appears(lambda: stop_what_runs(lead) or supervised.end)
    assert isinstance(supervised.result(), RunError)


# --- a port that is taken


@pytest.mark.proves(
    "faults",
    "a second server is started on a port in use",
    "it ends within seconds and says so in one line, as do its health check and `fedward doctor`",
)
def test_a_server_on_a_port_that_is_in_use_ends(federation, tmp_path, capsys):
    kit = tmp_path / "kit"
    kit.mkdir()
    for part in ("startup", "local"):
        shutil.copytree(federation.kit(SERVER) / part, kit / part)
    process = federation.start("second", kit)
    try:
        assert process.wait(timeout=PATIENCE) == 1
    finally:
        federation.stop_one("second")
    lines = [
        line
        for line in (kit / "console.log").read_text().splitlines()
        if line.startswith("fedward: ")
    ]
    pid = federation.parent(SERVER).pid
    assert len(lines) == 1
    assert (
        f"the server's port {federation.port}: expected it free, found process {pid} (" in lines[0]
    )
    assert health.main([str(kit)]) == 1
    assert main(["doctor", str(kit)]) == 1
    assert f"expected port {federation.port} held by this kit's own server" in " ".join(
        capsys.readouterr().out.split()
    )
    assert appears(lambda: healthy(federation, SERVER))


# --- a job that was lost


@pytest.mark.proves(
    "faults",
    "the server is killed in a job that nobody supervises",
    "after its restart the job counts as lost. The run goes on with `--continue`",
)
@pytest.mark.slow
def test_a_job_that_was_lost_with_its_server_is_called_lost(federation, tmp_path, capsys):
    run = new_run(LEAD)
    with session(federation.kit(LEAD)) as lead:
        job = submit(lead, export(tmp_path, rounds=8), run)
        folder = federation.kit(SERVER) / "fedward" / "runs" / LEAD / run
        assert appears(lambda: len((folder / "rounds.jsonl").read_text().splitlines()) >= 2)
    federation.stop_one(SERVER)
    federation.start(SERVER)
    federation.wait_until_ready()
    assert main(["status", str(federation.kit(MEMBER))]) == 0
    assert f"job {job}  job\n  lost: the server ended while it ran" in capsys.readouterr().out
    with session(federation.kit(LEAD)) as lead:
        meta = wait(lead, job, PATIENCE)
        with pytest.raises(RunError, match=f"lost.*--continue {run}"):
            fetch(lead, meta, tmp_path / "lost")
        lead.abort_job(job)  # no error
        result = fetch(
            lead, wait(lead, submit(lead, tmp_path / "job", run), PATIENCE), tmp_path / "out"
        )
    assert json.loads((result / "run.json").read_text())["id"] == run
    assert (
        len(
            {
                row["round"]
                for row in map(json.loads, (result / "rounds.jsonl").read_text().splitlines())
            }
        )
        == 8
    )
    assert sorted(HOSPITALS) == json.loads((result / "run.json").read_text())["sites"]
    assert main(["status", str(federation.kit(MEMBER))]) == 0
    assert capsys.readouterr().out == "no job runs\n"

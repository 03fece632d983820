"""A provisioned federation with processes of its own: an ordinary day, its logs and its metrics,
who gets in, and what may run there.
"""

import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import NamedTuple

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from nvflare.fuel.f3.cellnet.defs import CellChannel
from nvflare.fuel.flare_api.api_spec import AuthorizationError
from nvflare.fuel.flare_api.flare_api import Session, new_secure_session
from prometheus_client.parser import text_string_to_metric_families

from careless import let_everything_pass
from fedward.cli import main
from fedward.errors import RunError
from fedward.flare.jobs.configurations import experiment_in
from fedward.flare.jobs.export import export_job
from fedward.flare.jobs.submit import fetch, session, submit, wait
from foreign_jobs import component
from intruder import heard, intruder
from local_federation import ADMIN, HOSPITALS, LEAD, MEMBER, SERVER, Federation
from tiny import clinical
from waiting import PATIENCE, appears
from watched import Watched

pytestmark = pytest.mark.secure
ROOT = Path(__file__).parents[2]
OTHER_LEAD = "lead@hospital-b.org"
EVERYONE = sorted(HOSPITALS)
ROUNDS = 10
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("federation")
    (folder / "metrics").mkdir()
    environment = {"FEDWARD_METRICS": str(folder / "metrics")}
    with Watched(folder / "federation", image_size=16, environment=environment) as running:
        yield running


@pytest.fixture(scope="module")
def metrics(federation: Federation) -> Path:
    return federation.folder.parent / "metrics"


@pytest.fixture
def lead(federation: Federation) -> Iterator[Session]:
    with session(federation.kit(LEAD)) as flare:
        yield flare


class Day(NamedTuple):
    """A job from its submission to its end."""

    results: Path
    """The fetched results, in a folder of the job's id."""
    scrapes: list[Samples]
    """All metrics during and after the job."""


@pytest.fixture(scope="module")
def day(federation: Federation, metrics: Path, tmp_path_factory: pytest.TempPathFactory) -> Day:
    """A clinical FedPerl job that the command sent; it asks for its progress all the time."""
    folder = tmp_path_factory.mktemp("day")
    export_job(clinical("fedperl", options={"rounds": ROUNDS}), folder / "fedperl", clinical=True)
    out = folder / "out"
    command = ["submit", str(federation.kit(LEAD)), str(folder / "fedperl")]
    scrapes: list[Samples] = []
    ended = Event()

    def watch() -> None:
        while not ended.wait(0.2):
            scrapes.append(scraped(metrics))

    with ThreadPoolExecutor(1) as pool, pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedward.flare.jobs.submit.POLL", 0.2)
        patch.setattr("fedward.flare.jobs.reporter._PAUSE", 0)
        watcher = pool.submit(watch)
        try:
            assert main([*command, "--out", str(out)]) == 0
        finally:
            ended.set()
        watcher.result()
    scrapes.append(scraped(metrics))
    (results,) = out.iterdir()
    return Day(results, scrapes)


@pytest.fixture(scope="module")
def finished(day: Day) -> Path:
    return day.results


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A clinical job of one round, to be changed by the test."""
    export_job(clinical(options={"rounds": 1}), tmp_path / "job", clinical=True)
    return tmp_path / "job"


def run(flare: Session, job: Path, out: Path) -> Path:
    return fetch(flare, wait(flare, submit(flare, job), PATIENCE), out)


def refusal(flare: Session, job: Path, out: Path) -> str:
    with pytest.raises(RunError) as error:
        run(flare, job, out)
    return str(error.value)


def scraped(folder: Path) -> Samples:
    """Return all samples of all files, read by Prometheus' own parser; duplicates are refused."""
    samples: Samples = {}
    for file in sorted(folder.glob("*.prom")):
        for family in text_string_to_metric_families(file.read_text(encoding="utf-8")):
            for sample in family.samples:
                key = (sample.name, tuple(sorted(sample.labels.items())))
                assert key not in samples
                samples[key] = sample.value
    return samples


def of(samples: Samples, name: str, **labels: str) -> list[float]:
    """Return the values of a metric whose samples have these labels."""
    wanted_labels = set(labels.items())
    return [
        value
        for (metric, sample_labels), value in samples.items()
        if metric == f"fedward_{name}" and wanted_labels <= set(sample_labels)
    ]


def nvflare(federation: Federation, *words: object) -> subprocess.CompletedProcess[str]:
    """Run FLARE's own command as the lead, with its settings in a folder of the test."""
    command = [sys.executable, "-m", "nvflare.cli", *map(str, words)]
    command += ["--startup-kit", str(federation.kit(LEAD))]
    environment = {**os.environ, "HOME": str(federation.folder.parent)}
    return subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def edit(path: Path, **changes: object) -> None:
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, **changes}))


def site_log(federation: Federation, hospital: str) -> str:
    return "".join(path.read_text() for path in federation.kit(hospital).glob("**/*log*.txt"))


# --- an ordinary day: these are the first tests, because nothing has gone wrong yet


@pytest.mark.proves(
    "faults",
    "somebody asks all the time how far a job is",
    "no `error_log.txt` of server, sites or job has a line",
)
def test_a_run_that_goes_well_logs_no_error(federation, day):
    files = list(federation.folder.rglob("error_log.txt"))
    assert len(files) >= 2 * len(EVERYONE), "one for each participant, and one for each site's job"
    for file in files:
        assert file.read_text() == "", str(file)


def test_the_metrics_of_a_job_follow_it_from_round_to_round(day):
    during = [
        of(samples, "round")
        for samples in day.scrapes
        if 1.0 in of(samples, "status", status="running")
    ]
    counts = [round_ for (round_,) in during]
    assert counts == sorted(counts)
    assert 0 <= counts[0] < counts[-1] <= ROUNDS
    last = day.scrapes[-1]
    assert of(last, "round") == of(last, "rounds_planned") == [ROUNDS]
    assert of(last, "status", status="finished") == [1.0]
    assert of(last, "status", status="running") == [0.0]
    assert of(last, "sites", outcome="replied") == [len(EVERYONE)]
    assert sum(of(last, "site_replied")) == len(EVERYONE)


def test_each_participant_tells_of_itself(federation, metrics, day):
    assert appears(lambda: {file.name for file in metrics.glob("fedward_kit_*")} >= kit_files())
    found = scraped(metrics)
    for site in (SERVER, *EVERYONE):
        assert of(found, "unreadable", site=site)
        assert not any(of(found, "unreadable", site=site))
        assert all(value > 0 for value in of(found, "disk_free_bytes", site=site))


def kit_files() -> set[str]:
    return {f"fedward_kit_{name}.prom" for name in (SERVER, *EVERYONE)}


@pytest.mark.slow
def test_a_job_by_flares_own_command_runs_as_a_run_of_its_own(federation, tmp_path, day):
    """A site reads its site file again for each job, without a restart."""
    site_file = federation.kit("hospital-a") / "local" / "fedward_site.yaml"
    before = site_file.read_text()
    site_file.write_text(yaml.safe_dump({**yaml.safe_load(before), "file": "/nowhere.npz"}))
    export_job(clinical(options={"rounds": 1}), tmp_path / "job", clinical=True)
    done = nvflare(federation, "job", "submit", "-j", tmp_path / "job", "--format", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    job_id = json.loads(done.stdout)["data"]["job_id"]
    try:
        with session(federation.kit(LEAD)) as lead:
            wait(lead, job_id, PATIENCE)
    finally:
        site_file.write_text(before)
    run = federation.kit(SERVER) / "fedward" / "runs" / LEAD / job_id
    info = json.loads((run / "run.json").read_text())
    assert info["experiment"] == experiment_in(tmp_path / "job" / "app" / "config").model_dump(
        mode="json"
    )
    (row,) = map(json.loads, (run / "rounds.jsonl").read_text().splitlines())
    assert row["failed"].pop("hospital-a").startswith("DataError")
    assert row["failed"] == dict.fromkeys(
        ["hospital-b", "hospital-c"], "not used: minimum_replies is 3, came 2"
    )


def test_logs_are_fetched_with_the_results(federation, day):
    with session(federation.kit(LEAD)) as lead:
        job_id = lead.list_jobs()[0]["job_id"]
    done = nvflare(federation, "job", "logs", job_id, "--site", "all")
    assert done.returncode != 0
    assert "not authorized for 'get_job_log'" in done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.proves(
    "faults",
    "a site's process dies whose metrics Prometheus reads",
    "its file keeps an old time, by which an alert fires",
)
def test_the_metrics_of_a_dead_participant_grow_old(federation, metrics, day):
    federation.stop_one("hospital-c")
    try:
        dead = scraped(metrics)
        name = "written_timestamp_seconds"
        (since,) = of(dead, name, site=SERVER)
        assert appears(lambda: of(scraped(metrics), name, site=SERVER)[0] > since + 60)
        found = scraped(metrics)
        assert of(found, name, site="hospital-c") == of(dead, name, site="hospital-c")
        (contact,) = of(found, "last_contact_timestamp_seconds", site="hospital-c")
        assert contact < of(found, "last_contact_timestamp_seconds", site="hospital-b")[0]
        assert contact < of(found, "last_contact_timestamp_seconds", site="hospital-a")[0]
    finally:
        federation.start("hospital-c")
        federation.wait_until_ready()


# --- what a job leaves


def test_a_clinical_job_finishes_and_nothing_else_runs(federation, finished):
    """In the kits lies a file that Python imports by itself, wherever it is on the path."""
    folder = finished / "workspace" / "fedward"
    assert "<html" in (folder / "report.html").read_text()
    info = json.loads((folder / "run.json").read_text())
    assert info["status"] == "finished"
    assert info["engine"] == "flare"
    assert info["sites"] == sorted(HOSPITALS)
    rounds = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    assert not any(row["failed"] for row in rounds)
    assert federation.ran == []
    assert not list((finished.parents[1] / "fedperl").rglob(".__nvfl_*"))  # a copy was signed


@pytest.mark.proves(
    "lead",
    "paths and data in a site's error messages",
    "they stay in the site's log; the server learns the kind of error",
)
def test_what_a_site_says_of_its_own_errors_stays_there(federation, lead, job, tmp_path):
    data = federation.folder / "data" / "hospital-b.npz"
    kept = data.rename(data.with_suffix(".kept"))
    try:
        refusal(lead, job, tmp_path / "out")  # two replies are too few
    finally:
        kept.rename(data)
    (log,) = (tmp_path / "out").rglob("rounds.jsonl")
    (row,) = map(json.loads, log.read_text().splitlines())
    assert row["failed"].pop("hospital-b").startswith("DataError")
    assert all(reason.startswith("not used: minimum_replies") for reason in row["failed"].values())
    assert data.name in site_log(federation, "hospital-b")
    places = [tmp_path / "out", federation.kit(SERVER), federation.folder / "server"]
    files = [path for place in places for path in place.rglob("*") if path.is_file()]
    assert not [path for path in files if data.name.encode() in contents(path)]


def contents(path: Path) -> bytes:
    """Return a file's content, unpacked; empty if it is gone, as copies of the server may be."""
    try:
        if not zipfile.is_zipfile(path):
            return path.read_bytes()
        with zipfile.ZipFile(path) as archive:
            return b"".join(archive.read(name) for name in archive.namelist())
    except FileNotFoundError:
        return b""


# --- who watches


def test_the_log_of_every_site_agrees_with_the_record_of_a_run(federation, finished, capsys):
    folder = finished / "workspace" / "fedward"
    run_id = json.loads((folder / "run.json").read_text())["id"]
    logs = [
        federation.kit(hospital) / "fedward" / "answers" / f"{run_id}.jsonl"
        for hospital in HOSPITALS
    ]
    assert main(["audit", "verify", str(folder), "--site", *map(str, logs)]) == 0
    asked = [
        len(row["asked"])
        for row in map(json.loads, (folder / "rounds.jsonl").read_text().splitlines())
    ]
    assert sum(map(len, (path.read_text().splitlines() for path in logs))) >= sum(asked)
    assert "lines of sites' logs" in capsys.readouterr().out


# --- what does not run


def add_code(job: Path) -> None:
    (job / "app" / "custom").mkdir()
    (job / "app" / "custom" / "mine.py").write_text("")


@pytest.mark.proves(
    "lead",
    "a job with own code, a class off the list, code that a policy does not admit, or "
    "without the sites' privacy scope",
    "refused before it is imported; the lead reads the class or rule",
)
@pytest.mark.parametrize("user", [LEAD, ADMIN])
def test_a_job_with_own_code_is_refused_from_every_sender(federation, job, tmp_path, user):
    add_code(job)
    with session(federation.kit(user)) as flare:
        assert "'custom', 'custom/mine.py'" in refusal(flare, job, tmp_path / "out")


@pytest.mark.proves(
    "lead",
    "a job with own code, a class off the list, code that a policy does not admit, or "
    "without the sites' privacy scope",
    "refused before it is imported; the lead reads the class or rule",
)
@pytest.mark.parametrize("side", ["server", "client"])
def test_a_class_that_is_not_allowed_is_refused(lead, job, tmp_path, side):
    foreign = "nvflare.app_common.executors.client_api_executor.ClientAPIExecutor"
    component(f"config/config_fed_{side}.json", foreign)(job / "app")
    text = refusal(lead, job, tmp_path / "out")
    places = (
        ["server"] if side == "server" else [f"{hospital}: NVFLARE_ERROR" for hospital in HOSPITALS]
    )
    for place in places:
        assert f"{place}: app, file config/config_fed_{side}.json: expected " in text
    assert text.count(f"found the class {foreign}") == len(places)


@pytest.mark.proves(
    "lead",
    "a job with own code, a class off the list, code that a policy does not admit, or "
    "without the sites' privacy scope",
    "refused before it is imported; the lead reads the class or rule",
)
@pytest.mark.parametrize("scope", ["public", ""])
def test_a_job_of_another_privacy_scope_is_refused(federation, lead, job, tmp_path, scope):
    edit(job / "meta.json", scope=scope)
    text = refusal(lead, job, tmp_path / "out")
    for hospital in HOSPITALS:
        assert f"{hospital}: NVFLARE_ERROR: privacy scope '{scope}' is not allowed" in text


@pytest.mark.proves("member", "a member or a site's administrator submits a job", "not authorised")
@pytest.mark.parametrize("user", [MEMBER, "it@hospital-a.org"])
def test_only_leads_and_project_admins_submit(federation, job, user):
    with (
        session(federation.kit(user)) as flare,
        pytest.raises(RunError, match="not authorized for 'submit_job'"),
    ):
        submit(flare, job)


@pytest.mark.proves(
    "lead",
    "another lead's job is aborted, cloned, deleted or downloaded, also past the console",
    "not authorised; the job goes on",
)
@pytest.mark.slow
def test_a_lead_cannot_touch_another_leads_job(federation, lead, job, tmp_path):
    job_id = submit(lead, job)
    with session(federation.kit(OTHER_LEAD)) as other:
        for attempt in (other.abort_job, other.clone_job, other.delete_job):
            with pytest.raises(AuthorizationError):
                attempt(job_id)
        with pytest.raises(AuthorizationError):
            other.download_job_result(job_id, str(tmp_path / "stolen"))
    assert fetch(lead, wait(lead, job_id, PATIENCE), tmp_path / "out").is_dir()


@pytest.mark.slow
def test_a_lead_copies_and_deletes_a_job(federation, lead, job, tmp_path):
    """A copy is a run of its own. The deletion leaves the server's run folder."""
    first = submit(lead, job)
    first_run = fetch(lead, wait(lead, first, PATIENCE), tmp_path / "first")
    copy = lead.clone_job(first)
    run_of_copy = fetch(lead, wait(lead, copy, PATIENCE), tmp_path / "copy")
    ids = [json.loads((run / "run.json").read_text())["id"] for run in (first_run, run_of_copy)]
    assert ids[0] != ids[1]
    lead.delete_job(copy)
    left = [each["job_id"] for each in lead.list_jobs()]
    assert first in left
    assert copy not in left
    runs = federation.kit(SERVER) / "fedward" / "runs" / LEAD
    assert (runs / copy / "model.safetensors").exists()


@pytest.mark.proves(
    "lead", "another lead's run, or its id", "not read: the server gives the run an id of its own"
)
@pytest.mark.slow
def test_a_run_is_continued_by_who_began_it_only(federation, lead, job, tmp_path):
    run_id = "0" * 32
    begun = fetch(lead, wait(lead, submit(lead, job, run_id), PATIENCE), tmp_path / "mine")
    with session(federation.kit(OTHER_LEAD)) as other:
        another = fetch(
            other, wait(other, submit(other, job, run_id), PATIENCE), tmp_path / "other"
        )
    again = fetch(lead, wait(lead, submit(lead, job, run_id), PATIENCE), tmp_path / "again")
    ids = [
        json.loads((folder / "run.json").read_text())["id"] for folder in (begun, another, again)
    ]
    assert ids[0] == ids[2] != ids[1]


@pytest.mark.proves(
    "server", "a job changed in the server's store", "refused: the signature does not match"
)
def test_a_job_changed_after_it_was_signed_is_refused(federation, lead, finished, tmp_path):
    with changed(federation, finished.name) as files:
        (config,) = (name for name in files if name.endswith("config_fed_client.json"))
        files[config] += b"\n"
    assert "expected a valid signature of its submitter" in refused_again(
        lead, finished.name, tmp_path
    )


@contextmanager
def changed(federation: Federation, job_id: str) -> Iterator[dict[str, bytes]]:
    """Let the files of a job that the server keeps be changed, by name."""
    stored = federation.folder / "server" / "jobs" / job_id / "data"
    with zipfile.ZipFile(stored) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    yield files
    with zipfile.ZipFile(stored, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)


def refused_again(flare: Session, job_id: str, out: Path) -> str:
    meta = wait(flare, flare.clone_job(job_id), PATIENCE)
    with pytest.raises(RunError) as error:
        fetch(flare, meta, out)
    return str(error.value)


# --- who gets in


@pytest.fixture(scope="module")
def foreign(federation: Federation, tmp_path_factory: pytest.TempPathFactory) -> Federation:
    """The same names, addresses and roles, made by another authority."""
    other = Federation(tmp_path_factory.mktemp("foreign"))
    other.provision()
    for hospital in HOSPITALS:
        config = other.kit(hospital) / "startup" / "fed_client.json"
        content = json.loads(config.read_text())
        content["servers"][0]["service"]["target"] = f"{SERVER}:{federation.port}"
        config.write_text(json.dumps(content))
    return other


def answer(federation: Federation, startup: Path | None) -> bytes:
    """Ask the server with the client certificate of a kit, or with none; it may just hang up."""
    context = ssl.create_default_context(
        cafile=federation.kit("hospital-a") / "startup" / "rootCA.pem"
    )
    if startup:
        context.load_cert_chain(startup / "client.crt", startup / "client.key")
    try:
        with (
            socket.create_connection((SERVER, federation.port), timeout=10) as plain,
            context.wrap_socket(plain, server_hostname=SERVER) as tls,
        ):
            # With TLS 1.3 the server refuses a client only now.
            tls.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return tls.recv(64)
    except (ssl.SSLError, ConnectionError):
        return b""


@pytest.mark.proves(
    "outsider", "a certificate of another authority, an expired one, or none", "the server hangs up"
)
def test_the_server_accepts_only_its_own_authority(federation, foreign):
    assert answer(federation, federation.kit("hospital-a") / "startup").startswith(b"HTTP/1.1")
    assert not answer(federation, foreign.kit("hospital-a") / "startup")
    assert not answer(federation, None)


@pytest.mark.proves(
    "outsider", "a certificate of another authority, an expired one, or none", "the server hangs up"
)
def test_the_server_does_not_talk_to_an_expired_certificate(federation, tmp_path):
    assert answer(
        federation, certified(federation, tmp_path / "good", timedelta(days=1))
    ).startswith(b"HTTP/1.1")
    assert not answer(federation, certified(federation, tmp_path / "expired", timedelta(days=-1)))


def certified(federation: Federation, folder: Path, valid: timedelta) -> Path:
    """Let the authority sign another certificate for a hospital, which ends that long from now."""
    state = json.loads(
        (federation.folder / "workspace" / "fedward" / "state" / "cert.json").read_text()
    )
    authority = x509.load_pem_x509_certificate(state["root_cert"].encode())
    authority_key = serialization.load_pem_private_key(state["root_pri_key"].encode(), None)
    kit = federation.kit("hospital-c") / "startup"
    old = x509.load_pem_x509_certificate((kit / "client.crt").read_bytes())
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(
        authority.subject,
        old.subject,
        old.public_key(),
        x509.random_serial_number(),
        now - timedelta(days=2),
        now + valid,
    )
    folder.mkdir()
    signed = builder.sign(authority_key, hashes.SHA256())
    (folder / "client.crt").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    shutil.copy(kit / "client.key", folder)
    return folder


@pytest.mark.proves(
    "outsider", "a certificate of another authority, an expired one, or none", "the server hangs up"
)
def test_a_site_of_another_authority_does_not_connect(federation, foreign):
    kit = foreign.kit("hospital-c")
    with false_site(federation, kit):
        assert appears(lambda: is_logged("CERTIFICATE_VERIFY_FAILED", kit))


@pytest.mark.proves(
    "site",
    "a connection in the name of the server, of a job or of another hospital",
    "refused by its certificate; the server's log names both",
)
def test_a_site_cannot_pass_for_another(federation, tmp_path):
    for part in ("startup", "local"):
        shutil.copytree(federation.kit("hospital-c") / part, tmp_path / part)
    for name in ("client.crt", "client.key"):
        shutil.copy(federation.kit("hospital-a") / "startup" / name, tmp_path / "startup")
    with false_site(federation, tmp_path):
        assert appears(lambda: is_logged("requires identity 'hospital-c'", federation.kit(SERVER)))


@contextmanager
def false_site(federation: Federation, kit: Path) -> Iterator[None]:
    federation.start("false site", kit)
    try:
        yield
    finally:
        federation.stop_one("false site")


def is_logged(text: str, kit: Path) -> bool:
    return any(text in path.read_text() for path in kit.glob("*log*"))


# --- what lies on disk


def test_private_keys_are_readable_by_their_owner_only(federation):
    workspace = federation.folder / "workspace"
    keys = [*workspace.rglob("*.key"), *workspace.rglob("cert.json")]
    assert (
        len(keys)
        == len(yaml.safe_load((ROOT / "provisioning" / "project.yml").read_text())["participants"])
        + 1
    )
    assert {path.stat().st_mode & 0o777 for path in keys} == {0o600}


def test_a_workspace_with_keys_is_not_overwritten(federation):
    workspace = federation.folder / "workspace"
    before = (workspace / "fedward" / "state" / "cert.json").read_bytes()
    command = [ROOT / "provisioning" / "build.sh", workspace]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "expected no keys, found" in done.stderr
    assert (workspace / "fedward" / "state" / "cert.json").read_bytes() == before


@pytest.mark.proves(
    "files",
    "a changed file in a startup kit",
    "**not covered**: FLARE checks certificates only; protect the folder",
)
def test_flare_does_not_notice_a_changed_startup_file(federation):
    """FLARE checks certificates alone: write access to a kit changes what the site does.

    See docs/deployment.md.
    """
    config = federation.kit("hospital-c") / "startup" / "fed_client.json"
    federation.stop_one("hospital-c")
    edit(config, changed="by hand")
    (federation.kit("hospital-c") / "log.txt").unlink()
    federation.start("hospital-c")
    assert appears(
        lambda: is_logged("Successfully registered client:hospital-c", federation.kit("hospital-c"))
    )


# --- a server that lets everything pass; the last tests, because it stays like that


@pytest.fixture(scope="module")
def careless(federation: Federation) -> None:
    let_everything_pass(federation)


@pytest.mark.proves(
    "server",
    "own code, an unsigned job or a member's orders, from a server that lets everything pass",
    "refused by every site; nothing is imported",
)
@pytest.mark.usefixtures("careless")
def test_sites_refuse_own_code_themselves(lead, job, tmp_path):
    add_code(job)
    text = refusal(lead, job, tmp_path / "out")
    assert "server: OK" in text
    for hospital in HOSPITALS:
        assert f"{hospital}: NVFLARE_ERROR: app: expected nothing but" in text
    assert text.count("'custom', 'custom/mine.py'") == len(HOSPITALS)


@pytest.mark.proves(
    "server",
    "own code, an unsigned job or a member's orders, from a server that lets everything pass",
    "refused by every site; nothing is imported",
)
@pytest.mark.usefixtures("careless")
def test_sites_refuse_a_job_without_signature_themselves(federation, finished, lead, tmp_path):
    with changed(federation, finished.name) as files:
        for name in [name for name in files if name.endswith(".__nvfl_sig.json")]:
            del files[name]
    text = refused_again(lead, finished.name, tmp_path)
    assert "server: OK" in text
    for hospital in HOSPITALS:
        assert f"{hospital}: unsigned job rejected" in text


@pytest.mark.proves(
    "server",
    "own code, an unsigned job or a member's orders, from a server that lets everything pass",
    "refused by every site; nothing is imported",
)
@pytest.mark.usefixtures("careless")
def test_a_hospital_refuses_what_a_careless_server_passes_on(federation):
    with intruder(federation.kit(MEMBER)) as sender:
        answers = [
            sender.order("hospital-a", "sys.shell", "ls -l startup"),
            sender.order("hospital-a", "train.delete_run", job_id="fedward"),
            sender.ask("hospital-a", "_net_manager", "stop_cell"),
            sender.ask("hospital-a", CellChannel.SERVER_COMMAND, "get_task"),
        ]
        name = sender.name
    assert not any(map(heard, answers))
    log = (federation.kit("hospital-a") / "audit.log").read_text()
    assert f"[A:refused admin:admin] its connection may not speak for '{name}'" in log
    assert "[A:refused _net_manager:stop_cell]" in log
    assert federation.processes("hospital-a")


@pytest.mark.proves(
    "server",
    "a shell, or the deletion of the site's own folder",
    "refused; the site's audit log names the command",
)
@pytest.mark.usefixtures("careless")
def test_a_server_itself_has_no_shell_at_a_hospital(federation):
    with closing(new_secure_session(ADMIN, str(federation.kit(ADMIN)), timeout=10)) as admin:
        answer = admin.api.do_command("ls hospital-a -l startup")
    assert "client.key" not in str(answer)
    log = (federation.kit("hospital-a") / "audit.log").read_text()
    assert f"[U:server for {ADMIN}][A:refused sys.shell] no such command exists at a site" in log

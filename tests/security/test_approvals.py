"""Jobs that wait for a site's administrator: the site's answer, and what approves a job."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from clients import new_client
from fedward.client.admission import Admission
from fedward.config import Experiment
from fedward.disk import own_mark
from fedward.errors import ConfigError
from fedward.methods import method_of
from fedward.security.approvals import Approvals, Entry
from fedward.security.policy import Policy
from hospital import HERE, hospital, request
from power_cut import on_the_disk

JOB = hospital()
ASKING = Policy(approval="required")


def asked(folder: Path, experiment: Experiment = JOB, scope: str = "") -> dict:
    """Return the meta of a hospital's answer to a job; no data are read for one that waits."""
    algorithm = method_of(experiment)
    admission = Admission(HERE, experiment, algorithm, folder, lambda: ASKING, scope=scope)
    here = new_client(HERE, experiment, folder, admission=admission)
    answer = here.handle(request(experiment))
    assert ("data" in vars(here)) == ("steps" in answer.meta)
    return answer.meta


def approvals(folder: Path) -> Approvals:
    return Approvals(folder / "approvals")


def file_of(folder: Path) -> Path:
    return folder / "approvals" / f"{JOB.digest}.json"


@pytest.mark.proves(
    "lead",
    "a job at a site that asks for approval, also if another job was approved, or "
    "this one with another setting",
    "waits without reading data, and goes on with all once it is approved",
)
def test_a_job_waits_until_approved_and_when_withdrawn(tmp_path):
    assert asked(tmp_path) == {"site": HERE, "round": 1, "waiting": JOB.digest}
    (entry,), _ = approvals(tmp_path).entries()
    assert entry.digest == JOB.digest
    assert entry.approved is None
    assert entry.experiment == JOB.model_dump(mode="json")
    approvals(tmp_path).approve(JOB.digest)
    assert asked(tmp_path)["steps"] == 4
    approvals(tmp_path).withdraw(JOB.digest)
    assert "waiting" in asked(tmp_path)


def test_no_power_cut_brings_a_withdrawn_approval_back(tmp_path, monkeypatch):
    approvals(tmp_path).approve(JOB.digest)
    flushed = on_the_disk(monkeypatch)
    approvals(tmp_path).withdraw(JOB.digest)
    folder = file_of(tmp_path).parent.stat()
    assert flushed.get(folder.st_ino) == folder.st_mtime_ns


def test_what_is_kept_is_for_its_owner_alone(tmp_path):
    before = os.umask(0)
    try:
        asked(tmp_path)
        approvals(tmp_path).approve(JOB.digest)
    finally:
        os.umask(before)
    modes = {
        path.name: path.stat().st_mode & 0o777
        for path in (file_of(tmp_path), file_of(tmp_path).parent)
    }
    assert modes == {file_of(tmp_path).name: 0o600, "approvals": 0o700}


def test_no_approval_is_lost_while_the_job_asks(tmp_path):
    for number in range(20):
        entries = Approvals(tmp_path / f"{number}")
        with ThreadPoolExecutor(6) as threads:
            asking = [threads.submit(entries.ask, JOB) for _ in range(3)]
            approving = [threads.submit(entries.approve, JOB.digest) for _ in range(3)]
        for done in (*asking, *approving):
            done.result()
        entry = entries.entry(JOB.digest)
        assert entry.approved
        assert entry.asked
        assert entries.ask(JOB)


def test_a_job_may_be_approved_in_advance(tmp_path):
    assert approvals(tmp_path).approve(JOB.digest).asked is None
    assert "steps" in asked(tmp_path)
    entry = approvals(tmp_path).entry(JOB.digest)
    assert entry.asked
    assert entry.approved


@pytest.mark.proves(
    "lead",
    "a job at a site that asks for approval, also if another job was approved, or "
    "this one with another setting",
    "waits without reading data, and goes on with all once it is approved",
)
@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 4},
        {"options": {"rounds": 4}},
        {"options": {"learning_rate": 0.01}},
        {"timeout": 61},
    ],
)
def test_an_approval_is_of_one_job_to_the_last_setting(tmp_path, changes):
    approvals(tmp_path).approve(JOB.digest)
    other = hospital(**changes)
    assert asked(tmp_path, other)["waiting"] == other.digest != JOB.digest


@pytest.mark.proves(
    "lead",
    "an approved job is sent again under another privacy scope, such as one without noise",
    "waits without reading data, and is listed with that scope",
)
def test_an_approval_is_of_a_job_under_one_privacy_scope(tmp_path):
    assert "waiting" in asked(tmp_path, scope="with noise")
    approvals(tmp_path).approve(JOB.digest, "with noise")
    assert "steps" in asked(tmp_path, scope="with noise")
    for other in ("plain", ""):
        assert "waiting" in asked(tmp_path, scope=other)
    entries, _ = approvals(tmp_path).entries()
    listed = {entry.scope: bool(entry.approved) for entry in entries}
    assert listed == {"with noise": True, "plain": False, "": False}
    approvals(tmp_path).approve(JOB.digest, "plain")
    approvals(tmp_path).withdraw(JOB.digest, "with noise")
    assert "waiting" in asked(tmp_path, scope="with noise")
    assert "steps" in asked(tmp_path, scope="plain")


def test_a_scope_may_have_any_name(tmp_path):
    for scope in ("../up", "a/b", "a\nb", "x" * 300, "clinical", "Clinical"):
        assert "waiting" in asked(tmp_path, scope=scope)
        approvals(tmp_path).approve(JOB.digest, scope)
        assert "steps" in asked(tmp_path, scope=scope)
    entries, untrusted = approvals(tmp_path).entries()
    assert len(entries) == 6
    assert not untrusted


def test_an_entry_of_another_scope_is_not_believed(tmp_path, caplog):
    approvals(tmp_path).approve(JOB.digest, "with noise")
    (path,) = file_of(tmp_path).parent.glob("*.json")
    path.rename(path.with_name(Entry(JOB.digest, scope="plain").file))
    assert "found one that cannot be trusted" in asked(tmp_path, scope="plain")["error"]
    assert "the entry of another job" in caplog.text


@pytest.mark.proves(
    "files",
    "an approval by part of a digest, by another name, or forged",
    "refused; the site's log names the file",
)
@pytest.mark.parametrize(
    "text",
    [
        JOB.digest[:63],
        JOB.digest[:8],
        "",
        JOB.digest.upper(),
        f"{JOB.digest} ",
        "../" + JOB.digest,
        "*",
    ],
)
def test_a_digest_counts_whole_or_not_at_all(tmp_path, text):
    asked(tmp_path)
    with pytest.raises(ConfigError, match="all 64 hexadecimal digits"):
        approvals(tmp_path).approve(text)
    assert "waiting" in asked(tmp_path)


def test_another_jobs_approval_is_none(tmp_path):
    approvals(tmp_path).approve("0" * 64)
    assert "waiting" in asked(tmp_path)


def test_only_an_approval_can_be_withdrawn(tmp_path):
    asked(tmp_path)
    with pytest.raises(ConfigError, match="is not approved"):
        approvals(tmp_path).withdraw(JOB.digest)


def linked(path: Path, approved: str) -> None:
    (path.parent.parent / "elsewhere").write_text(approved)
    path.symlink_to(path.parent.parent / "elsewhere")


def in_a_linked_folder(path: Path, approved: str) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))
    path.parent.symlink_to("elsewhere")
    path.write_text(approved)


def with_mode(mode: int):
    def write(path: Path, approved: str) -> None:
        path.write_text(approved)
        path.chmod(mode)

    return write


def in_an_open_folder(path: Path, approved: str) -> None:
    path.write_text(approved)
    path.parent.chmod(0o777)


def of_another_job(path: Path, approved: str) -> None:
    path.write_text(json.dumps({**json.loads(approved), "digest": "0" * 64}))


def a_pipe(path: Path, approved: str) -> None:
    os.mkfifo(path)


def a_folder(path: Path, approved: str) -> None:
    path.mkdir()


def of_another_account(path: Path, approved: str) -> None:
    path.write_text(approved)
    os.chown(path, 12345, -1)


def with_text(text: str):
    def write(path: Path, approved: str) -> None:
        path.write_text(text)

    return write


def with_changes(**changes: object):
    def write(path: Path, approved: str) -> None:
        path.write_text(json.dumps({**json.loads(approved), **changes}))

    return write


@pytest.mark.proves(
    "files",
    "an approval by part of a digest, by another name, or forged",
    "refused; the site's log names the file",
)
@pytest.mark.parametrize(
    "forge",
    [
        linked,
        in_a_linked_folder,
        with_mode(0o606),
        with_mode(0o620),
        in_an_open_folder,
        of_another_job,
        pytest.param(
            of_another_account,
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away"),
        ),
        a_pipe,
        a_folder,
        with_text(""),
        with_text("[]"),
        with_text("null"),
        with_text("[" * 100_000),
        with_changes(approved=True),
        with_changes(scope=None),
        with_changes(until="2099-01-01"),
    ],
)
def test_a_forged_approval_is_not_believed(tmp_path, caplog, forge):
    path = file_of(tmp_path)
    path.parent.mkdir(mode=0o700)
    forge(path, json.dumps(vars(Entry(JOB.digest, approved="2026-01-01T00:00:00+00:00"))))
    error = asked(tmp_path)["error"]
    assert "found one that cannot be trusted" in error
    assert str(tmp_path) not in error
    assert "approvals" in caplog.text


def test_a_link_in_the_way_of_a_new_entry_is_not_followed(tmp_path):
    path = file_of(tmp_path)
    path.parent.mkdir(mode=0o700)
    (tmp_path / "precious").write_text("kept")
    partial = path.with_name(f"{path.name}{own_mark()}.partial")
    partial.symlink_to(tmp_path / "precious")
    assert "waiting" in asked(tmp_path)
    assert (tmp_path / "precious").read_text() == "kept"

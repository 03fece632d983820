"""A user's machine against a hostile server: real FLARE client, real process, no wire."""

import json
import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
from nvflare.fuel.hci.client.file_transfer import FileTransferModule
from nvflare.fuel.hci.file_transfer_defs import PULL_FOLDER_FQN, PUSH_FOLDER_FQN

import hostile_server
from fedward.errors import RunError
from fedward.flare import console
from fedward.flare.jobs import remote, submit
from fedward.flare.jobs.remote import RemoteSession
from fedward.flare.jobs.status import describe
from fedward.flare.jobs.transfers import SafeTransfers
from hostile_server import HONEST, JOB
from local_federation import LEAD
from provisioned import provisioned

UNSAFE = "expected an answer as a server of FLARE gives it, found "


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return provisioned(tmp_path_factory.mktemp("workspace"))


class Machine:
    """A user's machine: a home with a secret, a kit, a job, a folder for results."""

    def __init__(self, folder: Path, kit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kit = kit
        self.home = folder / "home"
        self.home.mkdir()
        (self.home / ".bashrc").write_text("mine")
        self.job = folder / "job"
        self.job.mkdir()
        (self.job / "meta.json").write_text(json.dumps({"deploy_map": {"app": ["@ALL"]}}))
        self.out = folder / "out"
        self.loot = folder / "loot.zip"
        self.content = folder / "content"
        self.content.write_text("theirs")
        self._monkeypatch = monkeypatch
        monkeypatch.setattr(remote, "PROCESS_MODULE", hostile_server.__name__)
        support = str(Path(hostile_server.__file__).parent)
        monkeypatch.setenv("PYTHONPATH", support)

    def session(self, **says: Any) -> RemoteSession:
        """Log in at a server that answers so; the rest of its answers is honest."""
        places = {"content": str(self.content), "loot": str(self.loot)}
        self._monkeypatch.setenv("HOSTILE", json.dumps({**places, **says}))
        return RemoteSession(self.kit)

    def is_untouched(self) -> bool:
        """Return whether the home is as it was, and the server has received nothing."""
        names = {path.name: path.read_text() for path in self.home.iterdir()}
        return names == {".bashrc": "mine"} and not self.loot.exists()


@pytest.fixture
def machine(tmp_path: Path, kits: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, kits / LEAD, monkeypatch)


@pytest.mark.parametrize("fetched_before", [False, True])
def test_an_honest_server_gets_jobs_and_gives_results(
    machine: Machine, fetched_before: bool
) -> None:
    """Somebody may have fetched the same results by the console, into the kit's own folder."""
    earlier = machine.kit / "transfer" / JOB
    with machine.session() as flare:
        if fetched_before:
            earlier.mkdir()
            (earlier / "other.txt").touch()
        assert submit.submit(flare, machine.job) == JOB
        with zipfile.ZipFile(machine.loot) as sent:
            assert "job/meta.json" in sent.namelist()
        assert flare.get_job_meta(JOB)["status"] == "FINISHED:COMPLETED"
        folder = Path(flare.download_job_result(JOB, str(machine.out)))
    assert folder == machine.out / JOB
    assert (folder / "note.txt").read_text() == "theirs"
    assert [path.name for path in folder.iterdir()] == ["note.txt"]
    assert list((machine.kit / "transfer").iterdir()) == [earlier] * fetched_before
    shutil.rmtree(earlier, ignore_errors=True)


def test_results_that_are_fetched_again_replace_none_that_lie_there(machine: Machine) -> None:
    """The fetched run is the one of this time; what somebody had in its place stays beside it."""
    (machine.out / JOB).mkdir(parents=True)
    (machine.out / JOB / "remark.txt").write_text("mine")
    broken_off = machine.out / f".{JOB}.arriving"
    broken_off.mkdir()
    (broken_off / "half.txt").touch()
    for number in (1, 2):
        with machine.session() as flare:
            folder = Path(flare.download_job_result(JOB, str(machine.out)))
        assert folder == machine.out / JOB
        assert [path.name for path in folder.iterdir()] == ["note.txt"]
        assert (machine.out / f"{JOB}.earlier-{number}").exists()
    assert (machine.out / f"{JOB}.earlier-1" / "remark.txt").read_text() == "mine"
    assert len(list(machine.out.iterdir())) == 3


@pytest.mark.proves(
    "server",
    "a question of a user's is answered by asking for a folder of theirs",
    "refused: FLARE's client sends submitted jobs alone",
)
@pytest.mark.parametrize("bound", [PUSH_FOLDER_FQN, PULL_FOLDER_FQN])
def test_no_other_command_sends_or_fetches_a_folder(machine: Machine, bound: str) -> None:
    rebound = {**HONEST["bound"], "get_job_meta": bound}
    home = str(machine.home)
    with machine.session(bound=rebound, jobs=[home]) as flare:
        with pytest.raises(RunError, match=UNSAFE + f"the id '{home}' of a job"):
            describe(flare)
        with pytest.raises(Exception, match="not found"):
            flare.get_job_meta(home)
    assert machine.is_untouched()


@pytest.mark.proves(
    "server",
    "fetched results are named so that they lie elsewhere on a user's machine",
    "refused: nothing is written outside of the folder for results",
)
@pytest.mark.parametrize(
    "results",
    [
        {"files": [["../../../home/.bashrc", "reference"]]},
        {"files": [["/home/.bashrc", "reference"]]},
        {"files": [["a/../../b", "reference"]]},
        {"tx_id": "/../../../home"},
        {"tx_id": "1", "files": [[".bashrc", "reference"]]},
        {"tx_id": "1", "files": [["note.txt\n", "reference"]]},
    ],
)
def test_no_name_of_a_result_leads_elsewhere(machine: Machine, results: dict[str, Any]) -> None:
    with (
        machine.session(results={**HONEST["results"], **results}) as flare,
        pytest.raises(RunError, match=UNSAFE + "the name "),
    ):
        flare.download_job_result(JOB, str(machine.out))
    assert machine.is_untouched()
    assert not machine.out.exists()


@pytest.mark.proves(
    "server",
    "fetched results are named so that they lie elsewhere on a user's machine",
    "refused: nothing is written outside of the folder for results",
)
@pytest.mark.parametrize("bound", [{}, HONEST["bound"]])
def test_the_server_names_no_folder_as_results(machine: Machine, bound: dict[str, str]) -> None:
    """FLARE moves the folder that the answer names if its client has fetched nothing."""
    with (
        machine.session(bound=bound, results={"location": str(machine.home)}) as flare,
        pytest.raises(RunError, match=UNSAFE + "results that this machine has not fetched"),
    ):
        flare.download_job_result(JOB, str(machine.out))
    assert machine.is_untouched()


@pytest.mark.parametrize(
    "says",
    [
        {"submitted": "../../home"},
        {"meta": {"job_id": "/home", "status": "FINISHED:COMPLETED"}},
        {"meta": {"status": "FINISHED:COMPLETED"}},
    ],
)
def test_the_server_names_no_other_job(machine: Machine, says: dict[str, Any]) -> None:
    with machine.session(**says) as flare, pytest.raises(RunError, match=UNSAFE):
        submit.wait(flare, submit.submit(flare, machine.job))


@pytest.mark.proves(
    "outsider",
    "a link in a job folder that somebody hands to a lead",
    "refused and named: nothing that it leads to is sent",
)
@pytest.mark.parametrize("name", ["key", ".__nvfl_sig.json", "app/config/key", "app", "meta.json"])
def test_a_job_folder_sends_and_signs_nothing_outside_of_it(machine: Machine, name: str) -> None:
    """A kit's console sends the folder itself, and FLARE signs no folder with a link."""
    link = machine.job / name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(machine.home if name == "app" else machine.home / ".bashrc")
    with machine.session() as flare:
        with pytest.raises(RunError, match=f"found {name}, which is neither: it is a link"):
            submit.submit(flare, machine.job)
        with pytest.raises(Exception, match="symbolic links are not allowed in signed folders"):
            flare.submit_job(str(machine.job))
    assert machine.is_untouched()


def test_a_pipe_in_a_job_folder_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "meta.json")
    with pytest.raises(RunError, match=f"job folder {tmp_path}: .* found meta.json, which is nei"):
        submit.job_meta(tmp_path)


def test_results_that_would_fill_the_disk_are_not_unpacked(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit that no disk meets stands for an archive that no disk holds."""
    with zipfile.ZipFile(machine.content, "w") as archive:
        archive.writestr("note.txt", "theirs")
    monkeypatch.setenv("KEPT_FREE", str(2**62))
    results = {**HONEST["results"], "files": [["results.zip", "reference"]]}
    with (
        machine.session(results=results) as flare,
        pytest.raises(RunError, match=r"bytes, for an archive of 6\. Make room there"),
    ):
        flare.download_job_result(JOB, str(machine.out))
    assert not machine.out.exists()


def test_the_console_of_a_kit_has_the_same_transfers(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it starts is FLARE's console; its commands are those of a session."""
    modules: list[object] = []

    class Console:
        def __init__(self, *, cmd_modules: list[object], **_: object) -> None:
            modules.extend(cmd_modules)

        def run(self) -> None:
            pass

    monkeypatch.setattr("nvflare.fuel.hci.tools.admin.AdminClient", Console)
    monkeypatch.setattr("nvflare.fuel.hci.tools.admin.FileTransferModule", FileTransferModule)
    monkeypatch.setattr("sys.argv", ["console", "-m", str(machine.kit), "-s", "fed_admin.json"])
    monkeypatch.chdir(machine.kit)
    console.main()
    assert [type(module) for module in modules] == [SafeTransfers]

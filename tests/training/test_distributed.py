"""Processes that share a batch: they start, and none is left when something goes wrong."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import torch
from torch import Tensor, nn

from fedward.client.respondent import public_text
from fedward.errors import DataError, RunError
from fedward.training.distributed import launch as launching
from fedward.training.distributed import sharing
from fedward.training.distributed.launch import launch, private_folder
from fedward.training.distributed.sharing import has_batch_norm, rows_of, share
from tiny import Folded, batch_norm_net


def never() -> bool:
    return False


@pytest.fixture(autouse=True)
def _find_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def do(task: str, folder: Path, aborted: Callable[[], bool] = never) -> None:
    (folder / "task.json").write_text(json.dumps(task))
    launch("distributed_tasks", folder, 2, "site-1", aborted)


# --- sharing


def test_batch_norm_is_found_and_other_normalisation_is_not() -> None:
    assert has_batch_norm(batch_norm_net(1))
    assert has_batch_norm(nn.Sequential(nn.BatchNorm1d(3)))
    assert not has_batch_norm(nn.Sequential(nn.GroupNorm(1, 3), nn.LayerNorm(3)))


def test_a_shared_net_keeps_tensor_names_and_timms_activation() -> None:
    layers = pytest.importorskip("timm.layers")
    net = nn.Sequential(batch_norm_net(1), layers.BatchNormAct2d(8))
    names = list(net.state_dict())
    shared = share(net)
    assert list(shared.state_dict()) == names
    kinds = [type(module) for module in shared.modules()]
    assert nn.BatchNorm2d not in kinds
    assert nn.SyncBatchNorm in kinds
    assert layers.SyncBatchNormAct in kinds


@pytest.mark.parametrize(("images", "processes"), [(0, 2), (1, 3), (7, 1), (7, 3), (2, 8), (16, 8)])
def test_every_row_of_a_batch_has_one_process(images: int, processes: int) -> None:
    rows = [range(images)[rows_of(rank, images, processes)] for rank in range(processes)]
    assert [row for share in rows for row in share] == list(range(images))
    sizes = [len(share) for share in rows]
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(("rank", "seen"), [(0, 1), (1, 0)])
def test_batch_norm_sees_the_batchs_rows_alone(
    rank: int, seen: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One image for two processes: the second computes zeros, which statistics must not see."""
    counted: list[int] = []

    def forward(self: nn.Module, rows: Tensor) -> Tensor:
        counted.append(len(rows))
        return rows * 2

    monkeypatch.setattr(nn.SyncBatchNorm, "forward", forward)  # torch's own needs GPUs
    monkeypatch.setattr(sharing.dist, "get_rank", lambda: rank)
    monkeypatch.setattr(sharing.dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(sharing._Gather, "apply", lambda own, images: own)
    net = share(
        nn.Sequential(Folded(), nn.BatchNorm2d(3), Folded(), nn.Flatten(), nn.Linear(48, 5))
    )
    image = torch.ones(1, 3, 4, 4, requires_grad=True)
    outputs = net(image)
    assert outputs.shape == (seen, 5)
    assert counted == [seen]
    outputs.sum().backward()
    assert net[4].weight.grad is not None
    net.eval()
    assert net(image).shape == (seen, 5)
    assert counted == [seen, 1], (
        "statistics that are only read may be read for a row that is dropped again"
    )


# --- what goes wrong


def running(folder: Path) -> list[psutil.Process]:
    """Return the processes that said they are there, once all have."""
    files = [folder / f"here-{rank}" for rank in range(2)]
    if not all(file.exists() and file.read_text() for file in files):
        return []
    return [psutil.Process(int(file.read_text())) for file in files]


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [
        process
        for process in processes
        if process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    ]


def test_a_process_that_is_killed_is_named_and_the_others_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with private_folder(tmp_path) as folder, pytest.raises(RunError) as caught:
        do("killed", folder)
    assert "site site-1, process 1 of 2: expected to finish" in str(caught.value)
    assert "killed by SIGKILL" in str(caught.value)
    assert "lower `processes`" in str(caught.value)
    assert "exitcode" in caplog.text, "the site's own log has what torchrun said"
    assert not list(tmp_path.iterdir())


def test_an_error_of_a_process_is_raised_and_its_text_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with private_folder(tmp_path) as folder, pytest.raises(DataError) as caught:
        do("refuses", folder)
    assert str(caught.value).startswith(
        "site site-1, process 1 of 2: row 7 of /data/names.csv: expected an image"
    )
    assert "names.csv" in caplog.text
    assert "names.csv" not in public_text(caught.value)


def test_the_first_unexpected_error_is_told_by_its_kind_alone(tmp_path: Path) -> None:
    """A process that lost its partner says so too, but later."""
    (tmp_path / "log").write_text("Traceback: /data/names.csv")
    for rank, kind, when in ((0, "DistBackendError", 5.1), (1, "OutOfMemoryError", 5.0)):
        (tmp_path / f"error-{rank}.json").write_text(
            json.dumps({"rank": rank, "time": when, "kind": kind})
        )
    text = public_text(launching._failure(tmp_path, 2, "site-1"))
    assert text.startswith(
        "site site-1, process 1 of 2: expected to finish its share of the training, found OutOf"
    )
    assert "names.csv" not in text


def test_an_error_of_an_unknown_kind_keeps_its_text_at_the_site(tmp_path: Path) -> None:
    (tmp_path / "log").touch()
    note = {"rank": 0, "time": 1.0, "kind": "NewError", "parts": ["/data/names.csv", "a", "b", "c"]}
    (tmp_path / "error-0.json").write_text(json.dumps(note))
    error = launching._failure(tmp_path, 2, "site-1")
    assert "names.csv" in str(error)
    assert "names.csv" not in public_text(error)


def test_torchrun_that_cannot_start_is_an_error_too(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("No space left on device")
    assert "site site-1: expected" in str(launching._failure(tmp_path, 2, "site-1"))


def test_the_folder_of_the_processes_is_found_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processes have it as their own, so a relative path would lead elsewhere."""
    monkeypatch.chdir(tmp_path)
    with private_folder(Path("site-1")) as folder:
        assert folder.is_absolute()
        assert folder.parent == (tmp_path / "site-1").resolve()


def test_an_abort_ends_all_processes_and_they_were_private(tmp_path: Path) -> None:
    seen: list[psutil.Process] = []
    addresses: set[str] = set()

    def look() -> bool:
        seen[:] = running(folder)
        for process in psutil.Process().children(recursive=True) if seen else []:
            addresses.update(
                at.laddr.ip
                for at in process.net_connections("inet")
                if at.status == psutil.CONN_LISTEN
            )
        return bool(seen)

    with private_folder(tmp_path) as folder:
        assert folder.stat().st_mode & 0o077 == 0
        with pytest.raises(RunError, match="the run was aborted"):
            do("waits_together", folder, look)
        assert len(seen) == 2
        assert not alive(seen)
    assert addresses
    assert addresses <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
    assert not list(tmp_path.iterdir())


def test_jobs_of_one_site_make_and_remove_folders_at_once(tmp_path: Path) -> None:
    def make_many(_: int) -> None:
        for _ in range(50):
            with private_folder(tmp_path) as folder:
                assert folder.is_dir()

    with ThreadPoolExecutor(8) as jobs:
        list(jobs.map(make_many, range(8)))
    assert not list(tmp_path.iterdir())


def test_an_interrupt_ends_all_processes(tmp_path: Path) -> None:
    seen: list[psutil.Process] = []

    def interrupt() -> bool:
        seen[:] = running(folder)
        if seen:
            raise KeyboardInterrupt
        return False

    with private_folder(tmp_path) as folder:
        with pytest.raises(KeyboardInterrupt):
            do("waits", folder, interrupt)
        assert len(seen) == 2
        assert not alive(seen)


def test_processes_end_with_a_killed_site_and_leave_nothing(tmp_path: Path) -> None:
    code = (
        "import sys, json\nfrom pathlib import Path\n"
        "from fedward.training.distributed.launch import launch, private_folder\n"
        "with private_folder(Path(sys.argv[1])) as folder:\n"
        "    (folder / 'task.json').write_text(json.dumps('waits'))\n"
        "    print(folder, flush=True)\n"
        "    def both_are_here():\n"
        "        if (folder / 'here-1').exists() and (folder / 'here-0').exists():\n"
        "            print('here', flush=True)\n"
        "    launch('distributed_tasks', folder, 2, 'site-1', both_are_here)\n"
    )
    site = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert site.stdout is not None
    folder = Path(site.stdout.readline().strip())
    _ = site.stdout.readline()
    everyone = [*running(folder), *psutil.Process(site.pid).children(recursive=True)]
    assert len(set(everyone)) == 3
    with private_folder(tmp_path):
        assert folder.exists(), "it is in use"
    site.send_signal(signal.SIGKILL)
    site.wait()
    site.stdout.close()
    assert psutil.wait_procs(everyone, timeout=60)[1] == []
    with private_folder(tmp_path) as other:
        assert list(tmp_path.iterdir()) == [other]

"""What the processes of test_distributed.py do.

``python -m distributed_tasks FOLDER`` does the task that is named in ``task.json``.

Imports of torch stay inside: most of these tasks need none, and start in a fraction of the time.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from fedward.errors import DataError
from fedward.training.distributed.launch import work


def killed(folder: Path, rank: int, processes: int) -> None:
    """The second process dies as if the kernel had ended it for want of memory.

    The first process waits for its outputs.
    """
    import torch

    from fedward.training.distributed.sharing import group

    with group(folder, rank, processes):
        torch.distributed.barrier()
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        torch.distributed.all_reduce(torch.ones(3))


def refuses(folder: Path, rank: int, processes: int) -> None:
    """The second process finds something wrong with the data."""
    if rank == 1:
        raise DataError(
            "row 7 of /data/names.csv", expected="an image", found="none", remedy="Fix the row."
        )
    signal.pause()


def waits(folder: Path, rank: int, processes: int) -> None:
    """All say that they are there, and wait."""
    (folder / f"here-{rank}").write_text(str(os.getpid()))
    signal.pause()


def waits_together(folder: Path, rank: int, processes: int) -> None:
    """All have met, and wait."""
    import torch

    from fedward.training.distributed.sharing import group

    with group(folder, rank, processes):
        torch.distributed.barrier()
        waits(folder, rank, processes)


TASKS: dict[str, Callable[[Path, int, int], None]] = {
    task.__name__: task for task in (killed, refuses, waits, waits_together)
}

if __name__ == "__main__":
    there = Path(sys.argv[1])
    work(there, partial(TASKS[json.loads((there / "task.json").read_text())], there))

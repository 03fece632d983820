"""What this process computes with: a device and a number of CPU threads."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fedward.errors import DataError


def device_of(name: str, where: str) -> torch.device:
    """Return the device of a name: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.

    ``auto`` is the first GPU if this process sees one, else the CPU.

    Args:
        name: as a site file or a job has it.
        where: whose device it is, such as ``site hospital-a``; begins an error's text.

    Raises:
        DataError: there is no such GPU.
    """
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "cpu" or (name == "auto" and not gpus):
        return torch.device("cpu")
    device = torch.device("cuda" if name == "auto" else name)
    if (device.index or 0) >= gpus:
        raise DataError(
            f"{where}, field device",
            "Write device: cpu or auto, or repair the driver: `nvidia-smi` and torch must both "
            "see the GPU.",
            expected=name,
            found=f"{gpus} GPUs that torch sees",
        )
    return device


def described(device: torch.device) -> str:
    """Return a device as a log names it, a GPU with its model."""
    if device.type != "cuda":
        return str(device)
    return f"{device} ({torch.cuda.get_device_name(device)})"


def has_bfloat16(device: torch.device) -> bool:
    """Return whether a GPU computes in bfloat16 itself (compute capability 8.0).

    Older GPUs emulate it, which is slow.
    """
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)


def limit_threads(threads: int) -> None:
    """Set how many CPU threads torch uses in this process.

    Args:
        threads: their number, at most one for each core that this process may use; 0 for all of
            these.
    """
    cores = _usable_cores()
    torch.set_num_threads(min(threads or cores, cores))


def _usable_cores() -> int:
    """Return the number of cores that this process may use.

    A batch system or a container may give it some of the machine's alone.
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def threads_limited(threads: int) -> Iterator[None]:
    """Limit the CPU threads as :func:`limit_threads` does, until the block ends."""
    before = torch.get_num_threads()
    limit_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)

"""What this process computes with: a device and a number of CPU threads, as a site's file says."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fedward.errors import DataError


def device_of(name: str, where: str) -> torch.device:
    """Return the device that a site file names: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.

    ``auto`` is the first GPU if this process sees one, else the CPU.

    Raises:
        DataError: a GPU that is not there; ``where`` begins the text.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "cpu" or (name == "auto" and not count):
        return torch.device("cpu")
    device = torch.device("cuda" if name == "auto" else name)
    if (device.index or 0) >= count:
        remedy = "Write device: cpu or auto, or repair the driver: `nvidia-smi` and torch must both see the GPU."
        raise DataError(
            f"{where}, field device",
            expected=name,
            found=f"{count} GPUs that torch sees",
            remedy=remedy,
        )
    return device


def described(device: torch.device) -> str:
    """Return a device as a log names it, a GPU with its model."""
    return (
        f"{device} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else str(device)
    )


def has_bfloat16(device: torch.device) -> bool:
    """Return whether a GPU computes in bfloat16 itself (compute capability 8.0): older ones emulate
    it, slowly.
    """
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)


def limit_threads(threads: int) -> None:
    """Let torch use so many CPU threads in this process, at most one for each core; 0 stands for
    all cores.
    """
    cores = os.cpu_count() or 1
    torch.set_num_threads(min(threads or cores, cores))


@contextmanager
def threads_limited(threads: int) -> Iterator[None]:
    """Do so inside a block."""
    before = torch.get_num_threads()
    limit_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)

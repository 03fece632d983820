"""What this process computes with: its device and its number of CPU threads."""

import os

import torch


def best_device() -> torch.device:
    """Return the GPU if this process sees one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def limit_threads(threads: int) -> None:
    """Let torch use so many CPU threads in this process, at most one for each core; 0 leaves torch's own choice."""
    if threads:
        torch.set_num_threads(min(threads, os.cpu_count() or 1))

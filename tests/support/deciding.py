"""Data sets read as pools, where all that a person must decide is refused."""

from pathlib import Path
from typing import Any

from fedward.lab.partition import csv_pool, folder_pool, npz_pool
from fedward.lab.partition.faults import Faults
from fedward.lab.partition.pool import Pool


def read_csv(path: Path, folder: Path, *arguments: Any) -> Pool:
    """Return the pool of a CSV."""
    faults = Faults()
    pool = csv_pool.read_csv(path, folder, *arguments, faults=faults)
    faults.refuse()
    return pool


def read_folder(folder: Path, *arguments: Any, **named: Any) -> Pool:
    """Return the pool of a folder whose sub-folders are the classes."""
    faults = Faults()
    pool = folder_pool.read_folder(folder, *arguments, **named, faults=faults)
    faults.refuse()
    return pool


def read_npz(path: Path, *arguments: Any, **named: Any) -> Pool:
    """Return the pool of a file of arrays."""
    faults = Faults()
    pool = npz_pool.read_npz(path, *arguments, **named, faults=faults)
    faults.refuse()
    return pool

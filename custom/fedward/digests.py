"""SHA-256 digests of JSON values, of files and of arrays."""

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
_BLOCK = 1 << 20
"""Bytes of a file that are read at once."""


def canonical(value: Any) -> str:
    """Return the one canonical JSON of a value: keys sorted, no spaces, ASCII.

    NaN and infinity are written as Python writes them.
    """
    return _CANONICAL.encode(value)


def digest(value: Any) -> str:
    """Return the SHA-256 of a value's canonical JSON, 64 hexadecimal digits."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, 64 hexadecimal digits."""
    total = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            total.update(block)
    return total.hexdigest()


def arrays_digest(arrays: Mapping[str, np.ndarray]) -> str:
    """Return the SHA-256 of arrays' names, types, shapes and numbers, 64 hexadecimal digits.

    It does not depend on the order of the mapping.
    """
    total = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        total.update(_heading(name, array.dtype.str, array.shape))
        total.update(np.ascontiguousarray(array).reshape(-1).data)
    return total.hexdigest()


@lru_cache(maxsize=10_000)
def _heading(name: str, dtype: str, shape: tuple[int, ...]) -> bytes:
    # Cached, because the same tensors come in every round.
    return canonical([name, dtype, shape]).encode()

"""SHA-256 digests of JSON values, of files and of arrays."""

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def canonical(value: Any) -> str:
    """Return JSON of which there is one for each value: keys sorted, no spaces, ASCII; NaN as
    Python writes it.
    """
    return _CANONICAL.encode(value)


def digest(value: Any) -> str:
    """Return the SHA-256 of a value's canonical JSON, 64 hexadecimal digits."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, 64 hexadecimal digits."""
    total = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            total.update(block)
    return total.hexdigest()


def arrays_digest(arrays: Mapping[str, np.ndarray]) -> str:
    """Return the SHA-256 of arrays' names, types, shapes and numbers, whatever their order; 64
    hexadecimal digits.
    """
    total = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        total.update(_heading(name, array.dtype.str, array.shape))
        total.update(np.ascontiguousarray(array).reshape(-1).data)
    return total.hexdigest()


@lru_cache(maxsize=10_000)
def _heading(*facts: Any) -> bytes:
    return canonical(facts).encode()  # the same tensors come in every round

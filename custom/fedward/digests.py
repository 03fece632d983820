"""SHA-256 digests of JSON values and of files."""

import hashlib
import json
from pathlib import Path
from typing import Any


def canonical(value: Any) -> str:
    """Return JSON of which there is one for each value: keys sorted, no spaces, ASCII; NaN as Python writes it."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


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

"""The files of a run, and whether two runs are equal."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from fedward.errors import RunError
from fedward.storage.model_files import StoredState


def rows(folder: Path, log: str) -> list[dict[str, Any]]:
    """Return a log's rows; none where the run's method does not write that log."""
    path = folder / f"{log}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def steady_rows(folder: Path, log: str) -> list[dict[str, Any]]:
    """Return the rows that are equal in equal runs."""
    return [row for row in rows(folder, log) if row.get("name") != "seconds"]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return dict(StoredState(folder / "model.safetensors"))


def assert_equal(a: Mapping[str, torch.Tensor], b: Mapping[str, torch.Tensor]) -> None:
    assert list(a) == list(b)
    for key, value in a.items():
        assert torch.equal(value, b[key]), key


@contextmanager
def in_vain() -> Iterator[None]:
    """Expect that a run fails after its last round, because no training was used."""
    with pytest.raises(
        RunError, match="expected a model that some round changed, found the one it began with"
    ):
        yield

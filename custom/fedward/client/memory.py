"""What a site keeps for itself between the rounds of one run, in its own folder: models by role, and notes."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from fedward.errors import WireError
from fedward.storage.checkpoint import StoredState, by_role, flat, save_json, save_model
from fedward.storage.disk import PRIVATE, make_folder

OWN = "own"
"""Role of what a site trained and does not send: the tensors that stay there by the method's word."""


class SiteMemory:
    """Models of one site in one run, a file for each exchange in which they changed.

    A resumed run asks for a round again; the site then starts from what it knew before that round, so its answer is
    that of an undisturbed run. The server may go back one round further, if its newest state is damaged.

    Args:
        folder: of all runs' memories at this site.
        run: the run's id, 32 hexadecimal digits.

    Raises:
        WireError: an id that is none, and could lead out of the folder.
    """

    def __init__(self, folder: Path, run: str) -> None:
        self._folder = _checked(folder, run)

    def before(self, round_: int, part: int) -> dict[str, Mapping[str, torch.Tensor]]:
        """Return role -> model as it was before an exchange; empty if there was nothing yet."""
        earlier = [path for path in self._files() if path.stem < _stem(round_, part)]
        if not earlier:
            return {}
        return dict(by_role(StoredState(earlier[-1])))

    def save(self, round_: int, part: int, models: Mapping[str, Mapping[str, torch.Tensor]]) -> None:
        """Keep what is known after an exchange; nothing is written where a method remembers nothing."""
        if not models:
            return
        make_folder(self._folder, PRIVATE)
        save_model(self._folder / f"{_stem(round_, part)}.safetensors", flat(models))
        _forget(self._files(), round_)

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("*.safetensors"))


class SiteNotes:
    """JSON values of one site in one run, one for each exchange in which it wrote one; arguments as of SiteMemory."""

    def __init__(self, folder: Path, run: str) -> None:
        self._folder = _checked(folder, run)

    def at(self, round_: int, part: int) -> Any | None:
        """Return what was noted in an exchange, when it was asked for before; None if nothing was."""
        path = self._folder / f"{_stem(round_, part)}.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def before(self, round_: int, part: int) -> Any | None:
        """Return the last note of an earlier exchange, None if there is none."""
        earlier = [path for path in self._files() if path.stem < _stem(round_, part)]
        return json.loads(earlier[-1].read_text(encoding="utf-8")) if earlier else None

    def save(self, round_: int, part: int, value: Any) -> None:
        """Keep a note; what a resumed run cannot go back to is deleted."""
        make_folder(self._folder, PRIVATE)
        save_json(self._folder / f"{_stem(round_, part)}.json", value)
        _forget(self._files(), round_)

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("*.json"))


def _forget(files: Sequence[Path], round_: int) -> None:
    """Delete what no run resumed after this round, unfinished, goes back to: the start of the round before, at most."""
    for old in [path for path in files if path.stem < _stem(round_ - 1, 0)][:-1]:
        old.unlink()


def _checked(folder: Path, run: str) -> Path:
    if not re.fullmatch(r"[0-9a-f]{32}", run):
        raise WireError(
            "run id",
            expected="32 hexadecimal digits",
            found=repr(run),
            remedy="Server and sites must run the same version of fedward.",
        )
    return folder / run


def _stem(round_: int, part: int) -> str:
    return f"{round_:05d}-{part:03d}"

"""What a site keeps for itself between the rounds of one run, in its own folder: models by role, and JSON records."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from fedward.errors import WireError
from fedward.storage.checkpoint import StoredState, by_role, flat, save_json, save_model
from fedward.storage.disk import PRIVATE, make_folder

OWN = "own"
"""Role of the private tensors: those that a site trains and does not send."""


class _ExchangeFiles:
    """Files of one site in one run, one for each exchange in which something was saved.

    A resumed run asks for a round again. The site then starts from what it knew before that round, so its answer is
    that of an undisturbed run. The server may go back one round further, if its newest state is damaged.

    Args:
        folder: of all runs at this site.
        run: the run's id, 32 hexadecimal digits.
        suffix: of the files' names.

    Raises:
        WireError: another id, which could lead out of the folder.
    """

    def __init__(self, folder: Path, run: str, suffix: str) -> None:
        if not re.fullmatch(r"[0-9a-f]{32}", run):
            raise WireError(
                "run id",
                expected="32 hexadecimal digits",
                found=repr(run),
                remedy="Server and sites must run the same version of fedward.",
            )
        self._folder, self._suffix = folder / run, suffix

    def at(self, round_: int, part: int) -> Path:
        """Return the file of an exchange, which may not exist."""
        return self._folder / f"{round_:05d}-{part:03d}{self._suffix}"

    def before(self, round_: int, part: int) -> Path | None:
        """Return the last file of an earlier exchange, None if there is none."""
        at = self.at(round_, part)
        return max((path for path in self._folder.glob(f"*{self._suffix}") if path < at), default=None)

    def make_folder(self) -> None:
        make_folder(self._folder, PRIVATE)

    def forget(self, round_: int) -> None:
        """Delete what a run resumed in this round or later cannot go back to: it needs the round before at most."""
        oldest = self.before(round_ - 1, 0)
        for path in self._folder.glob(f"*{self._suffix}"):
            if oldest and path < oldest:
                path.unlink()


class SiteMemory:
    """Models of one site in one run; ``folder`` and ``run`` are those of :class:`_ExchangeFiles`."""

    def __init__(self, folder: Path, run: str) -> None:
        self._files = _ExchangeFiles(folder, run, ".safetensors")

    def before(self, round_: int, part: int) -> dict[str, Mapping[str, torch.Tensor]]:
        """Return role -> model as it was before an exchange; empty if there was nothing yet."""
        path = self._files.before(round_, part)
        return dict(by_role(StoredState(path))) if path else {}

    def save(self, round_: int, part: int, models: Mapping[str, Mapping[str, torch.Tensor]]) -> None:
        """Keep what is known after an exchange; nothing is written where a method remembers nothing."""
        if models:
            self._files.make_folder()
            save_model(self._files.at(round_, part), flat(models))
            self._files.forget(round_)


class SiteRecords:
    """JSON values of one site in one run; ``folder`` and ``run`` are those of :class:`_ExchangeFiles`."""

    def __init__(self, folder: Path, run: str) -> None:
        self._files = _ExchangeFiles(folder, run, ".json")

    def at(self, round_: int, part: int) -> Any | None:
        """Return what was saved in an exchange; None if nothing was."""
        path = self._files.at(round_, part)
        return _read(path) if path.exists() else None

    def before(self, round_: int, part: int) -> Any | None:
        """Return what was saved last in an earlier exchange; None if nothing was."""
        path = self._files.before(round_, part)
        return _read(path) if path else None

    def save(self, round_: int, part: int, value: Any) -> None:
        """Save the value of an exchange."""
        self._files.make_folder()
        save_json(self._files.at(round_, part), value)
        self._files.forget(round_)


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))

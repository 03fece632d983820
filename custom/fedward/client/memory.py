"""What a site keeps for itself between the rounds of one run, in its own folder: models by role,
and JSON records.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

import torch

from fedward.errors import WireError
from fedward.storage.checkpoint import StoredState, by_role, flat, save_json, save_model
from fedward.storage.disk import PRIVATE, make_folder

OWN = "own"
"""Role of the private tensors: those that a site trains and does not send."""

ModelsByRole: TypeAlias = Mapping[str, Mapping[str, torch.Tensor]]
T = TypeVar("T")


class Memory(Generic[T]):
    """Values of one site in one run, in a file for each exchange in which one was saved.

    A resumed run asks for a round again. The site then starts from what it knew before that round,
    so its answer is that of an undisturbed run. The server may go back one round further, if its
    newest state is damaged.

    Args:
        folder: of all runs at this site.
        run: the run's id, 32 hexadecimal digits.
        suffix: of the files' names.
        read: returns the value in a file.
        write: writes a value to a file.

    Raises:
        WireError: another id, which could lead out of the folder.
    """

    def __init__(
        self,
        folder: Path,
        run: str,
        suffix: str,
        read: Callable[[Path], T],
        write: Callable[[Path, T], None],
    ) -> None:
        if not re.fullmatch(r"[0-9a-f]{32}", run):
            remedy = "Server and sites must run the same version of fedward."
            raise WireError(
                "run id", expected="32 hexadecimal digits", found=repr(run), remedy=remedy
            )
        self._folder = folder / run
        self._suffix = suffix
        self._read = read
        self._write = write

    def at(self, round_: int, part: int) -> T | None:
        """Return what was saved in an exchange; None if nothing was."""
        path = self._path(round_, part)
        return self._read(path) if path.exists() else None

    def before(self, round_: int, part: int) -> T | None:
        """Return what was saved last in an earlier exchange; None if nothing was."""
        path = self._before(round_, part)
        return self._read(path) if path else None

    def save(self, round_: int, part: int, value: T) -> None:
        """Save the value of an exchange, unless it is empty, and delete what no resumed run goes
        back to.
        """
        if not value:
            return
        make_folder(self._folder, PRIVATE)
        self._write(self._path(round_, part), value)
        oldest = self._before(round_ - 1, 0)  # it goes back by a round at most
        for path in self._folder.glob(f"*{self._suffix}"):
            if oldest and path < oldest:
                path.unlink()

    def _path(self, round_: int, part: int) -> Path:
        return self._folder / f"{round_:05d}-{part:03d}{self._suffix}"

    def _before(self, round_: int, part: int) -> Path | None:
        at = self._path(round_, part)
        return max(
            (path for path in self._folder.glob(f"*{self._suffix}") if path < at), default=None
        )


def site_models(folder: Path, run: str) -> Memory[ModelsByRole]:
    """Return a site's models in a run, by role; arguments as of :class:`Memory`."""
    return Memory(
        folder,
        run,
        ".safetensors",
        lambda path: by_role(StoredState(path)),
        lambda path, models: save_model(path, flat(models)),
    )


def site_records(folder: Path, run: str) -> Memory[Any]:
    """Return a site's JSON records in a run; arguments as of :class:`Memory`."""
    return Memory(
        folder, run, ".json", lambda path: json.loads(path.read_text(encoding="utf-8")), save_json
    )

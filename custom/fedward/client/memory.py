"""What a site keeps for itself between the rounds of one run: models by role, and JSON records.

Both lie in the site's own folder.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

import torch

from fedward.disk import PRIVATE, make_folder, save_json
from fedward.errors import DataError, UnreadableJsonError, WireError
from fedward.json_text import read_json_file
from fedward.methods.workflow import Turn
from fedward.storage.lock import locked
from fedward.storage.model_files import StoredState, by_role, flat, save_model

LOCAL = "local"
"""Role of the site's own model after its last training, by which samplers choose images."""
OWN = "own"
"""Role of the private tensors: those that a site trains and does not send."""

ModelsByRole: TypeAlias = Mapping[str, Mapping[str, torch.Tensor]]
"""Role -> name -> tensor."""
_NAME = re.compile("([0-9]{5,})-([0-9]{3,})")
"""Round and part of an exchange, as the name of a file without its ending: five digits and three,
and more from round 100,000 or part 1,000 on.
"""
T = TypeVar("T")
"""What is kept: models by role, or a JSON record."""


class Memory(Generic[T]):
    """Values of one site in one run, one file for each exchange in which a value was saved.

    A resumed run asks for a round again. The site then starts from what it knew before that round,
    so its answer is that of an undisturbed run. The server may go back one round further, if its
    newest state is damaged.

    Args:
        folder: with a folder for each run at this site.
        run: the run's id, 32 hexadecimal digits.
        suffix: of the files' names.
        read: returns the value in a file.
        write: writes a value to a file.

    Raises:
        WireError: the id has another form, and could lead out of the folder.
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
            raise WireError(
                "run id",
                "Server and sites must run the same version of fedward.",
                expected="32 hexadecimal digits",
                found=repr(run),
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
        saved = self._saved()
        exchange = _newest_before(saved, (round_, part))
        return self._read(saved[exchange]) if exchange else None

    def newest(self) -> T | None:
        """Return what was saved in the latest exchange; None if nothing was."""
        saved = self._saved()
        return self._read(saved[max(saved)]) if saved else None

    def is_newest(self, round_: int, part: int) -> bool:
        """Return whether nothing has been saved in a later exchange than this one."""
        return all(exchange <= (round_, part) for exchange in self._saved())

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the values of this run alone, and wait while another process or thread does.

        Several jobs may name one run at the same time. Whoever decides something by the values, and
        saves what was decided, holds them from reading them until they are saved.
        """
        make_folder(self._folder, PRIVATE)
        with locked(self._folder / f"run{self._suffix}"):
            yield

    def save(self, round_: int, part: int, value: T) -> None:
        """Save the value of an exchange, and delete the files that no resumed run needs.

        An empty value is not saved.
        """
        if not value:
            return
        make_folder(self._folder, PRIVATE)
        self._write(self._path(round_, part), value)
        saved = self._saved()
        # The server goes back by one round at most.
        oldest_needed = _newest_before(saved, (round_ - 1, 0))
        for exchange, path in saved.items():
            if oldest_needed and exchange < oldest_needed:
                path.unlink(missing_ok=True)  # Another job of this run may have deleted it.

    def _path(self, round_: int, part: int) -> Path:
        return self._folder / f"{round_:05d}-{part:03d}{self._suffix}"

    def _saved(self) -> dict[Turn, Path]:
        """Return the exchanges in which a value was saved, and the file of each."""
        saved = {}
        for path in self._folder.glob(f"*{self._suffix}"):
            name = _NAME.fullmatch(path.name.removesuffix(self._suffix))
            # Copying to some disks leaves files such as ._00001-000.json.
            if name:
                saved[Turn(int(name[1]), int(name[2]))] = path
        return saved


def _newest_before(exchanges: Iterable[Turn], exchange: tuple[int, int]) -> Turn | None:
    """Return the latest of some exchanges that is earlier than another one; None without any."""
    return max((earlier for earlier in exchanges if earlier < exchange), default=None)


def site_models(folder: Path, run: str) -> Memory[ModelsByRole]:
    """Return a site's models in a run, by role; arguments as of :class:`Memory`."""

    def read(path: Path) -> ModelsByRole:
        return by_role(StoredState(path))

    def write(path: Path, models: ModelsByRole) -> None:
        save_model(path, flat(models))

    return Memory(folder, run, ".safetensors", read, write)


def site_records(folder: Path, run: str) -> Memory[Any]:
    """Return a site's JSON records of its queries in a run; arguments as of :class:`Memory`."""
    return Memory(folder, run, ".json", _read_json, save_json)


def site_answers(folder: Path, run: str) -> Memory[Any]:
    """Return a site's JSON record of the answers that it had when a run began.

    The arguments are those of :class:`Memory`.
    """
    return Memory(folder, run, ".answers", _read_json, save_json)


def _read_json(path: Path) -> Any:
    try:
        return read_json_file(path)
    except UnreadableJsonError as error:
        raise DataError(
            f"record {path}",
            "Put back the site's folder as it was, or let the run begin again.",
            expected="JSON as this site has written it",
            found=str(error),
        ) from error

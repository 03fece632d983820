"""Models on disk, read back one tensor at a time.

The server's memory stays flat however many sites there are.
"""

import json
import math
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from fedward.disk import (
    PRIVATE,
    make_folder,
    make_new_folder,
    read_fully,
    replacing,
    save_json,
    sync,
)
from fedward.errors import RunError
from fedward.json_text import read_json, read_json_file
from fedward.model_state import State
from fedward.storage.info import FORMAT

StateT = TypeVar("StateT")

_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_NUMBER_OF_SYSTEM = re.compile(r"\(os error (\d+)\)")
"""What safetensors adds to a reason of the operating system, whose number is the group."""
_ROUND = re.compile("[0-9]{5,}")
"""Name of a round in files and folders: five digits, and more from round 100,000 on."""
_LONGEST_HEADER = 100_000_000
"""Length of a header in bytes, as the safetensors format limits it."""
_LARGEST_SHAPE = 2**40
"""Largest product of the sides of a tensor that are not 0.

The size of a file does not limit the shape of a tensor without numbers.
"""


class StoredState(Mapping[str, torch.Tensor]):
    """A model in a safetensors file, of which each access reads one tensor from disk.

    The header is parsed once. ``safe_open`` would parse it for every tensor, and a file that it
    keeps open stays mapped, so that the pages that were read count as memory.

    Raises:
        RunError: the file is not one that fedward wrote.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = file.read(min(length, _LONGEST_HEADER))
        self._start = 8 + length
        try:
            # This compares shapes, types and offsets with one another and with the file.
            with safe_open(path, "np"):
                self._header = read_json(header)
            # The file sorts its tensors. The model's own order is kept beside them, since the
            # moments of layers depend on it.
            self._keys: list[str] = read_json(self._header["__metadata__"]["order"])
            self._check_header()
        except (ValueError, KeyError, TypeError, SafetensorError) as error:
            raise RunError(
                f"model {path}",
                "Restore the file, or start a new run; nothing in it was run or used.",
                expected="a safetensors file that fedward wrote",
                found=f"another one ({type(error).__name__})",
            ) from error

    def _check_header(self) -> None:
        """Raise ValueError unless the header names the ordered tensors, with usable shapes."""
        if sorted(self._keys) != sorted(self._header.keys() - {"__metadata__"}):
            raise ValueError("other tensors than the order names")
        for key in self._keys:
            entry = self._header[key]
            # As a float, because the whole product of millions of sides would take hours.
            if math.prod((side for side in entry["shape"] if side), start=1.0) > _LARGEST_SHAPE:
                raise ValueError("a shape that no tensor has")
            if entry["dtype"] not in _DTYPES:
                raise ValueError(f"type {entry['dtype']}")

    def __getitem__(self, key: str) -> torch.Tensor:
        entry = self._header[key]
        tensor = torch.empty(entry["shape"], dtype=_DTYPES[entry["dtype"]])
        file = os.open(self._path, os.O_RDONLY)
        try:
            place = self._start + entry["data_offsets"][0]
            read = read_fully(file, tensor.flatten().view(torch.uint8).numpy().data, place)
        finally:
            os.close(file)
        if read != tensor.nbytes:
            raise RunError(
                f"tensor {key} in {self._path}",
                "The file is damaged; restore it, or start a new run.",
                expected=f"{tensor.nbytes} bytes",
                found=f"{read}",
            )
        return tensor

    def dtype(self, key: str) -> torch.dtype:
        """Return a tensor's type, without reading it."""
        return _DTYPES[self._header[key]["dtype"]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


def is_round(name: str) -> bool:
    """Return whether the name of a file or folder, without its ending, is that of a round."""
    return bool(_ROUND.fullmatch(name))


def save_model(path: Path, state: State) -> None:
    """Write a model to the disk in one step: a reader sees the old file or the new one."""
    make_folder(path.parent)
    with replacing(path) as partial:
        _write(partial, state)


def _write(path: Path, state: State) -> None:
    """Write a model; all that fedward saves of models is written here.

    Raises:
        OSError: the operating system refused it, as at a full disk.
    """
    tensors = {key: state[key].detach().cpu().contiguous() for key in state}
    try:
        save_file(tensors, path, metadata={"order": json.dumps(list(tensors))})
    except SafetensorError as error:
        raise _of_system(error, path) from None


def _of_system(error: SafetensorError, path: Path) -> Exception:
    """Return the operating system's error that safetensors passes on as a text, else its own."""
    number = _NUMBER_OF_SYSTEM.search(str(error))
    if number is None:
        return error
    return OSError(int(number[1]), os.strerror(int(number[1])), str(path))


def flat(models: Mapping[str, State]) -> dict[str, torch.Tensor]:
    """Return models by role as one mapping: ``<role>/<tensor>`` -> tensor."""
    return {f"{role}/{key}": state[key] for role, state in models.items() for key in state}


def by_role(tensors: Mapping[str, torch.Tensor]) -> dict[str, dict[str, torch.Tensor]]:
    """Return the models that :func:`flat` put into one mapping."""
    models: dict[str, dict[str, torch.Tensor]] = {}
    for name in tensors:
        role, key = name.split("/", 1)
        models.setdefault(role, {})[key] = tensors[name]
    return models


class SiteModels(Mapping[str, State]):
    """Each site's newest model, in files ``<folder>/<site>/<round>.safetensors``.

    Other accounts may not enter the folder. It is listed once: with thousands of sites a listing
    would take longer than a round.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @cached_property
    def _rounds(self) -> dict[str, list[int]]:
        """Site -> the rounds of its models, rising. A site without a model is absent."""
        rounds: dict[str, list[int]] = {}
        for path in self._folder.glob("*/*.safetensors"):
            # Copying to some disks leaves files such as ._00001.safetensors.
            if is_round(path.stem):
                rounds.setdefault(path.parent.name, []).append(int(path.stem))
        return {site: sorted(site_rounds) for site, site_rounds in rounds.items()}

    def put(self, site: str, round_: int, state: State) -> State:
        """Store a site's model of a round, and return it as it is on disk."""
        path = self._path(site, round_)
        make_folder(path.parent, PRIVATE)
        save_model(path, state)
        self._rounds[site] = sorted({*self._rounds.get(site, ()), round_})
        return StoredState(path)

    def forget_after(self, round_: int) -> None:
        """Remove models newer than ``round_``.

        A run that is resumed there must not see what an interrupted round left.
        """
        for site, rounds in list(self._rounds.items()):
            for newer_round in [number for number in rounds if number > round_]:
                self.forget(site, newer_round)

    def forget(self, site: str, round_: int) -> None:
        """Remove a site's model of a round, if there is one; an earlier one is then its newest."""
        self._path(site, round_).unlink(missing_ok=True)
        remaining = [number for number in self._rounds.pop(site, ()) if number != round_]
        if remaining:
            self._rounds[site] = remaining

    def prune(self, round_: int) -> None:
        """Remove the models that a run resumed after ``round_`` rounds does not need.

        Each site keeps its newest model of these rounds, and all later ones.
        """
        for site, rounds in list(self._rounds.items()):
            up_to_round = [number for number in rounds if number <= round_]
            for old_round in up_to_round[:-1]:
                self.forget(site, old_round)

    def clear(self) -> None:
        """Remove all models, so that a finished run holds no model of a single hospital.

        Raises:
            OSError: some cannot be removed.
        """
        if self._folder.exists():
            shutil.rmtree(self._folder)
        self._rounds.clear()

    def __getitem__(self, site: str) -> State:
        return StoredState(self._path(site, self._rounds[site][-1]))

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._rounds))

    def __len__(self) -> int:
        return len(self._rounds)

    def _path(self, site: str, round_: int) -> Path:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", site):
            raise RunError(
                f"site {site!r}",
                "Rename the site: a folder has its name.",
                expected="a name of letters, digits, '.', '_' and '-'",
                found=repr(site),
            )
        return self._folder / site / f"{round_:05d}.safetensors"


def save_state(folder: Path, state: Any) -> None:
    """Save a workflow's state to the disk in one step.

    Args:
        folder: where it goes; an earlier state there is replaced.
        state: a dataclass. Mappings of tensors are saved as safetensors, all other fields as JSON.
    """
    partial = folder.with_name(folder.name + ".partial")
    make_new_folder(partial)
    numbers: dict[str, Any] = {}
    models: dict[str, State] = {}
    for item in fields(state):
        value = getattr(state, item.name)
        if _is_model(value):
            models[item.name] = value
        else:
            numbers[item.name] = value
    tensor_names = {name: list(model) for name, model in models.items()}
    _write(partial / "state.safetensors", flat(models))
    sync(partial / "state.safetensors")
    # Writing this file also puts the names of both files on the disk.
    content = {"format": FORMAT, "numbers": numbers, "tensors": tensor_names}
    save_json(partial / "state.json", content)
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(partial, folder)
    sync(folder.parent)


def _is_model(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(tensor, torch.Tensor) for tensor in value.values()
    )


def read_state_file(folder: Path) -> dict[str, Any]:
    """Return what :func:`save_state` wrote besides the tensors.

    Returns:
        The object in ``state.json``, which has at least ``numbers``, field -> value, and
        ``tensors``, field -> names.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no JSON, or holds something else than a state.
    """
    content = read_json_file(folder / "state.json")
    parts = content if isinstance(content, dict) else {}
    names = parts.get("tensors")
    is_whole = (
        isinstance(parts.get("numbers"), dict)
        and isinstance(names, dict)
        and all(isinstance(keys, list) for keys in names.values())
    )
    if not is_whole:
        raise ValueError("state.json holds no state")
    return parts


def load_state(folder: Path, kind: type[StateT]) -> StateT:
    """Load what :func:`save_state` saved.

    Args:
        folder: the state's folder.
        kind: the dataclass of the state.

    Raises:
        RunError: another format or another method wrote the folder.
        OSError, ValueError: see :func:`read_state_file`.
    """
    content = read_state_file(folder)
    stored = StoredState(folder / "state.safetensors")
    values = dict(content["numbers"])
    for name, keys in content["tensors"].items():
        values[name] = {key: stored[f"{name}/{key}"] for key in keys}
    field_names = {item.name for item in fields(kind)}  # type: ignore[arg-type]
    if content.get("format") != FORMAT or set(values) != field_names:
        raise RunError(
            f"state in {folder}",
            "Resume with the method and the version of fedward that wrote it, or start a new run.",
            expected=f"format {FORMAT} with {sorted(field_names)}",
            found=f"format {content.get('format')} with {sorted(values)}",
        )
    return kind(**values)

"""Models on disk, read back one tensor at a time: server memory stays flat however many sites there
are.
"""

import json
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

from fedward.errors import RunError
from fedward.methods.workflow import State
from fedward.storage.disk import PRIVATE, make_folder, replacing, sync
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
_LONGEST_HEADER = 100_000_000
"""Bytes, as in the safetensors format."""
_LARGEST_SIDE = 2**40
"""Of a tensor; one without numbers may name any other."""


class StoredState(Mapping[str, torch.Tensor]):
    """A model in a safetensors file; each access reads that one tensor from disk.

    The header is parsed once: ``safe_open`` would do so for every tensor, and a file it keeps open
    stays mapped, so that the pages read would count as memory.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = file.read(min(length, _LONGEST_HEADER))
        self._start = 8 + length
        try:
            with safe_open(
                path, "np"
            ):  # which compares shapes, types and offsets with each other and with the file
                self._header = json.loads(header)
            # The file sorts its tensors; the model's own order, which layer moments rely on, is
            # kept beside them.
            self._keys: list[str] = json.loads(self._header["__metadata__"]["order"])
            if sorted(self._keys) != sorted(self._header.keys() - {"__metadata__"}):
                raise ValueError("other tensors than the order names")
            if (
                max((max(self._header[key]["shape"], default=0) for key in self._keys), default=0)
                > _LARGEST_SIDE
            ):
                raise ValueError("a shape that no tensor has")
            unknown = {self._header[key]["dtype"] for key in self._keys} - _DTYPES.keys()
            if unknown:
                raise ValueError(f"types {unknown}")
        except (ValueError, KeyError, TypeError, RecursionError, SafetensorError) as error:
            expected = "a safetensors file that fedward wrote"
            found = f"another one ({type(error).__name__})"
            remedy = "Restore the file, or start a new run; nothing in it was run or used."
            raise RunError(
                f"model {path}", expected=expected, found=found, remedy=remedy
            ) from error

    def __getitem__(self, key: str) -> torch.Tensor:
        entry = self._header[key]
        tensor = torch.empty(entry["shape"], dtype=_DTYPES[entry["dtype"]])
        file = os.open(self._path, os.O_RDONLY)
        try:
            place = self._start + entry["data_offsets"][0]
            read = os.preadv(file, [tensor.flatten().view(torch.uint8).numpy().data], place)
        finally:
            os.close(file)
        if read != tensor.nbytes:
            where = f"tensor {key} in {self._path}"
            remedy = "The file is damaged; restore it, or start a new run."
            raise RunError(where, expected=f"{tensor.nbytes} bytes", found=f"{read}", remedy=remedy)
        return tensor

    def dtype(self, key: str) -> torch.dtype:
        """Return a tensor's type, without reading it."""
        return _DTYPES[self._header[key]["dtype"]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


def save_model(path: Path, state: State) -> None:
    """Write a model atomically, onto the disk: a reader sees the old file or the new one, never
    half of one.
    """
    make_folder(path.parent)
    with replacing(path) as partial:
        _write(partial, state)


def _write(path: Path, state: State) -> None:
    tensors = {key: state[key].detach().cpu().contiguous() for key in state}
    save_file(tensors, path, metadata={"order": json.dumps(list(tensors))})


def save_json(path: Path, value: Any) -> None:
    """Write JSON as :func:`save_model` does models."""
    make_folder(path.parent)
    with replacing(path) as partial:
        partial.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def flat(models: Mapping[str, State]) -> dict[str, torch.Tensor]:
    """Return models by role as one mapping: ``<role>/<tensor>`` -> tensor."""
    return {f"{role}/{key}": state[key] for role, state in models.items() for key in state}


def by_role(tensors: Mapping[str, torch.Tensor]) -> dict[str, dict[str, torch.Tensor]]:
    """Return what :func:`flat` has put together."""
    models: dict[str, dict[str, torch.Tensor]] = {}
    for name in tensors:
        role, key = name.split("/", 1)
        models.setdefault(role, {})[key] = tensors[name]
    return models


class SiteModels(Mapping[str, State]):
    """Each site's newest model, as ``<folder>/<site>/<round>.safetensors``; others may not look
    into the folder.

    The folder is listed once: with thousands of sites each look would take longer than a round.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @cached_property
    def _rounds(self) -> dict[str, list[int]]:
        """Site -> the rounds of its models, rising; a site without any is absent."""
        found: dict[str, list[int]] = {}
        for path in self._folder.glob("*/*.safetensors"):
            found.setdefault(path.parent.name, []).append(int(path.stem))
        return {site: sorted(rounds) for site, rounds in found.items()}

    def put(self, site: str, round_: int, state: State) -> State:
        """Store a site's model of a round and return it as it now lies on disk."""
        path = self._path(site, round_)
        make_folder(path.parent, PRIVATE)
        save_model(path, state)
        self._rounds[site] = sorted({*self._rounds.get(site, ()), round_})
        return StoredState(path)

    def forget_after(self, round_: int) -> None:
        """Drop models newer than ``round_``: a run resumed there must not see what an interrupted
        round left.
        """
        for site in list(self._rounds):
            for newer in [each for each in self._rounds[site] if each > round_]:
                self.forget(site, newer)

    def forget(self, site: str, round_: int) -> None:
        """Drop a site's model of a round, if it is there; an earlier one is its newest again."""
        self._path(site, round_).unlink(missing_ok=True)
        left = [each for each in self._rounds.pop(site, ()) if each != round_]
        if left:
            self._rounds[site] = left

    def prune(self, round_: int) -> None:
        """Drop all models of a site before its newest after ``round_`` rounds: a resumed run needs
        no others.
        """
        for site in [site for site, rounds in self._rounds.items() if len(rounds) > 1]:
            for old in [each for each in self._rounds[site] if each <= round_][:-1]:
                self.forget(site, old)

    def clear(self) -> None:
        """Drop all models: who fetches a finished run must not get single hospitals' models with
        it.
        """
        shutil.rmtree(self._folder, ignore_errors=True)
        self._rounds.clear()

    def __getitem__(self, site: str) -> State:
        return StoredState(self._path(site, self._rounds[site][-1]))

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._rounds))

    def __len__(self) -> int:
        return len(self._rounds)

    def _path(self, site: str, round_: int) -> Path:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", site):
            expected = "a name of letters, digits, '.', '_' and '-'"
            remedy = "Rename the site: a folder has its name."
            raise RunError(f"site {site!r}", expected=expected, found=repr(site), remedy=remedy)
        return self._folder / site / f"{round_:05d}.safetensors"


def save_state(folder: Path, state: Any) -> None:
    """Save a workflow's state atomically, onto the disk: mappings of tensors as safetensors, all
    else as JSON.
    """
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    make_folder(partial)
    numbers: dict[str, Any] = {}
    models: dict[str, State] = {}
    for item in fields(state):
        value = getattr(state, item.name)
        if isinstance(value, Mapping) and all(
            isinstance(entry, torch.Tensor) for entry in value.values()
        ):
            models[item.name] = value
        else:
            numbers[item.name] = value
    names = {name: list(state) for name, state in models.items()}
    _write(partial / "state.safetensors", flat(models))
    sync(partial / "state.safetensors")
    save_json(
        partial / "state.json", {"format": FORMAT, "numbers": numbers, "tensors": names}
    )  # and both files' names
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(partial, folder)
    sync(folder.parent)


def load_state(folder: Path, kind: type[StateT]) -> StateT:
    """Load what :func:`save_state` saved; raise RunError when the folder was written by another
    format or method.
    """
    content = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    stored = StoredState(folder / "state.safetensors")
    values = dict(content["numbers"])
    for name, keys in content["tensors"].items():
        values[name] = {key: stored[f"{name}/{key}"] for key in keys}
    expected = {item.name for item in fields(kind)}  # type: ignore[arg-type]
    if content.get("format") != FORMAT or set(values) != expected:
        wanted = f"format {FORMAT} with {sorted(expected)}"
        found = f"format {content.get('format')} with {sorted(values)}"
        remedy = (
            "Resume with the method and the version of fedward that wrote it, or start a new run."
        )
        raise RunError(f"state in {folder}", expected=wanted, found=found, remedy=remedy)
    return kind(**values)

"""Models and states on disk come back as they were, and none newer than a restart point."""

import errno
import json
import os
import pickle
import resource
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from fedward.disk import append, make_folder, save_json
from fedward.errors import RunError
from fedward.storage.model_files import (
    SiteModels,
    StoredState,
    load_state,
    save_model,
    save_state,
)
from fedward.storage.pictures import save_pictures
from power_cut import on_the_disk, unwritten

MODEL = {"z.weight": torch.randn(3, 4), "a.count": torch.tensor(7), "m.empty": torch.zeros(0)}


def same(a, b):
    return list(a) == list(b) and all(
        torch.equal(a[key], b[key]) and a[key].dtype == b[key].dtype for key in a
    )


def test_stored_state_keeps_order_values_and_dtypes(tmp_path):
    save_model(tmp_path / "model.safetensors", MODEL)
    assert same(StoredState(tmp_path / "model.safetensors"), MODEL)
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


def test_a_read_that_is_short_goes_on(tmp_path, monkeypatch):
    """Linux reads at most 2 GiB at once."""
    save_model(tmp_path / "model.safetensors", MODEL)
    whole = os.preadv
    monkeypatch.setattr(
        os, "preadv", lambda file, buffers, place: whole(file, [buffers[0][:7]], place)
    )
    assert same(StoredState(tmp_path / "model.safetensors"), MODEL)


def test_a_model_that_was_cut_after_it_was_opened_is_named(tmp_path):
    path = tmp_path / "model.safetensors"
    save_model(path, {"w": torch.zeros(100)})
    model = StoredState(path)
    os.truncate(path, path.stat().st_size - 8)
    with pytest.raises(RunError, match=r"tensor w in .*: expected 400 bytes, found 392"):
        model["w"]


def test_what_the_system_refuses_of_a_model_is_the_systems_error(tmp_path):
    """Here a file may not be as long as the model, which has the same course as a full disk."""
    path = tmp_path / "model.safetensors"
    save_model(path, MODEL)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(OSError, match=os.strerror(errno.EFBIG)) as caught:
            save_model(path, {"w": torch.zeros(10_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.errno == errno.EFBIG
    assert Path(caught.value.filename).parent == tmp_path
    assert same(StoredState(path), MODEL)


def test_files_of_other_names_are_no_models(tmp_path):
    """Copying to some disks leaves such files beside a model."""
    SiteModels(tmp_path).put("s", 1, {"w": torch.tensor(1.0)})
    (tmp_path / "s" / "._00001.safetensors").write_bytes(b"about 00001.safetensors")
    assert SiteModels(tmp_path)["s"]["w"] == 1


def test_newest_model_wins_and_pruning_keeps_it(tmp_path):
    models = SiteModels(tmp_path)
    for round_ in (99_999, 100_001, 2):
        models.put("s", round_, {"w": torch.tensor(float(round_))})
    models = SiteModels(tmp_path)
    assert models["s"]["w"] == 100_001
    models.prune(100_001)
    assert [path.stem for path in (tmp_path / "s").iterdir()] == ["100001"]
    assert list(models) == ["s"]


@pytest.mark.parametrize(
    ("resumed_after", "kept"),
    [
        (0, {"s": [1, 2, 4], "t": [3]}),
        (2, {"s": [2, 4], "t": [3]}),
        (3, {"s": [2, 4], "t": [3]}),
        (4, {"s": [4], "t": [3]}),
    ],
)
def test_pruning_keeps_what_a_run_that_goes_back_needs(tmp_path, resumed_after, kept):
    """Site s answered in rounds 1, 2 and 4, and t in round 3."""
    models = SiteModels(tmp_path)
    for site, round_ in (("s", 1), ("s", 2), ("t", 3), ("s", 4)):
        models.put(site, round_, {"w": torch.tensor(float(round_))})
    models.prune(resumed_after)
    assert {
        site: sorted(int(path.stem) for path in (tmp_path / site).iterdir()) for site in "st"
    } == kept
    models.forget_after(max(resumed_after, 1))
    last_round = max(resumed_after, 1)
    assert models["s"]["w"] == max(round_ for round_ in (1, 2, 4) if round_ <= last_round)


@pytest.mark.proves(
    "files",
    "images on disk, or single hospitals' models at the server, read by another account",
    "readable by their owner alone",
)
def test_the_models_of_single_sites_are_their_owners_alone(tmp_path):
    before = os.umask(0o022)
    try:
        SiteModels(tmp_path / "models").put("hospital-a", 1, MODEL)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "models").stat().st_mode) == 0o700


def test_a_model_that_cannot_be_removed_is_no_silent_one(tmp_path, monkeypatch):
    models = SiteModels(tmp_path / "models")
    models.clear()
    models.put("hospital-a", 1, MODEL)

    def refusing(path, **_):
        raise PermissionError(13, "Permission denied", path)

    with monkeypatch.context() as patch:
        patch.setattr("os.unlink", refusing)
        with pytest.raises(PermissionError):
            models.clear()
    models.clear()
    assert not (tmp_path / "models").exists()


def test_an_interrupted_round_is_forgotten(tmp_path):
    models = SiteModels(tmp_path)
    models.put("s", 1, {"w": torch.tensor(1.0)})
    models.put("s", 2, {"w": torch.tensor(2.0)})
    models.put("t", 2, {"w": torch.tensor(2.0)})
    models.forget_after(1)
    assert models["s"]["w"] == 1
    assert "t" not in models


@pytest.mark.parametrize("name", ["../up", "", "a/b", ".hidden", "a b"])
def test_site_names_cannot_leave_the_folder(tmp_path, name):
    with pytest.raises(RunError, match="letters"):
        SiteModels(tmp_path).put(name, 1, MODEL)


@dataclass
class State:
    round: int
    model: dict[str, torch.Tensor]
    extra: dict[str, float] = field(default_factory=dict)
    moments: dict[str, torch.Tensor] = field(default_factory=dict)


@dataclass
class Other:
    round: int


def test_state_comes_back(tmp_path):
    state = State(4, MODEL, {"s": 0.5}, {"s": torch.ones(2, dtype=torch.float64)})
    save_state(tmp_path / "00004", state)
    loaded = load_state(tmp_path / "00004", State)
    assert loaded.round == 4
    assert loaded.extra == {"s": 0.5}
    assert same(loaded.model, MODEL)
    assert same(loaded.moments, state.moments)


def test_empty_mappings_come_back_empty(tmp_path):
    save_state(tmp_path / "s", State(0, MODEL))
    loaded = load_state(tmp_path / "s", State)
    assert loaded.extra == {}
    assert loaded.moments == {}


def test_a_state_of_another_method_is_refused(tmp_path):
    save_state(tmp_path / "s", State(0, MODEL))
    with pytest.raises(RunError, match="Resume with the method"):
        load_state(tmp_path / "s", Other)


class Payload:
    """Unpickled, it would leave a file."""

    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return Path.touch, (self.target,)


@pytest.mark.proves(
    "site", "a pickle in place of a model's safetensors file", "refused; nothing is run"
)
@pytest.mark.parametrize("dump", [pickle.dump, torch.save])
def test_a_pickle_is_refused_and_not_run(tmp_path, dump):
    with (tmp_path / "model.safetensors").open("wb") as file:
        dump({"a": Payload(tmp_path / "harm")}, file)
    with pytest.raises(RunError, match="a safetensors file that fedward wrote"):
        StoredState(tmp_path / "model.safetensors")
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize("content", [b"", b"12345678", b"\x02" + bytes(7) + b"{}", b"\xff" * 64])
def test_a_damaged_model_file_is_named(tmp_path, content):
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(RunError, match=r"model\.safetensors"):
        StoredState(tmp_path / "model.safetensors")


def hostile(header: dict[str, Any], attack: str) -> dict[str, Any] | list[Any]:
    """Return a header in which a tensor, or the order of all, is what no honest writer says."""
    tensor = header["a"]
    order = json.loads(header["__metadata__"]["order"])
    orders = {
        "unknown": [*order, "c"],
        "a tensor left out": order[1:],
        "twice": [*order, "a"],
        "a list": [[1], *order],
    }
    tensor |= {
        "as large as a disk": {"shape": [10**12]},
        "below 0": {"shape": [-1]},
        "of another size": {"shape": [1]},
        "of a type that torch lacks here": {"dtype": "F8_E4M3"},
        "before the file": {"data_offsets": [-(10**9), -(10**9) + 8]},
        "behind it": {"data_offsets": [10**15, 10**15 + 8]},
    }.get(attack, {})
    header["__metadata__"]["order"] = json.dumps(orders.get(attack, order))
    return [header] if attack == "no mapping" else header


@pytest.mark.proves(
    "files",
    "a model file with tensors of a petabyte, outside the file or of other types",
    "refused when opened; nothing is allocated",
)
@pytest.mark.parametrize(
    "attack",
    [
        "as large as a disk",
        "below 0",
        "of another size",
        "of a type that torch lacks here",
        "before the file",
        "behind it",
        "unknown",
        "a tensor left out",
        "twice",
        "a list",
        "no mapping",
    ],
)
def test_a_hostile_header_is_refused(tmp_path, attack):
    path = tmp_path / "model.safetensors"
    save_model(path, {"b": torch.ones(2), "a": torch.ones(2)})
    change_header(path, lambda header: hostile(header, attack))
    with pytest.raises(RunError, match="a safetensors file that fedward wrote"):
        StoredState(path)


def change_header(path: Path, change: Callable[[Any], Any]) -> None:
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.dumps(change(json.loads(content[8:start]))).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + content[start:])


@pytest.mark.proves(
    "files",
    "a model file with tensors of a petabyte, outside the file or of other types",
    "refused when opened; nothing is allocated",
)
@pytest.mark.parametrize("sides", [[2**40, 2**40], [2**40] * 100_000])
def test_a_tensor_without_numbers_has_sides_that_torch_can_have(tmp_path, sides):
    path = tmp_path / "model.safetensors"
    save_model(path, {"a": torch.ones(0, 3)})
    assert StoredState(path)["a"].shape == (0, 3)

    def with_sides(header):
        header["a"]["shape"] = [0, *sides]
        return header

    change_header(path, with_sides)
    with pytest.raises(RunError, match="a safetensors file that fedward wrote"):
        StoredState(path)


# --- power cuts


@pytest.mark.parametrize(
    ("save", "writes"),
    [
        (lambda folder: save_model(folder / "m.safetensors", MODEL), 2),
        (lambda folder: save_json(folder / "m.json", {"a": 1}), 2),
        (lambda folder: (make_folder(folder), append(folder / "m.jsonl", b"{}\n")), 1),
        (lambda folder: save_state(folder / "00004", State(4, MODEL)), 4),
        (lambda folder: save_pictures(folder, {"original": torch.zeros(1, 1, 2, 2)}, {}), 4),
    ],
)
def test_what_is_saved_is_on_the_disk_by_its_name(tmp_path, save, writes, monkeypatch):
    """One write for each file and folder, besides those of folders that are new."""
    folder = tmp_path / "a" / "b"
    synced = on_the_disk(monkeypatch)
    save(folder)
    assert unwritten(tmp_path, synced) == []
    note = os.fsync
    count = []
    monkeypatch.setattr(os, "fsync", lambda number: (count.append(number), note(number)))
    save(folder)
    assert unwritten(tmp_path, synced) == []
    assert len(count) <= writes + (writes == 4), "such a folder of its own is made anew each time"

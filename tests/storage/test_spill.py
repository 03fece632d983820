"""Arrays that wait on the disk: what is read is what was written, and no file stays behind."""

import gc
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from fedward.errors import RunError
from fedward.storage.spill import Spill

ARRAYS = {
    "bytes": np.arange(250, dtype=np.uint8),
    "rows": np.arange(6, dtype=np.float32).reshape(3, 2).T,
    "none": np.zeros((0, 2), np.float16),
}


def open_files() -> set[str]:
    links = Path("/proc/self/fd").iterdir()
    return {os.readlink(link) for link in links if link.is_symlink()}


def test_arrays_come_back_as_they_were_and_from_any_thread(tmp_path):
    spill = Spill(tmp_path)
    first = spill.put(ARRAYS)
    second = spill.put({"more": np.full(3, 7, np.int8)})
    assert list(first) == list(ARRAYS)
    assert len(first) == 3
    with ThreadPoolExecutor(4) as pool:
        for arrays in pool.map(lambda _: dict(first), range(20)):
            for name, array in ARRAYS.items():
                assert arrays[name].dtype == array.dtype
                np.testing.assert_array_equal(arrays[name], array)
    assert second["more"].tolist() == [7, 7, 7]
    with pytest.raises(KeyError):
        first["more"]


def test_the_file_has_no_name_and_ends_with_its_last_reader(tmp_path):
    stored = Spill(tmp_path).put(ARRAYS)
    gc.collect()
    assert list(tmp_path.iterdir()) == []
    assert any(str(tmp_path) in name for name in open_files())
    assert stored["bytes"][-1] == 249
    del stored
    gc.collect()
    assert not any(str(tmp_path) in name for name in open_files())


def test_a_read_that_is_short_goes_on(tmp_path, monkeypatch):
    """Linux reads at most 2 GiB at once."""
    whole = os.preadv
    monkeypatch.setattr(
        os, "preadv", lambda file, buffers, place: whole(file, [buffers[0][:100]], place)
    )
    stored = Spill(tmp_path).put(ARRAYS)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(stored[name], array)


def test_a_file_that_was_cut_is_noticed(tmp_path):
    stored = Spill(tmp_path).put(ARRAYS)
    (number,) = [
        int(link.name)
        for link in Path("/proc/self/fd").iterdir()
        if str(tmp_path) in os.path.realpath(link)
    ]
    os.truncate(number, 100)
    with pytest.raises(RunError, match="250 bytes, found 100"):
        stored["bytes"]

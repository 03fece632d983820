"""A chain: what one line holds, who may read the file, and writers that take turns."""

import errno
import json
import os
from multiprocessing import get_context
from pathlib import Path

import pytest

from fedward.digests import digest
from fedward.errors import RunError
from fedward.storage.chain import Chain, check_end, checked, read
from fedward.storage.lock import locked

START = "the first"


def written(path: Path, count: int) -> Chain:
    chain = Chain(path, START)
    for number in range(count):
        chain.add({"number": number})
    return chain


def numbers(path: Path) -> list[int]:
    return [row["number"] for row in checked(read(path)[0], START, path.name)]


def test_each_line_holds_the_hash_of_the_line_before(tmp_path):
    chain = written(tmp_path / "log.jsonl", 3)
    rows = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [row["seq"] for row in rows] == [1, 2, 3]
    assert [row["previous"] for row in rows] == [START, rows[0]["hash"], rows[1]["hash"]]
    for row in rows:
        assert row.pop("hash") == digest(row)
    assert chain.end == {"lines": 3, "last_hash": chain.last_hash}


def test_a_writer_goes_on_where_another_stopped(tmp_path):
    written(tmp_path / "log.jsonl", 2)
    written(tmp_path / "log.jsonl", 1)
    assert numbers(tmp_path / "log.jsonl") == [0, 1, 0]


def test_lines_before_the_first_wrong_one_are_yielded(tmp_path):
    written(tmp_path / "log.jsonl", 3)
    lines, _ = read(tmp_path / "log.jsonl")
    rows = checked([*lines[:2], lines[2].replace(b":2,", b":7,")], START, "log.jsonl")
    assert [next(rows)["number"], next(rows)["number"]] == [0, 1]
    with pytest.raises(RunError, match=r"log\.jsonl, line 3: .*the line was changed"):
        next(rows)


def test_an_end_kept_elsewhere_reveals_cut_or_forged_lines(tmp_path):
    end = written(tmp_path / "log.jsonl", 3).end
    written(tmp_path / "other.jsonl", 2)
    check_end(read(tmp_path / "log.jsonl")[0], end, "log.jsonl", "a copy")
    with pytest.raises(RunError, match=r"line 3: expected 3 lines, as a copy says, found 2"):
        check_end(read(tmp_path / "other.jsonl")[0], end, "log.jsonl", "a copy")
    Chain(tmp_path / "other.jsonl", START).add({"number": 8})
    with pytest.raises(RunError, match="the log was rewritten"):
        check_end(read(tmp_path / "other.jsonl")[0], end, "log.jsonl", "a copy")


def test_half_a_line_is_quoted_by_a_line_in_its_place(tmp_path):
    path = tmp_path / "log.jsonl"
    written(path, 1)
    with path.open("ab") as file:
        file.write(b'{"numb')
    written(path, 1)
    rows = list(checked(read(path)[0], START, path.name))
    assert [row.get("torn") for row in rows] == [None, '{"numb', None]


def test_a_line_that_the_disk_refused_once_it_was_in_the_file_is_followed(tmp_path, monkeypatch):
    path = tmp_path / "log.jsonl"
    chain = written(path, 1)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            chain.add({"number": 1})
    chain.add({"number": 2})
    assert numbers(path) == [0, 1, 2]


def test_a_chain_is_for_its_owner_alone_whatever_the_umask(tmp_path):
    path = tmp_path / "log.jsonl"
    before = os.umask(0)
    try:
        written(path, 1)
        modes = [path.stat().st_mode & 0o777]
        with path.open("ab") as file:
            file.write(b"half")
        written(path, 1)
    finally:
        os.umask(before)
    assert [*modes, path.stat().st_mode & 0o777] == [0o600, 0o600]


def _add(path: Path, count: int) -> None:
    for number in range(count):
        with locked(path):
            Chain(path, START).add({"number": number})


def test_processes_that_lock_the_file_make_one_chain(tmp_path):
    path = tmp_path / "new" / "log.jsonl"
    processes = get_context("fork")
    writers = [processes.Process(target=_add, args=(path, 20)) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sorted(numbers(path)) == sorted([*range(20)] * 4)

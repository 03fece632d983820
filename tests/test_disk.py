"""Files that take the place of others; devices and pipes, which belong to everybody, stay."""

import os
import stat
from pathlib import Path

import pytest

from fedward.disk import append, make_new_folder, replacing
from fedward.errors import ConfigError
from fedward.inference.whole import appears_whole, require_own_place


@pytest.mark.parametrize("writing", [replacing, appears_whole])
def test_a_pipe_is_not_replaced(tmp_path, writing):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="a device or a pipe"), writing(pipe) as partial:
        partial.write_text("{}")
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("place", ["/dev/null", "/dev/full"])
def test_a_command_writes_to_no_device(tmp_path, place):
    with pytest.raises(ConfigError, match="expected a file to write, found a device or a pipe"):
        require_own_place(Path(place), tmp_path, [])


def test_a_command_writes_to_no_place_below_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"folder that can be written, found .*/file, which is"):
        require_own_place(tmp_path / "file" / "new" / "a.csv", tmp_path / "run", [])
    require_own_place(tmp_path / "new" / "newer" / "a.csv", tmp_path / "run", [])
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_file_is_replaced_whole(tmp_path):
    file = tmp_path / "file"
    file.write_text("old")
    with replacing(file) as partial:
        partial.write_text("new")
        assert file.read_text() == "old"
    assert file.read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("kind", ["link", "dangling", "pipe"])
def test_nothing_is_added_to_a_link_or_a_pipe(tmp_path, kind):
    file = tmp_path / "file"
    target = tmp_path / "target"
    if kind == "pipe":
        os.mkfifo(file)
    else:
        file.symlink_to(target)
        if kind == "link":
            target.write_text("mine")
    with pytest.raises(OSError, match="it is a link, a pipe or a device, and not a file"):
        append(file, b"line\n")
    assert (target.read_text() if target.exists() else "") == ("mine" if kind == "link" else "")
    assert target.exists() == (kind == "link")


def test_lines_are_added_to_a_file_in_a_linked_folder(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    for line in (b"1\n", b"2\n"):
        append(tmp_path / "link" / "file", line, 0o600)
    assert (tmp_path / "folder" / "file").read_text() == "1\n2\n"
    assert stat.S_IMODE((tmp_path / "folder" / "file").stat().st_mode) == 0o600


@pytest.mark.parametrize("kind", ["link", "dangling", "file", "folder", "nothing"])
def test_a_new_folder_takes_the_place_of_what_is_there(tmp_path, kind):
    folder = tmp_path / "folder"
    target = tmp_path / "target"
    if kind != "dangling":
        target.mkdir()
        (target / "mine").touch()
    if kind in ("link", "dangling"):
        folder.symlink_to(target)
    elif kind == "file":
        folder.touch()
    elif kind == "folder":
        (folder / "deep").mkdir(parents=True)
    make_new_folder(folder)
    assert folder.is_dir()
    assert not folder.is_symlink()
    assert list(folder.iterdir()) == []
    assert (target / "mine").exists() == (kind != "dangling")


def test_writers_with_marks_do_not_share_a_partial_file(tmp_path):
    file = tmp_path / "file"
    with replacing(file, ".1") as first, replacing(file, ".2") as second:
        first.write_text("first")
        second.write_text("second")
    assert file.read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_file_that_was_not_written_to_its_end_is_removed(tmp_path, error):
    file = tmp_path / "file"
    file.write_text("old")

    def write_half() -> None:
        with replacing(file, ".1") as partial:
            partial.write_text("ne")
            raise error

    with pytest.raises(error):
        write_half()
    assert file.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]

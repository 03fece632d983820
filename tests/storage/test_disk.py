"""Files that take the place of others; devices and pipes, which belong to everybody, stay."""

import os
import stat
from pathlib import Path

import pytest

from fedward.errors import ConfigError
from fedward.inference.whole import require_own_place, whole
from fedward.storage.disk import replacing


@pytest.mark.parametrize("writing", [replacing, whole])
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


def test_a_file_is_replaced_whole(tmp_path):
    file = tmp_path / "file"
    file.write_text("old")
    with replacing(file) as partial:
        partial.write_text("new")
        assert file.read_text() == "old"
    assert file.read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]

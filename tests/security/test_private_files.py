"""Which files a site relies on: whose they may be, and what others may do with them."""

import os
import stat

import pytest

from fedward import private

HERE = os.geteuid()
STRANGER = HERE + 1000
FILE = stat.S_IFREG


def status(mode: int, owner: int = HERE) -> os.stat_result:
    """Return what the operating system would say of a file or folder."""
    return os.stat_result((mode, 0, 0, 1, owner, 0, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("standard", "mode", "fault"),
    [
        (private.SECRET, 0o600, ""),
        (private.SECRET, 0o640, "mode 0640"),
        (private.SECRET, 0o601, "mode 0601"),
        (private.RECORD, 0o644, ""),
        (private.RECORD, 0o660, "mode 0660"),
        (private.RECORD, 0o602, "mode 0602"),
        (private.RULES, 0o664, ""),
        (private.RULES, 0o646, "mode 0646"),
    ],
)
def test_what_others_may_do_with_a_file(standard, mode, fault):
    assert private.fault(status(FILE | mode), standard) == fault


def test_a_record_is_of_this_account_or_of_root():
    assert private.fault(status(FILE | 0o600, 0), private.RECORD) == ""
    found = private.fault(status(FILE | 0o600, STRANGER), private.RECORD)
    assert found == f"one of account {STRANGER}"


def test_an_administrators_rules_and_the_secret_that_root_examines_may_be_of_another():
    for standard in (private.RULES, private.SECRET):
        assert private.fault(status(FILE | 0o600, STRANGER), standard) == ""


@pytest.mark.parametrize("standard", [private.SECRET, private.RECORD, private.RULES])
def test_a_link_is_never_what_it_leads_to(standard, tmp_path):
    assert private.fault(status(stat.S_IFLNK | 0o600), standard) == "a link"
    (tmp_path / "file").touch(0o600)
    (tmp_path / "link").symlink_to("file")
    with pytest.raises(OSError, match="a link"):
        private.read(tmp_path / "link", standard)


def test_only_the_content_of_a_plain_file_is_read(tmp_path):
    (tmp_path / "file").write_bytes(b"\x00\xff")
    (tmp_path / "file").chmod(0o600)
    assert private.read(tmp_path / "file", private.SECRET) == b"\x00\xff"
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(OSError, match="a pipe or a device"):
        private.read(tmp_path / "pipe", private.SECRET)
    with pytest.raises(IsADirectoryError):
        private.read(tmp_path, private.SECRET)
    with pytest.raises(FileNotFoundError):
        private.read(tmp_path / "none", private.SECRET)


def test_a_private_file_is_replaced_by_one_that_its_owner_alone_reads(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"old")
    file.chmod(0o644)
    with file.open("rb") as reader:
        with private.replacing(file) as new:
            new.write(b"new")
            new.flush()
            assert file.read_bytes() == b"old"
        assert reader.read() == b"old"
    assert file.read_bytes() == b"new"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_private_file_follows_no_link(tmp_path):
    (tmp_path / "precious").write_bytes(b"mine")
    for name in ("file", f"file.{os.getpid()}.partial"):
        (tmp_path / name).symlink_to("precious")
    with private.replacing(tmp_path / "file") as new:
        new.write(b"new")
    assert (tmp_path / "precious").read_bytes() == b"mine"
    assert (tmp_path / "file").read_bytes() == b"new"
    assert not (tmp_path / "file").is_symlink()


def test_processes_that_write_a_private_file_at_once_do_not_share_a_partial_one(
    tmp_path, monkeypatch
):
    file = tmp_path / "file"
    with private.replacing(file) as first:
        with monkeypatch.context() as other_process:
            other_process.setattr(os, "getpid", lambda: 1)
            with private.replacing(file) as second:
                second.write(b"second")
        first.write(b"first")
    assert file.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [file]

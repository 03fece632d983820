"""Machines as they are: users without a name, paths with spaces, streams without umlauts."""

import argparse
import errno
import getpass
import io
import os
import pwd
import sys
from pathlib import Path

import pytest

import fedward
from fedward import cli
from fedward.config import Experiment
from fedward.console.console import Console
from fedward.console.listener import Start
from fedward.console.live_line import live_line
from fedward.console.progress import Progress, State
from fedward.errors import ConfigError
from fedward.flare.plain_paths import is_plain, plain_path
from fedward.storage.rows import RoundRow
from fedward.terminal import columns, encodable, printing_safely

USER_VARIABLES = ("LOGNAME", "USER", "LNAME", "USERNAME")


def no_user(number: int) -> pwd.struct_passwd:
    raise KeyError(f"getpwuid(): uid not found: {number}")


@pytest.fixture
def nameless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process whose environment names no user."""
    for name in USER_VARIABLES:
        monkeypatch.setenv(name, "")


def test_a_user_without_an_entry_gets_a_name(
    nameless: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pwd, "getpwuid", no_user)
    with pytest.raises((KeyError, OSError)):
        getpass.getuser()
    fedward._name_the_user()
    assert getpass.getuser() == f"uid-{os.getuid()}"


def test_a_user_with_an_entry_keeps_its_name(nameless: None) -> None:
    name = getpass.getuser()
    fedward._name_the_user()
    assert (getpass.getuser(), os.environ["USER"]) == (name, "")


def test_characters_that_an_encoding_lacks_are_written_as_in_ascii() -> None:
    text = "fedward · 32px … ± ü"
    assert encodable(text, "ascii") == "fedward - 32px ... +/- \\xfc"
    assert encodable(text, "latin-1") == "fedward · 32px ... ± ü"
    assert encodable(text, "utf-8") == encodable(text, None) == text


class Terminal(io.TextIOWrapper):
    """A terminal of one encoding."""

    def __init__(self, encoding: str) -> None:
        super().__init__(io.BytesIO(), encoding=encoding, write_through=True)

    def isatty(self) -> bool:
        return True

    def text(self) -> str:
        return self.buffer.getvalue().decode(self.encoding)  # type: ignore[attr-defined]


class Working(Progress):
    """A progress whose line is longer than any terminal here."""

    def state(self) -> State:
        return State("round 1/2 " * 20, 0.5)


def printed_run(columns: int, encoding: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what a terminal gets of a round, without the sequences of the line below."""
    terminal = Terminal(encoding)
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    row = RoundRow(
        round=1,
        part=0,
        seconds=1.0,
        asked=["site-1"],
        replied=["site-1"],
        failed={},
        bytes_down=1,
        bytes_up=1,
        peer_models=0,
    )
    with printing_safely(), live_line(Working()):
        console = Console()
        console.header(Start(Experiment(method="fedavg"), ["site-1"], rounds=2))
        console.round(row, kept=0.93)
        console.evaluated(1, {"site-1": 0.5})
    lines = terminal.text().replace("\r", "\n").splitlines()
    return [line.rsplit("\x1b[2K")[-1] for line in lines if "round 1/2" not in line]


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_a_run_fits_a_terminal_of_forty_columns(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = printed_run(40, encoding, monkeypatch)
    assert "    1     1/1 0.500 [0.500, 0.500] 0.93" in lines
    assert max(len(line) for line in lines if "\x1b" not in line) <= 40


def test_a_wide_terminal_has_all_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    row = "     1      1.0      1/1  0.500 [0.500, 0.500]  0.93       0.0       0.0"
    assert row in printed_run(120, "utf-8", monkeypatch)
    monkeypatch.setenv("COLUMNS", "40")
    assert columns(io.StringIO()) == 80, "a file does not depend on the terminal"


ODD = ["a b", "a#b", "o'k", 'a"b', "a\\b"]


@pytest.mark.parametrize("name", [*ODD, "plain", "röntgen", "50%", "$HOME", "a;b"])
def test_the_simulator_gets_a_path_that_it_does_not_split(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    (folder / "file").write_text("content")
    with plain_path(folder) as path:
        assert is_plain(path)
        assert (path == folder) is (name not in ODD)
        assert (path / "file").read_text() == "content"
    assert (folder / "file").exists()
    assert path.exists() is (name not in ODD)


def test_a_temporary_folder_that_the_simulator_splits_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a b"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    with pytest.raises(ConfigError, match=r"temporary files.* splits paths at spaces.*Set TMPDIR"):
        plain_path(folder).__enter__()
    assert list(folder.iterdir()) == []


def test_a_machine_without_temporary_folder_is_told_what_to_set(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def report(*_: object) -> int:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr("fedward.operation.settings_command._settings", report)
    assert cli.main(["settings", "fedavg"]) == 1
    assert capsys.readouterr().err == (
        "fedward: This machine has no folder for temporary files that can be written. "
        "Set TMPDIR to one that can.\n"
    )


def test_a_name_that_the_locale_cannot_write_is_no_traceback(monkeypatch, capsys):
    def command(_):
        raise UnicodeEncodeError("ascii", "/data/Röntgen", 7, 8, "ordinal not in range(128)")

    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: "ascii")
    assert cli._run(argparse.Namespace(command=command)) == 1
    error = " ".join(capsys.readouterr().err.split())
    assert "R\\xf6ntgen" in error
    assert "Set PYTHONUTF8=1" in error

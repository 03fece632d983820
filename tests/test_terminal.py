"""Texts of others on a terminal."""

import io
import json
import sys
from pathlib import Path
from threading import Event

import pytest
from nvflare.fuel.hci.table import Table

from fedward.cli import main
from fedward.console.console import Console
from fedward.storage.info import Summary
from fedward.terminal import complain, line_below, one_line, printable, printing_safely
from finished_run import new_run
from tiny import tiny

HOSTILE = "\x1b]0;owned\x07\x1b[2Jgone\r\x9b31mred\u202etxt.exe\u2028\ud800"
WRITTEN_OUT = "\\x1b]0;owned\\x07\\x1b[2Jgone\\r\\x9b31mred\\u202etxt.exe\\u2028\\ud800"


def test_control_characters_are_written_out() -> None:
    assert printable(HOSTILE) == WRITTEN_OUT
    plain = "Jürgen · 皮膚 \u200d\n\ttab"
    assert printable(plain) == plain
    assert one_line(" a\nb\r\n\x1b\u2028c ") == "a b \x1b c"


@pytest.mark.proves(
    "lead",
    "escape codes in a job's name, in FLARE's own admin console",
    "**not covered**: FLARE prints names as they are; use `fedward status` to look at others' jobs",
)
def test_flares_console_prints_control_characters_as_they_are() -> None:
    table = Table(["JOB NAME"])
    shown = io.StringIO()
    table.add_row([HOSTILE])
    table.write(shown)
    assert "\x1b]0;owned\x07" in shown.getvalue()


def test_everything_printed_is_safe_and_the_streams_come_back(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = sys.stdout, sys.stderr
    with printing_safely():
        print(HOSTILE)
        sys.stderr.writelines(["a\x1b", "b\n"])
    assert (sys.stdout, sys.stderr) == before
    assert capsys.readouterr() == (f"{WRITTEN_OUT}\n", "a\\x1bb\n")


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def screen_of(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """Make standard output a terminal of 20 columns, on which a line is drawn anew every
    millisecond.
    """
    screen = Screen()
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setattr("fedward.terminal._TICK", 0.001)
    return screen


def drawn(screen: Screen) -> list[str]:
    """Return the lines that a reader sees in the end."""
    return [line.split("\r\x1b[K")[-1] for line in screen.getvalue().split("\n")]


def test_a_line_stays_below_what_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = screen_of(monkeypatch)
    seen = Event()

    def text() -> str:
        seen.set()
        return f"far too long {HOSTILE}"

    with printing_safely(), line_below(text):
        for row in ("one", "two"):
            seen.clear()
            assert seen.wait(60)
            print(row)
    assert drawn(screen) == ["one", "two", ""]
    assert "far too long \\x1b]0" in screen.getvalue(), (
        "19 columns, and nothing that steers the terminal"
    )
    assert "far too long \\x1b]0;" not in screen.getvalue()


def test_a_line_waits_until_a_row_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = screen_of(monkeypatch)
    seen = Event()
    with printing_safely(), line_below(lambda: seen.set() or "line"):  # type: ignore[func-returns-value]
        for _ in range(3):
            print("ro", end="")
            for _ in range(2):
                seen.clear()
                assert seen.wait(60)
            print("w")
    assert set(drawn(screen)) == {"row", ""}


def test_what_is_no_terminal_gets_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    with printing_safely(), line_below(lambda: pytest.fail("nobody sees it")):
        print("row")
    assert capsys.readouterr().out == "row\n"


def test_an_error_is_folded_on_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "a-long-name-is-kept-whole: found 1\nuse 2 or more"
    complain(text)
    assert capsys.readouterr().err == f"fedward: {text}\n"
    screen = screen_of(monkeypatch)
    monkeypatch.setattr("sys.stderr", screen)
    complain(text)
    rows = ["fedward:", "a-long-name-is-kept-whole:", "found 1", "use 2 or more", ""]
    assert screen.getvalue().split("\n") == rows


@pytest.mark.proves(
    "lead", "escape codes in a run's texts", "every command of fedward writes them out as text"
)
def test_a_runs_texts_cannot_steer_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = new_run(tmp_path / "run", tiny(), ["site-1"], "flare").path
    info = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**info, "summary": {"reason": HOSTILE}}))
    assert main(["status", str(run)]) == 0
    assert main(["status", str(tmp_path / "\x1b[31m")]) == 1
    out, err = capsys.readouterr()
    assert "\\x1b]0;owned\\x07" in out
    assert "\\x1b[31m" in err
    assert "\x1b" not in out + err
    Console().closing(run, Summary(reason=HOSTILE))
    assert "\x1b" not in capsys.readouterr().out

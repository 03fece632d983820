"""The line below a run's rows in a terminal."""

import io
import re
import subprocess
import sys
from collections.abc import Callable
from threading import Event

import pytest

from fedward.console import live_line as module
from fedward.console.live_line import live_line
from fedward.console.progress import Progress, State
from fedward.terminal import printing_safely

_SEQUENCE = re.compile(r"\x1b\[([0-9?]*)(?:;[0-9;]*)?([a-zA-Z])|[^\x1b]")


class Screen(io.StringIO):
    """A terminal that knows the few sequences rich sends: up, erase the line, colours, cursor."""

    def isatty(self) -> bool:
        return True

    def lines(self) -> list[str]:
        """Return the lines that a reader sees, down to the one with the cursor."""
        lines = [""]
        row = 0
        column = 0
        for sequence in _SEQUENCE.finditer(self.getvalue()):
            number, command = sequence[1], sequence[2]
            if command == "A":
                row -= int(number)
            elif command == "K":
                lines[row] = ""
            elif sequence[0] == "\r":
                column = 0
            elif sequence[0] == "\n":
                row += 1
                column = 0
                lines += [""] * (row == len(lines))
            elif command is None:
                lines[row] = lines[row][:column].ljust(column) + sequence[0]
                column += 1
        return lines[: row + 1]


class Told(Progress):
    """A progress that says what a test wants, and notes when it was asked."""

    def __init__(self, state: Callable[[], State]) -> None:
        super().__init__()
        self.read = Event()
        self._state = state

    def state(self) -> State:
        self.read.set()
        return self._state()

    def wait_until_drawn(self) -> None:
        """Wait until the line has been drawn once more."""
        for _ in range(2):  # the first may have been under way
            self.read.clear()
            assert self.read.wait(20)


def screen_of(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """Make standard output a terminal of 20 columns, in which the line is drawn all the time."""
    monkeypatch.setattr(module, "_REFRESHES_PER_SECOND", 1000.0)
    terminal = Screen()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "20")
    return terminal


def test_the_line_stays_below_rows_and_vanishes_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = screen_of(monkeypatch)
    progress = Told(lambda: State("half done", 0.5))
    with printing_safely(), live_line(progress):
        for row in ("one", "two"):
            progress.wait_until_drawn()
            print(row)
        progress.wait_until_drawn()
        assert "half done" in screen.lines()[-1]
    assert screen.lines() == ["one", "two", ""]


def test_the_line_is_cut_to_the_terminal_but_rows_stay_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = screen_of(monkeypatch)
    path = "/a/path/that/is/longer/than/the/terminal/is/wide"
    progress = Told(lambda: State("far too long for twenty columns", 0.5))
    with printing_safely(), live_line(progress):
        progress.wait_until_drawn()
        print(path)
        progress.wait_until_drawn()
    drawn = screen.getvalue()
    assert path in drawn
    assert "far t" in drawn
    assert "too long" not in drawn


@pytest.mark.parametrize("share", [0.5, None])
def test_names_in_the_line_cannot_steer_the_terminal(
    share: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = screen_of(monkeypatch)
    progress = Told(lambda: State("\x1b]0;x\x07[red]", share))
    with printing_safely(), live_line(progress):
        progress.wait_until_drawn()
        print("\x1b]0;x\x07[red]")
    assert "\x1b]" not in screen.getvalue()
    assert "\x07" not in screen.getvalue()
    assert "\\x1b]0" in screen.getvalue()
    assert screen.lines()[0] == "\\x1b]0;x\\x07[red]", "nor is a name read as markup"


def test_the_line_waits_until_a_row_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = screen_of(monkeypatch)
    progress = Told(lambda: State("line"))
    with printing_safely(), live_line(progress):
        for _ in range(3):
            print("ro", end="")
            progress.wait_until_drawn()
            print("w")
    assert screen.lines() == ["row", "row", "row", ""]


def test_colours_are_left_out_where_the_user_wants_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = screen_of(monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    progress = Told(lambda: State("line", 0.5))
    with printing_safely(), live_line(progress):
        progress.wait_until_drawn()
    colours = re.findall(r"\x1b\[(3[0-7]|9[0-7]|38;[0-9;]+)m", screen.getvalue())
    assert "line" in screen.getvalue()
    assert not colours


@pytest.mark.parametrize("term", ["dumb", None])
def test_a_terminal_that_cannot_erase_gets_no_line(
    term: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = screen_of(monkeypatch)
    if term is None:
        monkeypatch.delenv("TERM")
    else:
        monkeypatch.setenv("TERM", term)
    with printing_safely(), live_line(Told(lambda: pytest.fail("nobody sees it"))):
        print("row")
    assert screen.getvalue() == "row\n"


def test_a_pipe_gets_plain_rows_and_imports_no_rich() -> None:
    code = """
import sys
from fedward.console.console import Console
from fedward.console.live_line import live_line
from fedward.console.progress import Progress
from fedward.terminal import printing_safely
progress = Progress()
with printing_safely(), live_line(progress):
    Console(progress=progress).waiting({})
print("rich" in sys.modules)
"""
    command = [sys.executable, "-c", code]
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    assert finished.stdout == "       no site waits for approval any more\nFalse\n"

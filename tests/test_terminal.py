"""Texts of others on a terminal."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from nvflare.fuel.hci.table import Table

from fedward.cli import main
from fedward.console.console import Console
from fedward.lab.run_check import folded
from fedward.storage.info import Summary
from fedward.terminal import complain, fold, hanging, one_line, printable, printing_safely
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
    "escape codes in a job's name, in FLARE's own console",
    "**not covered**: FLARE prints them; use `fedward status` for others' jobs",
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


@pytest.mark.proves(
    "lead", "escape codes in a run's texts", "every fedward command writes them out as text"
)
def test_an_error_that_nobody_handles_is_safe() -> None:
    code = (
        "from fedward.terminal import printing_safely\n"
        "with printing_safely():\n"
        f"    raise KeyError('a key') from ValueError({HOSTILE!r})\n"
    )
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ended.returncode == 1
    first, *_, last = ended.stderr.splitlines()
    assert (first, last) == (f"ValueError: {WRITTEN_OUT}", "KeyError: 'a key'")
    assert "\x1b" not in ended.stderr


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def test_an_error_is_folded_on_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "a-long-name-is-kept-whole: found 1\nuse 2 or more"
    complain(text)
    assert capsys.readouterr().err == f"fedward: {text}\n"
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("COLUMNS", "20")
    complain(text)
    assert screen.getvalue().splitlines() == [
        "fedward:",
        "  a-long-name-is-kept-whole:",
        "  found 1",
        "use 2 or more",
    ]


def test_paths_quotes_and_commands_stay_whole_where_lines_are_folded(tmp_path: Path) -> None:
    folder = tmp_path / "my data" / "of the ward"
    folder.mkdir(parents=True)
    command = f"fedward partition '{folder}' --sites 4 --out sites"
    text = f"2 things must be fixed:\n  1. {folder}: not 'what it was', at all\n{command}"
    lines = hanging(text, 30).splitlines()
    assert lines == [
        "2 things must be fixed:",
        "  1.",
        f"    {folder}:",
        "    not 'what it was', at all",
        command,
    ]
    assert hanging(text, 1000) == text


def test_a_command_between_backticks_gets_a_line_of_its_own() -> None:
    command = "`fedward run --resume runs/p1 --site-files sites`"
    text = f"It has stopped: continue it with {command}, or name another run-folder."
    assert fold(text, 40, "- ", "  ") == [
        "- It has stopped: continue it with",
        f"  {command},",
        "  or name another run-folder.",
    ]
    assert fold("Change it with --set data.views=colour, or --pooled.", 23) == [
        "Change it with",
        "--set data.views=colour,",
        "or --pooled.",
    ]
    assert fold("") == []
    assert fold("\n".join(["abcdef"] * 30)) == fold(" ".join(["abcdef"] * 30))
    assert fold("a\0b") == ["a\\x00b"]
    for indent in (18, 90):
        text = hanging(indent * " " + 100 * "x", 20)
        assert text.replace("\n", "").replace(" ", "") == 100 * "x"
    long = 90 * "x"
    assert fold(f"c: {long}", 60, "  ", "    ") == ["  c:", f"    {56 * 'x'}", f"    {34 * 'x'}"]
    assert fold(f"c: '{long}' /{long}", 60) == ["c:", f"'{long}'", f"/{long}"]


def test_paragraphs_are_as_narrow_as_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "validation: all 2 classes at each of 2 sites; no round can be chosen as the best"
    row = f"site{'labelled':>11}{'unlabelled':>11}{'val':>11}{'test':>11}"
    assert folded(f"{row}\n{text}") == f"{row}\n{text}"
    monkeypatch.setattr("sys.stdout", Screen())
    monkeypatch.setenv("COLUMNS", "40")
    assert fold(text) == [
        "validation: all 2 classes at each of 2",
        "sites; no round can be chosen as the",
        "best",
    ]
    assert folded(f"{row}\n{text}").splitlines() == [row, *fold(text, 40, others="  ")]


def refusal(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Return what argparse says of arguments."""
    with pytest.raises(SystemExit):
        main(arguments)
    return capsys.readouterr().err.splitlines()[-1].partition("argument ")[2]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ["predict", "run", "images", "--out", "x.csv", "--refer-below", "0,8"],
            "--refer-below: expected a number from 0 to 1 with a decimal point, such as 0.5, "
            "found 0,8",
        ),
        (
            ["predict", "run", "images", "--out", "x.csv", "--refer-below", "0"],
            "--refer-below: expected a number above 0 and at most 1, found 0",
        ),
        (
            ["partition", "x.csv", "--out", "x", "--labelled", "1.2"],
            "--labelled: expected a number from 0 to 1 with a decimal point, such as 0.5, "
            "found 1.2",
        ),
        (
            ["partition", "x.csv", "--out", "x", "--dirichlet", "nan"],
            "--dirichlet: expected a number, such as 0.5, found nan",
        ),
        (["run", "fedavg", "--sites", "two"], "--sites: expected a whole number, found two"),
    ],
)
def test_what_is_no_number_is_refused_with_what_is_expected(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    hint = f"`fedward {arguments[0]} --help` says what there is."
    assert refusal(arguments, capsys) == f"{text}. {hint}"


@pytest.mark.proves(
    "lead", "escape codes in a run's texts", "every fedward command writes them out as text"
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

"""The pages on the four papers: every command parses, and what it names exists."""

import argparse
import json
import re
import shlex
from pathlib import Path

import pytest

from fedward import cli
from fedward.jobs import load_experiment
from fedward.lab.bench.study_file import read_study
from fedward.methods import method_of
from fedward.paper_jobs import PAPER_JOBS, SUFFIX

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "docs" / "papers.md", *sorted((ROOT / "docs" / "papers").glob("*.md"))]
STUDY = ROOT / "benchmarks" / "studies" / "papers.json"
CODE = re.compile(r"`([^`]+)`")


def commands_on(page: Path) -> list[str]:
    """Return the commands in code spans and in indented lines, but no mere names of commands."""
    text = page.read_text(encoding="utf-8")
    spans = [span.replace("\n", " ") for span in CODE.findall(text)]
    indented = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    codes = [*spans, *indented]
    return [code for code in codes if code.startswith("fedward ") and len(code.split()) > 2]


def rows_on(page: Path) -> set[str]:
    """Return the names in the last cell of each line of the tables whose last column is *row*."""
    names: set[str] = set()
    has_rows = False
    for line in page.read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            has_rows = False
            continue
        last_cell = line.rstrip("| ").rpartition("|")[2].strip()
        if last_cell == "row":
            has_rows = True
        elif has_rows and line.rstrip().endswith("` |"):
            names.update(CODE.findall(last_cell))
    return names


def parsed(command: str) -> argparse.Namespace:
    words = shlex.split(command)[1:]
    return cli._parser(words).parse_args(words)


COMMANDS = sorted({command for page in PAGES for command in commands_on(page)})


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_papers_parses(command: str) -> None:
    options = parsed(command)
    subcommand = command.split()[1]
    if subcommand == "run":
        job = f"{options.job}{SUFFIX}" if options.paper else options.job
        method_of(load_experiment(job, options.set))
        if options.paper:
            assert options.job in PAPER_JOBS
    elif subcommand == "settings":
        load_experiment(options.job)
    elif subcommand == "bench":
        study = read_study(ROOT / options.study)
        assert set(options.rows) <= study.rows.keys()
    else:
        assert subcommand in {"evaluate", "partition", "predict", "report", "survey"}


def test_a_wrong_command_would_be_found() -> None:
    with pytest.raises(SystemExit):
        parsed("fedward run fedperl --papers")


def test_the_pages_name_every_row_of_the_papers_study() -> None:
    rows = set().union(*(rows_on(page) for page in PAGES))
    assert rows == json.loads(STUDY.read_text(encoding="utf-8"))["rows"].keys()


def test_the_pages_have_the_command_of_every_papers_job() -> None:
    runs = [parsed(command) for command in COMMANDS if command.startswith("fedward run ")]
    assert {options.job for options in runs if options.paper} == PAPER_JOBS.keys()

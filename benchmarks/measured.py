"""Lines of JSON that a benchmark keeps of what it measured, and tables that pages have of them.

A line has a cell, which says what decides it, and what came out. It also names the commit and the
versions that measured it. A table stands between the comments ``<!-- measured NAME -->`` and
``<!-- end NAME -->``.
"""

import argparse
import json
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

import fedward
from fedward.digests import canonical
from fedward.errors import ConfigError

ROOT = Path(__file__).parent.parent
KEPT = ROOT / "docs" / "results" / "data" / "measured"
"""Folder of the lines that pages show."""
MEASURED_BY = ("benchmarks", "custom", "jobs")
"""Folders of the repository whose files decide what a measurement gives."""


@dataclass(frozen=True)
class Line:
    """What was measured of one cell."""

    cell: Mapping[str, Any]
    """What decides it, such as settings and a seed; a file has one line for each."""
    outcome: Mapping[str, Any]
    """What came out: counts and values, none of them a mean over cells."""
    measured_by: Mapping[str, str]
    """``commit`` of the repository, and versions of ``fedward`` and ``torch``."""


class Measurement(ABC):
    """What a benchmark measures, cell by cell, and which tables show it."""

    name: str
    """Stem of the file of its lines."""

    @abstractmethod
    def cells(self) -> list[dict[str, Any]]:
        """Return all cells, in the order of their lines."""

    @abstractmethod
    def measure(self, cell: Mapping[str, Any]) -> dict[str, Any]:
        """Return what came out of one cell. It runs in another process."""

    @abstractmethod
    def tables(self, lines: Sequence[Line]) -> dict[str, str]:
        """Return name -> table in markdown, from the lines of all cells."""


def read_lines(file: Path) -> list[Line]:
    """Return the lines of a file; none if there is no file."""
    texts = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [Line(**json.loads(text)) for text in texts]


def lines_of(measurement: Measurement, file: Path) -> list[Line]:
    """Return the kept lines of a measurement's cells, in their order.

    Lines of other cells, such as those of earlier settings, are left out.

    Raises:
        ConfigError: a cell has no line.
    """
    kept = {canonical(line.cell): line for line in read_lines(file)}
    missing = [cell for cell in map(canonical, measurement.cells()) if cell not in kept]
    if missing:
        raise ConfigError(
            f"{file} has no line of {len(missing)} cells, such as {missing[0]}",
            f"Run `python benchmarks/{measurement.name}.py`.",
        )
    return [kept[canonical(cell)] for cell in measurement.cells()]


def measure_missing(measurement: Measurement, file: Path, processes: int) -> None:
    """Measure the cells that have no line, and append a line for each as soon as it is known.

    Args:
        measurement: what to measure.
        file: where lines are kept; its folder is made.
        processes: how many cells are measured at the same time, each on one core.
    """
    kept = {canonical(line.cell) for line in read_lines(file)}
    missing = [cell for cell in measurement.cells() if canonical(cell) not in kept]
    measured_by = _measured_by()
    file.parent.mkdir(parents=True, exist_ok=True)
    pool = ProcessPoolExecutor(
        processes,
        mp_context=get_context("spawn"),
        initializer=torch.set_num_threads,
        initargs=(1,),
    )
    with pool, file.open("a", encoding="utf-8") as lines:
        for cell, outcome in zip(missing, pool.map(measurement.measure, missing), strict=True):
            lines.write(f"{json.dumps(asdict(Line(cell, outcome, measured_by)))}\n")
            lines.flush()


def page_text(page: Path, tables: Mapping[str, str]) -> str:
    """Return a page's text with those of the tables that it has a place for.

    Args:
        page: markdown with the lines ``<!-- measured NAME -->`` and ``<!-- end NAME -->``; what is
            between them is replaced.
        tables: name -> table.

    Raises:
        ConfigError: the page has no place for any table, or one of two lines without the other.
    """
    text = page.read_text(encoding="utf-8")
    places = 0
    for name, table in tables.items():
        begin = f"<!-- measured {name} -->\n"
        end = f"<!-- end {name} -->\n"
        if text.count(begin) != text.count(end) or text.count(begin) > 1:
            raise ConfigError(
                f"page {page} does not have the lines {begin.strip()} and {end.strip()} once each",
                "Write both lines where the table belongs.",
            )
        if begin in text:
            before, _, rest = text.partition(begin)
            _, _, after = rest.partition(end)
            text = f"{before}{begin}\n{table}\n\n{end}{after}"
            places += 1
    if not places:
        raise ConfigError(
            f"page {page} has a place for none of the tables {', '.join(tables)}",
            "Write the lines `<!-- measured NAME -->` and `<!-- end NAME -->` into it.",
        )
    return text


def run(measurement: Measurement, description: str | None) -> None:
    """Carry out a benchmark's command: measure what is missing, or write pages.

    Args:
        measurement: what the benchmark measures.
        description: what ``--help`` says of it.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kept = KEPT / f"{measurement.name}.jsonl"
    parser.add_argument("--lines", type=Path, default=kept, help=f"default: {kept.name}")
    parser.add_argument("--processes", type=int, default=2, help="cells at once (default: 2)")
    parser.add_argument(
        "--page",
        type=Path,
        nargs="+",
        default=[],
        help="measure nothing, write the tables into these pages",
    )
    options = parser.parse_args()
    if not options.page:
        measure_missing(measurement, options.lines, options.processes)
    tables = measurement.tables(lines_of(measurement, options.lines))
    for page in options.page:
        page.write_text(page_text(page, tables), encoding="utf-8")
    if not options.page:
        print(*(f"{name}:\n\n{table}\n" for name, table in tables.items()), sep="\n")


def _measured_by() -> dict[str, str]:
    """Return what measures now; a commit whose files have changed is no commit."""
    commit = _git("rev-parse", "HEAD")
    if _git("status", "--porcelain", "--", *MEASURED_BY):
        commit = f"{commit} with changes"
    return {"commit": commit, "fedward": fedward.__version__, "torch": torch.__version__}


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

"""A site's own log of a run: reading it, and checking it by itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from fedward.client.request_check import Turns
from fedward.errors import RunError, WireError
from fedward.protocol.fields import RUN_ID
from fedward.storage import chain

Row: TypeAlias = Mapping[str, Any]
"""The content of one line of a log."""


@dataclass(frozen=True)
class SiteRecord:
    """A site's log of one run, in which nothing wrong was found."""

    file: Path
    """The log itself."""
    run: str
    """Id of the run."""
    rows: Sequence[Row]
    """Content of its lines, except of those that quote the half line that a crash left."""

    @property
    def sites(self) -> list[str]:
        """Names of the sites whose log it is: several if they share a folder."""
        return sorted({str(row["site"]) for row in self.rows})

    def place(self, row: Row) -> str:
        """Return which line of the log a row is, for errors."""
        return f"{self.file}, line {row['seq']}"

    def __str__(self) -> str:
        events = [row["event"] for row in self.rows]
        counts = ", ".join(
            f"{events.count(event)} {event}" for event in ("answered", "failed", "refused")
        )
        last_hash = self.rows[-1]["hash"]
        sites = ", ".join(self.sites)
        return f"{self.file}: {sites}, run {self.run}: {counts}; last hash {last_hash}"


def read_site_log(file: Path, run: str | None = None) -> SiteRecord:
    """Read a site's log, and check that its chain is whole and its answers are in order.

    Args:
        file: ``answers/<run id>.jsonl`` of a site's own folder, or a copy.
        run: id of the run that it must belong to; by default any.

    Raises:
        RunError: a line is wrong, and the error names the first such line; or the file is not a
            site's log, or belongs to another run.
    """
    lines, _ = chain.read(file)
    if not lines:
        raise _not_a_site_log(file, "nothing")
    run_id = _run_of(file, lines[0], run)
    rows: list[Row] = []
    turns_of_site: dict[Any, Turns] = {}
    for row in chain.checked(lines, run_id, str(file)):
        if "torn" in row:  # It quotes the half line that a crash left.
            continue
        try:
            if row["event"] == "answered":
                turns = turns_of_site.setdefault(row["site"], Turns())
                turns.check(row)
                turns.add(row)
        except WireError as error:
            expected = f"answers in turn: {error.expected}"
            raise chain.fault(str(file), row["seq"], expected, error.found) from error
        except (KeyError, TypeError) as error:
            expected = "a line as this version of fedward writes it"
            problem = f"{type(error).__name__}: {error}"
            raise chain.fault(str(file), row["seq"], expected, problem) from error
        rows.append(row)
    return SiteRecord(file, run_id, rows)


def _run_of(file: Path, first_line: bytes, run: str | None) -> str:
    """Return the run that a log starts from.

    Args:
        file: the log, for errors.
        first_line: its first line.
        run: id of the run that it must belong to; None: any.

    Raises:
        RunError: the line was not changed, but is of another kind of chain or of another run.
    """
    row = chain.parse(first_line)
    if row is None:
        # The line was changed, which the check of the chain says of any run.
        return run or ""
    # The first line of a chain has no line before it, and names the run instead.
    named_run = str(row.get("previous"))
    if not RUN_ID.fullmatch(named_run):
        raise _not_a_site_log(file, "something else in line 1")
    if run and named_run != run:
        raise _not_a_site_log(file, f"one of run {named_run}")
    return named_run


def _not_a_site_log(file: Path, found: str) -> RunError:
    """Return the error about a file that is not a site's log of the run."""
    return RunError(
        f"site's log {file}",
        expected="a site's answers in this run",
        found=found,
        remedy="Ask a site for answers/<run id>.jsonl of its own folder; the id is in run.json.",
    )

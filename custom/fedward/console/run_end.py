"""The last lines about a finished run, which most readers look at first."""

from pathlib import Path

from fedward.runs.judge import judge
from fedward.runs.outcome import Outcome, outcome
from fedward.runs.run import Run
from fedward.runs.verdict_words import in_short
from fedward.storage.info import read_info
from fedward.storage.outputs import REPORT
from fedward.terminal import fold, printable
from fedward.text import count


def last_lines(folder: Path) -> list[str]:
    """Return the test value of a finished run, its verdict, and the link to its report.

    Lines are as wide as the terminal, or 80 columns; the link stays whole, however long. What a
    run does not have is left out: a survey has no test value, and a run without test images no
    verdict.

    Args:
        folder: of the run.

    Raises:
        RunError: it holds no run, or a file of it cannot be read.
    """
    test = outcome(folder, read_info(folder).summary)
    lines = list[str]()
    if test:
        lines += fold(printable(value_line(test)))
        lines += fold(printable(verdict_line(folder, test)))
    link = report_line(folder)
    if link:
        lines.append(link)
    return lines


def value_line(test: Outcome) -> str:
    """Return the metric on test images, the round, and how many sites and images it is of."""
    images = f"mean of {count(test.sites, 'site')}, {test.tested}"
    return f"test: {test.metric} {test.value:.3f} after round {test.round} ({images})"


def verdict_line(folder: Path, test: Outcome) -> str:
    """Return the verdict's first sentence, with the number that it follows from; may be empty."""
    verdict = judge(Run.load(folder))
    if verdict is None:
        return ""
    title = "verdict on synthetic images" if test.synthetic else "verdict"
    return f"{title}: {in_short.lead(verdict)} {in_short.line(verdict)}".strip()


def report_line(folder: Path) -> str:
    """Return the link to a run's report, which a browser opens; empty if there is no report."""
    report = folder / REPORT
    return f"report: {report.resolve().as_uri()}" if report.exists() else ""

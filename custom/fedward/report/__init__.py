"""What a person reads: the console during a run, and one self-contained HTML file afterwards."""

from collections.abc import Sequence
from pathlib import Path

from fedward.report.run import Run

__all__ = ["Run", "write_report"]


def write_report(folder: Path, compare: Sequence[Path] = ()) -> Path:
    """Write ``report.html`` into a run folder and return its path.

    The page needs no network, no scripts and no other file. It shows what the folder holds so far, so a running,
    killed or failed run has a report too.

    Args:
        folder: the run folder.
        compare: other run folders, set beside this one in a table and a figure.

    Raises:
        RunError: a folder is no run folder, or a file in it is broken.
    """
    from fedward.report.page import render  # here, because figures need matplotlib and a console does not

    page = render(Run.load(folder), [Run.load(other) for other in compare])
    path = folder / "report.html"
    partial = path.with_name(path.name + ".partial")
    partial.write_text(page, encoding="utf-8")
    partial.replace(path)
    return path

"""What a person reads after a run: self-contained HTML pages, written from its folder alone."""

import logging
from collections.abc import Sequence
from pathlib import Path

from fedward.disk import own_mark, replacing
from fedward.registry import SURVEY
from fedward.runs.run import Run
from fedward.storage.outputs import REPORT, SHEET

__all__ = ["Run", "write_report"]


def write_report(folder: Path, compare: Sequence[Path] = ()) -> Path:
    """Write the pages of a run into its folder; return the path of ``report.html``.

    Beside it is ``clinician.html``; a survey has ``report.html`` alone. The pages need no network
    and no other file. The report's one script sorts tables and shows values under the pointer; its
    policy admits no other. The pages show what the folder holds so far, so a running, killed or
    failed run has them, too.

    Args:
        folder: the run folder.
        compare: other run folders, set beside this one in a table and a figure.

    Raises:
        RunError: a folder is not a run folder, or a file in it is broken.
    """
    # matplotlib would warn among a run's rows that a user without a home has no folder for caches.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    # The pages import matplotlib, which takes long and which a refused folder does not need.
    from fedward.report.page import render
    from fedward.report.sheet import render_sheet
    from fedward.report.survey import of_run, render_survey

    run = Run.load(folder)
    if run.info.method == SURVEY:
        pages = {REPORT: render_survey(of_run(run))}
    else:
        others = [Run.load(other) for other in compare]
        pages = {REPORT: render(run, others), SHEET: render_sheet(run, others)}
    for name, page in pages.items():
        # Of this process alone: a run may write its report while a person does.
        with (
            replacing(folder / name, own_mark()) as partial,
            partial.open("x", encoding="utf-8") as file,
        ):
            file.write(page)
    return folder / REPORT

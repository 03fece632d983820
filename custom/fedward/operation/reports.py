"""A run's report, made anew."""

from collections.abc import Sequence
from pathlib import Path

from fedward.report import write_report
from fedward.storage.audit import LOG
from fedward.storage.lock import is_held, sole_writer
from fedward.storage.run_folder import RunFolder


def rewrite_report(folder: Path, compare: Sequence[Path] = ()) -> Path:
    """Write ``report.html`` as :func:`~fedward.report.write_report`; the audit log of a run that
    has ended says so.

    A run that goes on keeps its log to itself: at its end the report is written again.
    """
    page = write_report(folder, compare)
    if (folder / LOG).exists() and not is_held(folder):
        with sole_writer(folder):
            run = RunFolder.reopen(folder)
            if run.info.status != "running":
                run.report(lambda _: None)
    return page

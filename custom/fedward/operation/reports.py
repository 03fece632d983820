"""Writing a run's report again."""

from collections.abc import Sequence
from pathlib import Path

from fedward.report import write_report
from fedward.storage.audit import LOG
from fedward.storage.lock import is_held, sole_writer
from fedward.storage.run_folder import RunFolder


def rewrite_report(folder: Path, compare: Sequence[Path] = ()) -> Path:
    """Write ``report.html`` as :func:`~fedward.report.write_report` does, and return its path.

    The audit log of a run that has ended gets a line about it. The log of a run that goes on
    belongs to the run's process, which writes the report again at the end.
    """
    page = write_report(folder, compare)
    if (folder / LOG).exists() and not is_held(folder):
        with sole_writer(folder):
            run = RunFolder.reopen(folder)
            if run.info.status != "running":
                run.report(lambda _: None)
    return page

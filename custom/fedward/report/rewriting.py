"""Writing a run's report again."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from fedward.errors import RunError
from fedward.report import write_report
from fedward.storage.audit import LOG
from fedward.storage.info import read_info
from fedward.storage.lock import sole_writer
from fedward.storage.run_folder import RunFolder

_PATIENCE = 10.0
"""Seconds to wait for a run that is writing its own report."""


def rewrite_report(folder: Path, compare: Sequence[Path] = ()) -> Path:
    """Write ``report.html`` as :func:`~fedward.report.write_report` does, and return its path.

    The audit log of a run that has ended gets a line about it. The log of a run that goes on
    belongs to the run's process, which writes the report again at the end.
    """
    before = read_info(folder)
    page = write_report(folder, compare)
    if not (folder / LOG).exists() or read_info(folder).status == "running":
        return page
    try:
        with sole_writer(folder, _PATIENCE):
            run = RunFolder.reopen(folder)
            if run.info.status != "running":
                # A run that has ended in the meantime is not the one that the page shows.
                is_stale = (run.info.status, run.info.ended) != (before.status, before.ended)
                run.report(partial(write_report, compare=compare) if is_stale else lambda _: None)
    except RunError:
        # A run that is resumed goes on, and writes its report at its end.
        if read_info(folder).status != "running":
            raise
    return page

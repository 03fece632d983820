"""A filter for the server's ``error_log.txt``, so that each line in it deserves attention."""

import logging
import re

_QUESTION = re.compile(
    r"SCH=server_command STP=(get_run_info|show_stats|get_errors) .*"
    r"cannot send to 'server\.[^']+': target_unreachable"
)
"""FLARE's error about a question to a job's process that has not connected yet."""


class JobsThatStart(logging.Filter):
    """Omits records of questions to a job's process that has not connected yet.

    The server knows a job's process from the moment in which it is started. A question about the
    job's progress, as ``fedward status`` asks it, goes to that process, and FLARE 2.9 logs an error
    for each question until the process has connected, some seconds later. FLARE logs the same for
    a process that was killed, about which the launcher writes more.

    The server kit's ``log_config.json.default`` names this filter for the handler of errors alone:
    ``log.txt`` has all records.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record belongs in the log of errors."""
        return not _QUESTION.search(record.getMessage())

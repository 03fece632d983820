"""What a server's ``error_log.txt`` leaves out, so that a line in it is worth a look."""

import logging
import re

_QUESTION = re.compile(
    r"SCH=server_command STP=(get_run_info|show_stats|get_errors) .*cannot send to 'server\.[^']+': target_unreachable"
)


class JobsThatStart(logging.Filter):
    """Lets all records pass but those of a question to a job's process that has not connected yet.

    The server knows a job's process from the moment in which it is started. Whoever asks how far
    the job is, as ``fedward status`` does, asks that process, and FLARE 2.9 logs an error for each
    question until it has connected, some seconds later. The same record tells of a process that was
    killed, of which the launcher tells more.

    Stands in the server kit's ``log_config.json.default``, at the handler of errors alone:
    ``log.txt`` has all records.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record belongs into the log of errors."""
        return not _QUESTION.search(record.getMessage())

"""Filters of a kit's logs, which its ``log_config.json.default`` names."""

import logging
import re

from fedward.terminal import printable

_QUESTION = re.compile(
    r"SCH=server_command STP=(get_run_info|show_stats|get_errors) .*"
    r"cannot send to 'server\.[^']+': target_unreachable"
)
"""FLARE's error about a question to a job's process that has not connected yet."""


_NEXT_LINE = re.compile(r"\n(?! {4})")
"""The end of a line before one that is not indented."""


class OneEntryARecord(logging.Filter):
    """Escapes control characters of a record, and indents its lines after the first.

    Jobs, requests and answers bring texts that errors quote. Without this filter, such a text could
    write what looks like an entry of its own, or move the cursor of the terminal that shows it. All
    handlers of a kit have this filter. A record is changed for all of them by the first.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Change a record's text, and let it pass."""
        text = _text_of(record)
        if text is None:
            return True
        record.msg = _entry(text)
        record.args = None
        if record.exc_info and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = _entry(record.exc_text)
        return True


def _text_of(record: logging.LogRecord) -> str | None:
    """Return the text of a record; None if its values do not fit into it.

    The handler reports such a record. An error in a filter would end the code that logs.
    """
    try:
        return record.getMessage()
    except Exception:
        return None


def _entry(text: str) -> str:
    """Return a text as one entry; an entry stays as it is."""
    return _NEXT_LINE.sub("\n    ", printable(text))


class JobsThatStart(logging.Filter):
    """Omits records of questions to a job's process that has not connected yet.

    The server knows a job's process from the moment in which it is started. A question about the
    job's progress, as ``fedward status`` asks it, goes to that process, and FLARE 2.9 logs an error
    for each question until the process has connected, some seconds later. FLARE logs the same for
    a process that was killed, about which the launcher writes more.

    At the server, the handler of ``error_log.txt`` has this filter, so that each line in it
    deserves attention; ``log.txt`` has all records.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record belongs in the log of errors."""
        text = _text_of(record)
        return text is None or not _QUESTION.search(text)

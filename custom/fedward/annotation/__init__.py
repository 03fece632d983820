"""The answers of clinicians to a method's queries.

They are in a queue in the site's own folder. Clinicians answer on a local page, or in other
programs, which exchange files with the queue.

Nothing in here leaves the site. The federation writes requests and reads labels through
:class:`Queue`; at the same time ``fedward annotate SITE_FILE`` writes answers, in a process of its
own.
"""

from fedward.annotation.checks import OwnAgreement
from fedward.annotation.queue import Queue, queue_folder, queue_of
from fedward.annotation.records import (
    Agreement,
    Conflict,
    Decision,
    Imported,
    Refused,
    Remark,
    Request,
)
from fedward.annotation.rules import Rules

__all__ = [
    "Agreement",
    "Conflict",
    "Decision",
    "Imported",
    "OwnAgreement",
    "Queue",
    "Refused",
    "Remark",
    "Request",
    "Rules",
    "queue_folder",
    "queue_of",
]

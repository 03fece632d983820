"""What the client of a training and that of a survey have in common: how a request is answered."""

import logging
from typing import ClassVar

from fedward.client.admission import Admission
from fedward.client.site_data import DataSource
from fedward.client.site_log import SiteLog
from fedward.errors import DivergedError, FedwardError, RunError, WireError, WorkError
from fedward.methods.requirements import Requirements
from fedward.protocol.fields import RefusedError
from fedward.protocol.requests import Request
from fedward.protocol.wire import Message
from fedward.security.policy import JobRefusedError
from fedward.terminal import reason, shown
from fedward.training.learner import Aborted

_log = logging.getLogger(__name__)


class Respondent:
    """Answers the requests of one site in one job.

    Args:
        source: gives the site's data, which are read once a request has been admitted.
        requirements: what the job's method, or its survey, declares.
        log: the site's log of requests and answers.
        admission: decides whether a request is answered.
    """

    answers: ClassVar[tuple[type[Request], ...]]
    """Kinds of requests that a job of this kind has; all others are refused."""

    def __init__(
        self,
        source: DataSource,
        requirements: Requirements,
        log: SiteLog,
        admission: Admission,
    ) -> None:
        self.name = source.site
        self.experiment = source.experiment
        self.source = source
        self.requirements = requirements
        self.log = log
        self.admission = admission

    @property
    def image_bytes(self) -> int:
        """Bytes of images that it keeps in memory between requests."""
        return 0

    def handle(self, message: Message, aborted: Aborted = lambda: False) -> Message:
        """Answer a request and add the answer to the site's log; see :meth:`answer`."""
        answer = self.answer(message, aborted)
        try:
            self.log.add(answer)
        except Exception as error:
            # What cannot be logged may not leave the site.
            return self._error(message, error)
        return answer

    def answer(self, message: Message, aborted: Aborted = lambda: False) -> Message:
        """Do what the server asks and return the answer, which may report an error.

        Such an answer says only what kind of error it was; paths and rows stay in the site's own
        log. The caller must add an answer to :attr:`log` before it leaves the site.

        Args:
            message: the server's request, not yet checked.
            aborted: called before every step of a training; True ends it.
        """
        try:
            request = self.log.admit(message)
            if not isinstance(request, self.answers):
                raise _of_another_job(request)
            waiting_answer = self.admission.waiting_answer(request, message.arrays)
            if waiting_answer:
                return waiting_answer
            return self._work(request, message, aborted)
        except Exception as error:
            return self._error(message, error)

    def _error(self, message: Message, error: Exception) -> Message:
        """Log an error and return the answer that reports it."""
        round_ = message.meta.get("round")
        # The log has the traceback of an unexpected error, too. That of a disk is of no use.
        log = _log.error if isinstance(error, FedwardError | OSError) else _log.exception
        log("site %s, round %s: %s", self.name, shown(round_), error)
        meta = {"site": self.name, "round": round_, "error": public_text(error)}
        if isinstance(error, JobRefusedError):
            meta["refused"] = True
        if isinstance(error, DivergedError):
            meta["diverged"] = True
        return Message(meta)

    def _work(self, request: Request, message: Message, aborted: Aborted) -> Message:
        """Return the answer to a request of this kind of job that the site's policy admits."""
        raise NotImplementedError


def _of_another_job(request: Request) -> WireError:
    """Return the error for a survey in a job that trains, or a training in a survey."""
    return WireError(
        f"task {shown(request.task)}",
        "Send a separate job for each.",
        expected="a survey in a job that is a survey, and no survey in any other job",
        found="another task",
    )


def public_text(error: BaseException) -> str:
    """Return what the server may know of a site's error.

    Texts written for the server hold no data and no path, and pass as they are. If the wire list
    refused the site's own answer, the text says where and what was expected; what was found may be
    data. Of any other error only the kind passes.
    """
    if isinstance(error, RefusedError):
        expected = f"{error.problem}: expected {error.expected}"
        return reason(f"{expected}; what was found is in the site's own log")
    if isinstance(error, WireError | WorkError):
        return reason(str(error))
    kind = "an unexpected error"
    if isinstance(error, RunError):
        kind = "what it keeps of the run"
    elif isinstance(error, FedwardError):
        kind = "the site's data or settings"
    return f"{type(error).__name__}: {kind}; the details are in the site's own log"

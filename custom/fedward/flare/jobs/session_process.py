"""The process in which a FLARE session lives.

``python -m fedward.flare.jobs.session_process USER KIT ANSWERS`` reads questions from its standard
input, one line ``[name, argument, ...]`` each. To the file descriptor ``ANSWERS`` it writes a line
``{"answer": ...}`` or ``{"error": [kind, text]}`` for the login, and one for each question. When
its input ends, the process ends too, whatever FLARE's threads wait for.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import TextIO

from nvflare.fuel.flare_api.flare_api import Session

from fedward.flare.jobs.remote import CONNECT_SECONDS, LOGOUT_SECONDS
from fedward.flare.jobs.transfers import (
    checked_id,
    checked_meta,
    fetch_results,
    replace_transfers,
)


class CheckedSession:
    """A session, and what may be asked of it.

    The server's answers are checked where they decide what happens on this machine.

    Args:
        session: FLARE's session, which is not yet connected.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._transfers = replace_transfers(session)

    def answer(self, name: str, arguments: list[str]) -> object:
        """Return the answer to a question, as values that JSON has.

        Args:
            name: a key of :data:`QUESTIONS`.
            arguments: the question's.

        Raises whatever FLARE raises, and:
            UnsafeAnswerError: the server's answer is one that no server of FLARE gives.
        """
        return QUESTIONS[name](self, arguments)

    def job_meta(self, arguments: list[str]) -> object:
        """Return what FLARE knows of a job."""
        (job_id,) = arguments
        return checked_meta(self._session.get_job_meta(job_id), job_id)

    def jobs(self, arguments: list[str]) -> object:
        """Return all jobs of the server's store."""
        jobs = self._session.list_jobs()
        for job in jobs:
            checked_id(job.get("job_id"))
        return jobs

    def system_info(self, arguments: list[str]) -> object:
        """Return status and start of the server, its clients and its running jobs."""
        info = self._session.get_system_info()
        clients = [
            {"name": client.name, "last_connect_time": client.last_connect_time}
            for client in info.client_info
        ]
        jobs = [{"job_id": job.job_id, "app_name": job.app_name} for job in info.job_info]
        return {
            "status": info.server_info.status,
            "start_time": info.server_info.start_time,
            "clients": clients,
            "jobs": jobs,
        }

    def client_job_status(self, arguments: list[str]) -> object:
        """Return a row for each job of each site that answers."""
        return self._session.get_client_job_status(*arguments)

    def stats(self, arguments: list[str]) -> object:
        """Return the statistics of a running job."""
        return self._session.show_stats(*arguments)

    def submit(self, arguments: list[str]) -> object:
        """Submit a job folder, and return the job's id."""
        return checked_id(self._session.submit_job(*arguments))

    def clone(self, arguments: list[str]) -> object:
        """Submit a job of the store once more, and return the new job's id."""
        return checked_id(self._session.clone_job(*arguments))

    def abort(self, arguments: list[str]) -> object:
        """Stop a job."""
        return self._session.abort_job(*arguments)

    def delete(self, arguments: list[str]) -> object:
        """Remove a job from the store."""
        return self._session.delete_job(*arguments)

    def results(self, arguments: list[str]) -> object:
        """Fetch a job's results into a folder, and return the folder that holds them."""
        job_id, out = arguments
        return fetch_results(self._session, self._transfers, job_id, out)


QUESTIONS: dict[str, Callable[[CheckedSession, list[str]], object]] = {
    "get_job_meta": CheckedSession.job_meta,
    "list_jobs": CheckedSession.jobs,
    "get_system_info": CheckedSession.system_info,
    "get_client_job_status": CheckedSession.client_job_status,
    "show_stats": CheckedSession.stats,
    "submit_job": CheckedSession.submit,
    "clone_job": CheckedSession.clone,
    "abort_job": CheckedSession.abort,
    "delete_job": CheckedSession.delete,
    "download_job_result": CheckedSession.results,
}
"""Name of a question -> the method that answers it."""


def main(user: str, kit: str, out: TextIO) -> None:
    """Log in, and answer until there are no further questions.

    Args:
        user: name of the user.
        kit: folder of the user's startup kit.
        out: receives the answers.
    """
    questions = SimpleQueue[str | None]()
    Thread(target=_read_questions, args=[questions], daemon=True).start()
    try:
        session = Session(username=user, startup_path=kit)
        answering = CheckedSession(session)
        # FLARE's new_secure_session would close the session on failure, and wait for ever.
        session.try_connect(CONNECT_SECONDS)
    except Exception as error:  # FLARE's exceptions have no common base.
        _write_answer(out, {"error": [type(error).__name__, str(error)]})
        return
    _write_answer(out, {"answer": None})
    while True:
        question = questions.get()
        if question is None:
            break
        name, *arguments = json.loads(question)
        try:
            _write_answer(out, {"answer": answering.answer(name, arguments)})
        except Exception as error:
            _write_answer(out, {"error": [type(error).__name__, str(error)]})
    with suppress(Exception):
        session.api.logout()


def _read_questions(questions: "SimpleQueue[str | None]") -> None:
    """Pass questions on, None after the last one, and end the process soon after that.

    FLARE's threads may wait for ever.
    """
    for line in sys.stdin:
        questions.put(line)
    questions.put(None)
    time.sleep(LOGOUT_SECONDS)
    os._exit(0)


def _write_answer(out: TextIO, answer: dict[str, object]) -> None:
    """Write an answer; values that JSON does not have become text."""
    out.write(json.dumps(answer, default=str) + "\n")
    out.flush()


if __name__ == "__main__":
    with os.fdopen(int(sys.argv[3]), "w", encoding="utf-8") as answers:
        main(sys.argv[1], sys.argv[2], answers)
    os._exit(0)  # FLARE's threads would keep the process alive.

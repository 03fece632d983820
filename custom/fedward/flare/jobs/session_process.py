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

_CONNECT = 10.0
"""Seconds to reach the server."""

_LOGOUT = 2.0
"""Seconds from the end of the input to that of the process."""


def _system_info(session: Session, arguments: list[str]) -> object:
    """Return, as JSON values, the content of what :meth:`RemoteSession.get_system_info` returns."""
    info = session.get_system_info()
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


QUESTIONS: dict[str, Callable[[Session, list[str]], object]] = {
    "get_job_meta": lambda session, arguments: session.get_job_meta(*arguments),
    "list_jobs": lambda session, arguments: session.list_jobs(*arguments),
    "get_system_info": _system_info,
    "get_client_job_status": lambda session, arguments: session.get_client_job_status(*arguments),
    "show_stats": lambda session, arguments: session.show_stats(*arguments),
    "submit_job": lambda session, arguments: session.submit_job(*arguments),
    "clone_job": lambda session, arguments: session.clone_job(*arguments),
    "abort_job": lambda session, arguments: session.abort_job(*arguments),
    "delete_job": lambda session, arguments: session.delete_job(*arguments),
    "download_job_result": lambda session, arguments: session.download_job_result(*arguments),
}
"""Name of a question -> the function that answers it."""


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
        # FLARE's new_secure_session would close the session on failure, and wait for ever.
        session.try_connect(_CONNECT)
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
            _write_answer(out, {"answer": QUESTIONS[name](session, arguments)})
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
    time.sleep(_LOGOUT)
    os._exit(0)


def _write_answer(out: TextIO, answer: dict[str, object]) -> None:
    """Write an answer; values that JSON does not have become text."""
    out.write(json.dumps(answer, default=str) + "\n")
    out.flush()


if __name__ == "__main__":
    with os.fdopen(int(sys.argv[3]), "w", encoding="utf-8") as answers:
        main(sys.argv[1], sys.argv[2], answers)
    os._exit(0)  # FLARE's threads would keep the process alive.

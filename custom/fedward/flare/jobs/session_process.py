"""The process in which a FLARE session lives: ``python -m fedward.flare.jobs.session_process USER
KIT ANSWERS``.

Its standard input brings questions, one line ``[name, argument, ...]`` each. To the file descriptor
``ANSWERS`` it writes a line ``{"answer": ...}`` or ``{"error": [kind, text]}`` for the login, and
one for each question. When its input ends, so does the process, whatever FLARE's threads wait for.
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
    """Return as JSON values what :meth:`RemoteSession.get_system_info` makes FLARE's objects of."""
    found = session.get_system_info()
    return {
        "status": found.server_info.status,
        "start_time": found.server_info.start_time,
        "clients": [
            {"name": one.name, "last_connect_time": one.last_connect_time}
            for one in found.client_info
        ],
        "jobs": [{"job_id": one.job_id, "app_name": one.app_name} for one in found.job_info],
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
"""Name of a question -> what answers it."""


def main(user: str, kit: str, out: TextIO) -> None:
    """Log in, and answer until there are no further questions."""
    questions = SimpleQueue[str | None]()
    Thread(target=_read, args=[questions], daemon=True).start()
    try:
        session = Session(username=user, startup_path=kit)
        session.try_connect(
            _CONNECT
        )  # FLARE's new_secure_session would close it on failure, and wait for ever
    except Exception as error:  # FLARE's have no common base
        _tell(out, {"error": [type(error).__name__, str(error)]})
        return
    _tell(out, {"answer": None})
    while (question := questions.get()) is not None:
        name, *arguments = json.loads(question)
        try:
            _tell(out, {"answer": QUESTIONS[name](session, arguments)})
        except Exception as error:
            _tell(out, {"error": [type(error).__name__, str(error)]})
    with suppress(Exception):
        session.api.logout()


def _read(questions: "SimpleQueue[str | None]") -> None:
    """Pass questions on; end the process soon after the last one, as FLARE's threads may wait for
    ever.
    """
    for line in sys.stdin:
        questions.put(line)
    questions.put(None)
    time.sleep(_LOGOUT)
    os._exit(0)


def _tell(out: TextIO, line: dict[str, object]) -> None:
    """Write an answer; what JSON does not know is written as text."""
    out.write(json.dumps(line, default=str) + "\n")
    out.flush()


if __name__ == "__main__":
    with os.fdopen(int(sys.argv[3]), "w", encoding="utf-8") as answers:
        main(sys.argv[1], sys.argv[2], answers)
    os._exit(0)  # FLARE's threads would keep the process alive

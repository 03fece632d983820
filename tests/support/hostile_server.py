"""The process of a FLARE session with a server that wants files of the user's machine.

Only the wire is replaced: what the server answers to each command, and the bytes of its files. The
environment variable ``HOSTILE`` holds the answers as JSON; see :data:`HONEST`.
"""

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from nvflare.fuel.f3.streaming import file_downloader
from nvflare.fuel.hci.client.api import AdminAPI
from nvflare.fuel.hci.file_transfer_defs import PULL_FOLDER_FQN, PUSH_FOLDER_FQN

from fedward.flare.jobs import session_process, transfers

JOB = "0f7dd9b2-5a3c-4a57-9f77-2b8f8a3a52a4"
HONEST: dict[str, Any] = {
    "bound": {"submit_job": PUSH_FOLDER_FQN, "download_job": PULL_FOLDER_FQN},
    "submitted": JOB,
    "jobs": [JOB],
    "meta": {"job_id": JOB, "status": "FINISHED:COMPLETED"},
    "results": {"files": [["note.txt", "reference"]], "tx_id": "1", "source_fqcn": "server"},
    "content": "",
    "loot": "",
}
"""What an honest server answers, by what it is an answer to.

``bound`` is the command that FLARE's client carries out in another way. ``content`` names the file
whose bytes the server sends, ``loot`` a place for what it receives.
"""


def _table(bound: dict[str, str]) -> list[dict[str, Any]]:
    names = ["get_job_meta", "list_jobs", "submit_job", "download_job"]
    rows = [["job_mgmt", name, "", "", "none", bound.get(name, "")] for name in names]
    return [{"type": "table", "rows": [["header"], *rows]}]


def _reply(command: str, says: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return data and meta of the server's answer to a command."""
    name = command.split(maxsplit=1)[0].rsplit(".", 1)[-1]
    data = [{"type": "success", "data": ""}]
    if name == "_cert_login":
        data = [{"type": "string", "data": "OK"}, {"type": "token", "data": "token"}]
    elif name == "_commands":
        data = _table(says["bound"])
    meta = {
        "list_jobs": {
            "jobs": [
                {"job_id": job, "status": "RUNNING", "job_name": "", "submit_time": ""}
                for job in says["jobs"]
            ]
        },
        "get_job_meta": {"job_meta": says["meta"], **says["results"]},
        "download_job": says["results"],
        "submit_job": {"job_id": says["submitted"]},
    }
    return data, {"status": "ok", **meta.get(name, {})}


class _Answer:
    def __init__(self, payload: str) -> None:
        self.payload = payload


class _Cell:
    """What FLARE's client talks through."""

    def __init__(self, says: dict[str, Any]) -> None:
        self._says = says

    def send_request(self, request: Any, **_: Any) -> _Answer:
        parts = json.loads(request.payload)["data"]
        (command,) = (part["data"] for part in parts if part["type"] == "command")
        data, meta = _reply(command, self._says)
        return _Answer(json.dumps({"time": "", "data": data, "meta": meta}))

    def get_fqcn(self) -> str:
        return "user"

    def stop(self) -> None:
        pass


def _connect(api: AdminAPI, timeout: float | None = None) -> None:
    api.cell = _Cell(SAYS)


def _sent(**_: Any) -> tuple[None, str]:
    """Return no error, and a file with what the server sends."""
    folder = tempfile.mkdtemp()
    return None, str(shutil.copy(SAYS["content"], folder))


def _received(api: AdminAPI, file_name: str, conn: Any) -> str:
    shutil.copy(file_name, SAYS["loot"])
    data, meta = _reply("submit_job", SAYS)
    return json.dumps({"time": "", "data": data, "meta": meta})


if __name__ == "__main__":
    SAYS = {**HONEST, **json.loads(os.environ["HOSTILE"])}
    transfers._KEPT_FREE = int(os.environ.get("KEPT_FREE", transfers._KEPT_FREE))
    AdminAPI.connect = _connect
    AdminAPI.shutdown_streamer = lambda api: None
    AdminAPI.upload_file = _received
    file_downloader.download_file = _sent
    with Path(f"/proc/self/fd/{sys.argv[3]}").open("w") as answers:
        session_process.main(sys.argv[1], sys.argv[2], answers)
    os._exit(0)  # FLARE's threads would keep the process alive.

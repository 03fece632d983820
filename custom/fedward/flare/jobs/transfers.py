"""Files that a user's machine exchanges with the server, which chooses neither files nor places.

FLARE 2.9 lets the server choose what its client does. At the login the server sends a table of
commands, in which it may bind any command to the transfer of a folder: a question about a job then
sends the server a folder of the user's, with the key in it. When results are fetched, the server
names the files, and the client writes them wherever these names lead. So this module replaces
FLARE's.
"""

import itertools
import re
import shutil
import zipfile
from pathlib import Path
from typing import Any, NoReturn

from nvflare.apis.job_def import JobMetaKey
from nvflare.fuel.flare_api.flare_api import Session
from nvflare.fuel.hci.client.api import AdminAPI
from nvflare.fuel.hci.client.api_spec import CommandContext
from nvflare.fuel.hci.client.file_transfer import FileTransferModule
from nvflare.fuel.hci.file_transfer_defs import PULL_FOLDER_FQN, PUSH_FOLDER_FQN
from nvflare.fuel.hci.reg import CommandModuleSpec, CommandSpec

from fedward.flare.gate.names import is_job_id
from fedward.flare.jobs.remote import NoRoomError, UnsafeAnswerError

_ALLOWED_TRANSFERS = {
    ("submit_job", PUSH_FOLDER_FQN),
    ("download_job", PULL_FOLDER_FQN),
    ("download_job_components", PULL_FOLDER_FQN),
}
"""Command and the transfer that it may be bound to: what FLARE's own server says."""

_PLAIN = re.compile(r"\w[\w.-]*(/\w[\w.-]*)*", re.ASCII)
"""The name of a file in a folder; it leads out of no folder."""

_KEPT_FREE = 2**30
"""Bytes that stay free on the disk when results are unpacked."""


class SafeTransfers(FileTransferModule):  # type: ignore[misc]
    """FLARE's transfers, for submitted jobs and fetched results alone.

    Args:
        upload_dir: FLARE's folder for relative paths of jobs.
        download_dir: folder in which results arrive.
    """

    def __init__(self, upload_dir: str, download_dir: str) -> None:
        super().__init__(upload_dir, download_dir)
        self.received: Path | None = None
        """The folder of the results that were fetched last."""
        self.refusal: Exception | None = None
        """Why the last transfer was refused; None if it was not."""

    def begin(self) -> None:
        """Forget the last transfer."""
        self.received = None
        self.refusal = None

    def generate_module_spec(self, server_cmd_spec: CommandSpec) -> CommandModuleSpec | None:
        """Return what FLARE's client does at a command; None for what it must not do."""
        if (server_cmd_spec.name, server_cmd_spec.client_cmd) not in _ALLOWED_TRANSFERS:
            return None
        return super().generate_module_spec(server_cmd_spec)

    def pull_binary_file(self, args: list[str], ctx: CommandContext) -> Any:
        """Fetch one file; see :meth:`FileTransferModule.pull_binary_file` for the arguments."""
        # The names of transaction and folder are checked where FLARE makes a path of them.
        self._require_plain("file", args[5])
        return super().pull_binary_file(args, ctx)

    def _tx_path(self, tx_id: str, folder_name: str) -> str:
        """Return the folder in which the files of a transfer arrive."""
        self._require_plain("transaction", tx_id)
        self._require_plain("folder", folder_name)
        return str(super()._tx_path(tx_id, folder_name))

    def _rename_folder(self, src: str, destination: str) -> str:
        """Give the folder of fetched results its name, and note where it is."""
        location = str(super()._rename_folder(src, destination))
        self.received = Path(location)
        return location

    def _unzip_file(self, api: AdminAPI, file_path: str) -> None:
        """Unpack a file, unless it would fill the disk."""
        with zipfile.ZipFile(file_path) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
        free = shutil.disk_usage(self.download_dir).free
        if size > free - _KEPT_FREE:
            self._refuse(NoRoomError(f"{free:,} bytes, for an archive of {size:,}"))
        super()._unzip_file(api, file_path)

    def _require_plain(self, kind: str, name: str) -> None:
        """Refuse a name by which the server could choose a place on this machine."""
        if not _PLAIN.fullmatch(str(name)):
            self._refuse(UnsafeAnswerError(f"the name {name[:100]!r} of a {kind}"))

    def _refuse(self, error: Exception) -> NoReturn:
        self.refusal = error
        raise error


def replace_transfers(session: Session) -> SafeTransfers:
    """Replace a session's transfers before it logs in, and return those that it has now."""
    transfers = SafeTransfers(session.upload_dir, session.download_dir)
    session.api.cmd_modules = [transfers]
    return transfers


def fetch_results(session: Session, transfers: SafeTransfers, job_id: str, out: str) -> str:
    """Fetch a job's results into a folder ``out``, and return the folder that holds them.

    Raises:
        UnsafeAnswerError: the server names files or folders outside of the results.
        NoRoomError: the disk has no room for the results.
    """
    transfers.begin()
    try:
        # The place that FLARE returns may be the server's word.
        session.download_job_result(job_id)
    except Exception as error:
        if transfers.refusal:
            raise transfers.refusal from error
        raise
    if transfers.received is None:
        raise UnsafeAnswerError("results that this machine has not fetched")
    return str(_moved(transfers.received, Path(out).resolve(), job_id))


def _moved(received: Path, out: Path, job_id: str) -> Path:
    """Move fetched results to ``out/JOB_ID``, and return that folder.

    What was fetched before keeps its content under another name: ``JOB_ID.earlier-1`` and so on.
    """
    out.mkdir(parents=True, exist_ok=True)
    # A move to another disk copies the files, and may break off.
    arriving = out / f".{job_id}.arriving"
    shutil.rmtree(arriving, ignore_errors=True)
    shutil.move(received, arriving)
    place = out / job_id
    if place.exists():
        numbers = itertools.count(1)
        earlier = (out / f"{job_id}.earlier-{number}" for number in numbers)
        place.rename(next(path for path in earlier if not path.exists()))
    return arriving.rename(place)


def checked_meta(meta: dict[str, Any], job_id: str) -> dict[str, Any]:
    """Return what the server says of a job; UnsafeAnswerError if it is of another one."""
    if meta.get(JobMetaKey.JOB_ID.value) != job_id:
        raise UnsafeAnswerError(f"job {str(meta.get(JobMetaKey.JOB_ID.value))[:100]!r}")
    return meta


def checked_id(job_id: Any) -> str:
    """Return a job's id; UnsafeAnswerError unless FLARE writes ids so."""
    if not is_job_id(job_id):
        raise UnsafeAnswerError(f"the id {str(job_id)[:100]!r} of a job")
    return str(job_id)

"""The files that a run leaves for others to use, with their hashes.

The audit log records the hash of each when the run ends.
"""

from pathlib import Path

from fedward.digests import file_digest
from fedward.storage.audit import LOG
from fedward.storage.pictures import PICTURES_FOLDER

REPORT = "report.html"
SHEET = "clinician.html"

_KINDS = ("*.safetensors", "*.json", "*.jsonl", f"{PICTURES_FOLDER}/*")
_BOUND_OTHERWISE = {LOG, "run.json"}
"""The audit log is bound by its chain, and run.json by the digest of its content."""
_NO_FILE = "of none"
"""In place of the hash of a folder, or of a link that leads nowhere."""


def outputs(run: Path) -> dict[str, str]:
    """Return path in the run folder -> SHA-256 of models, their sidecars, logs and pictures.

    The pages (``report.html``, ``clinician.html``) are not among them: they can be written again.
    """
    hashes = {}
    for path in sorted(path for kind in _KINDS for path in run.glob(kind)):
        if path.name not in _BOUND_OTHERWISE:
            name = path.relative_to(run).as_posix()
            hashes[name] = file_digest(path) if path.is_file() else _NO_FILE
    return hashes

"""What a run leaves for others to use, file by file: the audit log names the hash of each when the
run ends.
"""

from pathlib import Path

from fedward.digests import file_digest
from fedward.storage.audit import LOG
from fedward.storage.pictures import FOLDER

REPORT = "report.html"
SHEET = "clinician.html"
_OWN = {LOG, "run.json"}
"""Bound in another way: by its chain, and by the digest of its content."""
_NO_FILE = "of none"
"""In place of the hash of a folder, or of a link to nowhere."""


def outputs(run: Path) -> dict[str, str]:
    """Return name in the run folder -> SHA-256: models with their sidecars, logs and pictures; not
    the pages.
    """
    files = [
        path
        for kind in ("*.safetensors", "*.json", "*.jsonl", f"{FOLDER}/*")
        for path in run.glob(kind)
    ]
    named = {
        path.relative_to(run).as_posix(): path for path in sorted(files) if path.name not in _OWN
    }
    return {name: file_digest(path) if path.is_file() else _NO_FILE for name, path in named.items()}

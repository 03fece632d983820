"""What is handed over, and what all formats share: names of files, folders that appear whole."""

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fedward import private
from fedward.annotation.records import Decision, Request
from fedward.annotation.rules import Rules
from fedward.errors import ConfigError, DataError
from fedward.terminal import one_line


@dataclass(frozen=True)
class Content:
    """The state of a queue: what waits (in the order of asking), all decisions, the newest request
    by id, its rules.
    """

    pending: Sequence[Request]
    decisions: Sequence[Decision]
    requests: Mapping[str, Request]
    rules: Rules

    @property
    def ids(self) -> list[str]:
        """The ids of all images, those that wait first."""
        waiting = [request.sample_id for request in self.pending]
        return list(dict.fromkeys(waiting + [decision.sample_id for decision in self.decisions]))

    def about(self, sample_id: str) -> dict[str, Any]:
        """Return what asked for an image at last; nothing if nobody did."""
        request = self.requests.get(sample_id)
        return (
            {name: getattr(request, name) for name in ("strategy", "round", "score", "run")}
            if request
            else {}
        )


@dataclass(frozen=True)
class Exported:
    """What an export holds; ``unseen`` are ids of which there is no picture, and why. They are left
    out of it.
    """

    path: Path
    images: int
    unseen: tuple[tuple[str, str], ...] = ()

    def text(self) -> str:
        """Return the account for a console, every image that is left out listed."""
        lines = [f"{self.path}: {self.images} images"]
        if self.unseen:
            lines += ["", f"Without a picture, left out: {len(self.unseen)}"]
            lines += [
                f"  - {one_line(f'{sample_id}: {reason}')}" for sample_id, reason in self.unseen
            ]
        return "\n".join(lines)


def stem(sample_id: str) -> str:
    """Return a file name without ending for an id: the same each time, different for different ids.

    Letters, digits, ``-``, ``_`` and ``~`` stay, the rest is percent-encoded; dots too, because
    MONAI Label takes an ending out of the middle of a name. A long id becomes its SHA-256.
    """
    encoded = quote(sample_id, safe="").replace(".", "%2E")
    return encoded if len(encoded) <= 200 else hashlib.sha256(sample_id.encode()).hexdigest()


def write_pictures(
    folder: Path, sample_ids: Sequence[str], picture: Callable[[str], bytes]
) -> tuple[list[str], list[tuple[str, str]]]:
    """Write ``<stem>.png`` for each id; return the ids written, and those that cannot be, with the
    reasons.
    """
    folder.mkdir(parents=True)
    shown = []
    unseen = []
    for sample_id in sample_ids:
        try:
            content = picture(sample_id)
        except DataError as error:
            unseen.append((sample_id, error.found))
            continue
        (folder / f"{stem(sample_id)}.png").write_bytes(content)
        shown.append(sample_id)
    return shown, unseen


@contextmanager
def appears_whole(path: Path) -> Iterator[Path]:
    """Yield a path to write a file or folder to, beside ``path``; it becomes ``path`` when the
    block ends well.

    It is its owner's alone, whatever the umask.

    Raises:
        ConfigError: there is something at ``path``.
        DataError: the disk does not take it.
    """
    if path.exists() or path.is_symlink():
        expected = "a new file or folder"
        remedy = "Name another."
        raise ConfigError(
            f"export {path}", expected=expected, found="one that exists", remedy=remedy
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".exporting-") as folder:
            yield Path(folder) / path.name
            private.shut(Path(folder))
            os.rename(Path(folder) / path.name, path)
    except OSError as error:
        found = error.strerror or str(error)
        remedy = "Name another place, or make room."
        raise DataError(
            f"export {path}", expected="room to write", found=found, remedy=remedy
        ) from None

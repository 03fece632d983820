"""The content of an export, and what its formats share: file names, folders that appear whole."""

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
from fedward.errors import ConfigError, DataError, reason_of_system
from fedward.terminal import one_line
from fedward.text import count

_LONGEST_STEM = 200
"""Letters of an encoded id; file systems take names of 255 bytes."""


@dataclass(frozen=True)
class Content:
    """The state of a queue."""

    pending: Sequence[Request]
    """The requests that wait for an answer, in the order of asking."""
    decisions: Sequence[Decision]
    """All decisions."""
    requests: Mapping[str, Request]
    """Sample id -> its newest request."""
    rules: Rules
    """The rules of the queue."""

    @property
    def ids(self) -> list[str]:
        """The ids of all images, those that wait first."""
        waiting_ids = [request.sample_id for request in self.pending]
        decided_ids = [decision.sample_id for decision in self.decisions]
        return list(dict.fromkeys(waiting_ids + decided_ids))

    def about(self, sample_id: str) -> dict[str, Any]:
        """Return the fields of an image's newest request; empty for an image never asked for."""
        request = self.requests.get(sample_id)
        if request is None:
            return {}
        return {
            "strategy": request.strategy,
            "round": request.round,
            "score": request.score,
            "run": request.run,
        }


@dataclass(frozen=True)
class Exported:
    """The result of an export."""

    path: Path
    images: int
    """The number of images in it."""
    unseen: tuple[tuple[str, str], ...] = ()
    """The ids that are left out because they have no picture, each with the reason."""

    def text(self) -> str:
        """Return the account for a console, with every image that is left out."""
        lines = [f"{self.path}: {count(self.images, 'image')}"]
        if self.unseen:
            lines.append("")
            lines.append(f"Without a picture, left out: {len(self.unseen)}")
        for sample_id, reason in self.unseen:
            text = one_line(f"{sample_id}: {reason}")
            lines.append(f"  - {text}")
        return "\n".join(lines)


def stem(sample_id: str) -> str:
    """Return a file name without ending for an id: always the same, and different for each id.

    Letters, digits, ``-``, ``_`` and ``~`` stay, and all other characters are percent-encoded. So
    are dots, because MONAI Label takes an ending out of the middle of a name. A long id becomes its
    SHA-256.
    """
    encoded = quote(sample_id, safe="").replace(".", "%2E")
    if len(encoded) <= _LONGEST_STEM:
        return encoded
    return hashlib.sha256(sample_id.encode()).hexdigest()


def write_pictures(
    folder: Path, sample_ids: Sequence[str], picture: Callable[[str], bytes]
) -> tuple[list[str], list[tuple[str, str]]]:
    """Write ``<stem>.png`` for each id.

    Args:
        folder: where to write, which is made.
        sample_ids: the images.
        picture: sample id -> PNG; raises DataError for an image that cannot be shown.

    Returns:
        The ids written, and the ids without a picture, each with the reason.
    """
    folder.mkdir(parents=True)
    shown: list[str] = []
    unseen: list[tuple[str, str]] = []
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
    """Yield a path for a new file or folder, which becomes ``path`` when the block succeeds.

    It lies in a temporary folder beside ``path``. Only its owner may read it, whatever the umask.

    Raises:
        ConfigError: there is something at ``path``.
        DataError: it cannot be written.
    """
    if path.exists() or path.is_symlink():
        raise ConfigError(
            f"The export needs a new file or folder, and {path} exists", "Name another."
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".exporting-") as temporary:
            target = Path(temporary) / path.name
            yield target
            private.shut(Path(temporary))
            os.rename(target, path)
    except OSError as error:
        reason = reason_of_system(error)
        raise DataError(
            f"The export {path} cannot be written ({reason})", "Name another place, or make room."
        ) from None

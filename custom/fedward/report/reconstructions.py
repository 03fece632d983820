"""The server's own images as pre-training left them, read from a run folder as data that a page can
hold.
"""

import json
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path

from fedward.errors import RunError

NAMES = ("original", "masked", "reconstruction")
_SIGNATURE = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True)
class Reconstructions:
    """What the end of pre-training by hidden units looks like."""

    round: int
    """Rounds of pre-training."""
    hidden: float
    """Share of an image that was hidden, in [0, 1]."""
    images: tuple[tuple[str, ...], ...]
    """A ``data:`` address of each of :data:`NAMES`, image by image; empty where the server had none
    of its own.
    """

    @classmethod
    def load(cls, run: Path) -> "Reconstructions | None":
        """Read a run folder; None where there is nothing of the kind, by its method or because it
        came not so far.

        Raises RunError when a file is missing or broken.
        """
        folder = run / "reconstructions"
        if not folder.is_dir():
            return None
        try:
            about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
            numbers = range(1, int(about["images"]) + 1)
            rows = tuple(
                tuple(_address(folder / f"{number}-{name}.png") for name in NAMES)
                for number in numbers
            )
            return cls(int(about["round"]), float(about["hidden"]), rows)
        except (OSError, KeyError, TypeError, ValueError) as error:
            where = f"pictures in {folder}"
            expected = f"about.json, and {', '.join(NAMES)} of each image as PNG"
            remedy = (
                "Restore the folder from a copy, or delete it: the report then goes without it."
            )
            raise RunError(
                where, expected=expected, found=f"{type(error).__name__}: {error}", remedy=remedy
            ) from error


def _address(path: Path) -> str:
    content = path.read_bytes()
    if not content.startswith(_SIGNATURE):
        raise ValueError(f"{path.name} is no PNG")
    return f"data:image/png;base64,{b64encode(content).decode()}"

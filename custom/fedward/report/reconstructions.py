"""The server's own images as pre-training left them, as data that a page can hold (SelfFed)."""

from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path

from fedward.errors import RunError, reason_of
from fedward.json_text import read_json_file

NAMES = ("original", "masked", "reconstruction")
"""The pictures of an image."""
_SIGNATURE = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True)
class Reconstructions:
    """What pre-training by hidden patches has learned to fill in."""

    round: int
    """Rounds of pre-training."""
    hidden: float
    """Share of an image that was hidden, in [0, 1]."""
    images: tuple[tuple[str, ...], ...]
    """For each image a ``data:`` address of each of :data:`NAMES`; empty without public images."""

    @classmethod
    def load(cls, run: Path) -> "Reconstructions | None":
        """Read a run folder; None if its method makes none, or if it has not got there.

        Raises:
            RunError: a file is missing or broken.
        """
        folder = run / "reconstructions"
        if not folder.is_dir():
            return None
        try:
            about = read_json_file(folder / "about.json")
            images = []
            for number in range(1, int(about["images"]) + 1):
                images.append(tuple(_address(folder / f"{number}-{name}.png") for name in NAMES))
            return cls(int(about["round"]), float(about["hidden"]), tuple(images))
        except (OSError, OverflowError, KeyError, TypeError, ValueError) as error:
            raise RunError(
                f"pictures in {folder}",
                "Restore the folder from a copy, or delete it: the report then goes without it.",
                expected=f"about.json, and {', '.join(NAMES)} of each image as PNG",
                found=reason_of(error),
            ) from error


def _address(path: Path) -> str:
    """Return a PNG file as a ``data:`` address."""
    content = path.read_bytes()
    if not content.startswith(_SIGNATURE):
        raise ValueError(f"{path.name} is not a PNG file")
    return f"data:image/png;base64,{b64encode(content).decode()}"

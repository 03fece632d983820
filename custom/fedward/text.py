"""Small functions on text that all parts of the package share: plurals, and names."""

import re
from collections import Counter
from unicodedata import normalize

_DIGITS = re.compile(r"(\d+)")


def count(number: int, noun: str) -> str:
    """Return a number with its noun, such as ``1 site`` or ``3 sites``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def counted(counts: Counter[str]) -> str:
    """Return words with how often each occurs, the commonest first: ``axial 3, coronal 1``."""
    return ", ".join(f"{word} {number}" for word, number in counts.most_common())


def composed(text: str) -> str:
    """Return a text in Unicode's form NFC, in which equal texts have equal characters.

    An ä is one character, or an a with an accent of its own, as macOS writes names of files.
    """
    return normalize("NFC", text)


def natural(name: str) -> tuple[list[str | int], str]:
    """Return the key by which a person would sort a name: ``site-2`` before ``Site-10``.

    Digits count as numbers, and capital letters as small ones. Names that differ only in their
    capital letters are sorted as they are written.
    """
    parts = _DIGITS.split(name.lower())
    # The expression has one group, so texts and runs of digits alternate: no number meets a text.
    return [int(part) if place % 2 else part for place, part in enumerate(parts)], name

"""Modes of files, for tests that nobody but their owner may read them."""

from pathlib import Path


def modes(path: Path) -> set[int]:
    """Return the permission bits of a file, or of a folder and all that is in it."""
    return {each.stat().st_mode & 0o777 for each in [path, *path.rglob("*")]}

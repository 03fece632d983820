"""What would be left after a power cut: what was written to the disk, not what was written."""

import os
from pathlib import Path

import pytest


def on_the_disk(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """Note what is written to the disk from now on: file or folder -> time of its last change then.

    Nothing may take a name before it is on the disk itself.
    """
    known: dict[int, int] = {}
    fsync = os.fsync
    replace = os.replace

    def note(number: int) -> None:
        fsync(number)
        known[os.fstat(number).st_ino] = os.fstat(number).st_mtime_ns

    def check(partial: Path, path: Path) -> None:
        assert known.get(os.stat(partial).st_ino) == os.stat(partial).st_mtime_ns, (
            f"{partial} is not on the disk"
        )
        replace(partial, path)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(os, "replace", check)
    return known


def unwritten(folder: Path, synced: dict[int, int]) -> list[str]:
    """Return the files and folders that have changed since they were last written to the disk."""
    paths = [folder, *folder.rglob("*")]
    return [
        path.name for path in paths if synced.get(path.stat().st_ino) != path.stat().st_mtime_ns
    ]

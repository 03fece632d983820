"""What a power cut would leave: what was flushed to the disk, not what was only written."""

import os
from pathlib import Path

import pytest


def on_the_disk(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """Note what is written to the disk from now on: file or folder -> time of its last change then.

    Nothing may take a name before it is on the disk itself.
    """
    flushed: dict[int, int] = {}
    fsync = os.fsync
    replace = os.replace

    def note(number: int) -> None:
        fsync(number)
        status = os.fstat(number)
        flushed[status.st_ino] = status.st_mtime_ns

    def check(partial: Path, path: Path) -> None:
        status = os.stat(partial)
        assert flushed.get(status.st_ino) == status.st_mtime_ns, f"{partial} is not on the disk"
        replace(partial, path)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(os, "replace", check)
    return flushed


def unwritten(folder: Path, synced: dict[int, int]) -> list[str]:
    """Return the files and folders that have changed since they were last written to the disk."""
    names = []
    for path in (folder, *folder.rglob("*")):
        status = path.stat()
        if synced.get(status.st_ino) != status.st_mtime_ns:
            names.append(path.name)
    return names

"""Run a command under the system call rules of a systemd unit: confined.py UNIT COMMAND...

systemd makes such a filter with the same library from the same lines. What it does with namespaces
is not done here.
"""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

_ALLOW = 0x7FFF0000
_EPERM = 0x00050001
_NO_NEW_PRIVILEGES = 38


def calls(name: str) -> set[str]:
    """Return the system calls of a name, which may be a group as ``@system-service``."""
    if not name.startswith("@"):
        return {name}
    command = ["systemd-analyze", "syscall-filter", name, "--no-pager"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    members = [line.strip() for line in text.splitlines()[1:]]
    return set().union(
        *(calls(member) for member in members if member and not member.startswith("#"))
    )


def allowed(unit: Path) -> set[str]:
    """Return the system calls that the unit's lines SystemCallFilter leave; ``~`` removes some."""
    found: set[str] = set()
    for line in unit.read_text().splitlines():
        if line.startswith("SystemCallFilter="):
            words = line.partition("=")[2]
            named = set().union(*(calls(word) for word in words.lstrip("~").split()))
            found = found - named if words.startswith("~") else found | named
    return found


def main() -> None:
    names = allowed(Path(sys.argv[1]))
    library = ctypes.CDLL("libseccomp.so.2")
    library.seccomp_init.restype = ctypes.c_void_p
    filter_ = ctypes.c_void_p(library.seccomp_init(_EPERM))
    for name in names:
        number = library.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:
            library.seccomp_rule_add(filter_, ctypes.c_uint32(_ALLOW), number, 0)
    ctypes.CDLL(None).prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    if library.seccomp_load(filter_):
        sys.exit("the filter is not taken")
    os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()

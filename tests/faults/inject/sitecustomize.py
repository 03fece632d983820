"""Faults at exact points of a running federation, by a plan.

Python imports this module by itself when it starts.

``FEDWARD_FAULTS`` names a folder with ``plan.json``: a list of faults, each armed once the one
before has happened. A fault happens in the process whose command line it names, before or after the
n-th call of a function, counted from the moment it is armed, over all processes. That it has
happened is a file, so that no process started again repeats it.
"""

import functools
import importlib.abc
import importlib.machinery
import json
import os
import re
import signal
import sys
import time
from pathlib import Path

FOLDER = Path(os.environ["FEDWARD_FAULTS"]) if "FEDWARD_FAULTS" in os.environ else None


def command_line(pid="self"):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def due(index, fault):
    """Count a call; return whether the fault happens now."""
    earlier = [FOLDER / f"{number}.happened" for number in range(index)]
    if not all(path.exists() for path in earlier) or (FOLDER / f"{index}.happened").exists():
        return False
    with (FOLDER / f"{index}.calls").open("a") as file:
        file.write(".")
    if (FOLDER / f"{index}.calls").stat().st_size < fault["call"]:
        return False
    try:
        os.close(os.open(FOLDER / f"{index}.happened", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def happen(index, fault):
    if fault["action"] == "error":
        raise OSError(fault["errno"], os.strerror(fault["errno"]))
    if fault["action"] == "wait":
        while not (FOLDER / f"{index}.go").exists():
            time.sleep(0.05)
        return
    time.sleep(fault["delay"])
    number = {"kill": signal.SIGKILL, "hang": signal.SIGSTOP}[fault["action"]]
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    ours = [
        pid for pid in pids if str(FOLDER.parent) in command_line(pid)
    ]  # others may run on this machine
    victims = [
        pid
        for pid in ours
        if any(re.search(victim, command_line(pid)) for victim in fault["victims"])
    ]
    for pid in sorted(victims, key=lambda pid: pid == os.getpid()):  # itself last
        os.kill(pid, number)


def wrap(module, name, index, fault):
    owner, _, method = name.rpartition(".")
    place = getattr(module, owner) if owner else module
    function = getattr(place, method)

    @functools.wraps(function)
    def faulty(*args, **kwargs):
        if fault["when"] == "before" and due(index, fault):
            happen(index, fault)
        result = function(*args, **kwargs)
        if fault["when"] == "after" and due(index, fault):
            happen(index, fault)
        return result

    setattr(place, method, faulty)


class Finder(importlib.abc.MetaPathFinder):
    """Finds nothing itself: it wraps the functions of a module that another finder has found."""

    def __init__(self, faults):
        self.faults = faults

    def find_spec(self, fullname, path, target=None):
        mine = [(index, fault) for index, fault in self.faults if fault["module"] == fullname]
        if not mine:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            for index, fault in mine:
                wrap(module, fault["function"], index, fault)

        spec.loader.exec_module = exec_module
        return spec


if FOLDER and (FOLDER / "plan.json").exists():
    plan = list(enumerate(json.loads((FOLDER / "plan.json").read_text())))
    here = [(index, fault) for index, fault in plan if re.search(fault["process"], command_line())]
    if here:
        sys.meta_path.insert(0, Finder(here))

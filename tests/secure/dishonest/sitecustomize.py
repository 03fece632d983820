"""A server that asks more than its job does; Python imports this module by itself when it starts.

``FEDWARD_DISHONEST`` names a folder. While it holds a file ``armed``, the server's job process
sends each site further requests after its second round, and writes what they answered into
``answers.json``.
"""

import importlib.abc
import importlib.machinery
import json
import os
import sys
from pathlib import Path

FOLDER = Path(os.environ["FEDWARD_DISHONEST"]) if "FEDWARD_DISHONEST" in os.environ else None
TRANSPORT = "fedward.flare.transport"


def without_last_hash(meta):
    return {name: value for name, value in meta.items() if name != "last_hash"}


ASKED = {
    "round -5": (lambda meta: {**meta, "round": -5}, 0),
    "a round after the last": (lambda meta: {**meta, "round": 2**20}, 0),
    "a round of no run": (lambda meta: {**meta, "round": 2**40}, 0),
    "a part too many": (lambda meta: {**meta, "part": 1}, 0),
    "no last hash": (without_last_hash, 0),
    "a sum without last hash": (lambda meta: {**without_last_hash(meta), "task": "decrypt"}, 0),
    "another model": (lambda meta: meta, 1),
    "another model in the round before": (lambda meta: {**meta, "round": 1}, 1),
    "another run": (lambda meta: {**meta, "run": "f" * 32}, 1),
    "other settings": (lambda meta: {**meta, "experiment": "0" * 64}, 0),
    "another version": (
        lambda meta: {**meta, "versions": {**meta["versions"], "fedward": "0.0.1"}},
        0,
    ),
}


def spoil(module):
    """Let ``exchange`` ask for more than the server loop asked for."""
    honest = module.FlareTransport.exchange
    message = module.Message

    def exchange(self, requests, timeout, deliver):
        honest(self, requests, timeout, deliver)
        found = {}
        if (
            any(request.meta["round"] == 2 for request in requests.values())
            and (FOLDER / "armed").exists()
        ):
            for name, (change, more) in ASKED.items():
                arrays = {
                    site: {key: a + more for key, a in request.arrays.items()}
                    for site, request in requests.items()
                }
                asked = {
                    site: message(change(request.meta), arrays[site])
                    for site, request in requests.items()
                }
                answers = {}
                honest(self, asked, timeout, answers.setdefault)
                found[name] = {
                    site: [answer.meta.get("error"), len(answer.arrays)]
                    for site, answer in answers.items()
                }
            (FOLDER / "answers.json").write_text(json.dumps(found))

    module.FlareTransport.exchange = exchange


class Finder(importlib.abc.MetaPathFinder):
    """Finds nothing itself: it changes a module that another finder has found."""

    def find_spec(self, fullname, path, target=None):
        if fullname != TRANSPORT:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            spoil(module)

        spec.loader.exec_module = exec_module
        return spec


if FOLDER:
    sys.meta_path.insert(0, Finder())

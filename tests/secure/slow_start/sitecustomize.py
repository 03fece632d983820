"""A server that is slow to start and pauses in each round; Python imports this module by itself
when it starts.

FLARE's server listens before it knows its own certificate, usually for less than a second. Here it
takes eight seconds more, so that sites and users come before it does.

A job that runs as long as the tests need it would take all the time of the processor that it gets.
"""

import importlib.abc
import sys
import time
from collections.abc import Callable

START = 8
"""Seconds more that the server takes to start."""
PAUSE = 2
"""Seconds before a job sends its requests."""


class Before(importlib.abc.MetaPathFinder):
    """Makes a change just before a module is imported."""

    def __init__(self, module: str, change: Callable[[], None]) -> None:
        self._module = module
        self._change = change

    def find_spec(self, name, path=None, target=None):
        if name == self._module:
            sys.meta_path.remove(self)
            self._change()


def start_slowly() -> None:
    """Delay the server's start between its first connections and its own certificate."""
    from nvflare.private.fed.server.fed_server import FederatedServer

    set_admin_server = FederatedServer.set_admin_server

    def slowly(server, admin_server):
        set_admin_server(server, admin_server)
        time.sleep(START)

    FederatedServer.set_admin_server = slowly


def pause() -> None:
    """Let a job of this server wait before it sends requests."""
    from fedward.flare.transport import FlareTransport

    exchange = FlareTransport.exchange

    def after_a_pause(transport, requests, timeout, deliver):
        time.sleep(PAUSE)
        exchange(transport, requests, timeout, deliver)

    FlareTransport.exchange = after_a_pause


sys.meta_path[:0] = [
    Before("nvflare.private.fed.app.deployer.server_deployer", start_slowly),
    Before("fedward.flare.controller", pause),
]

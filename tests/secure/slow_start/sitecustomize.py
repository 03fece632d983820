"""A server that is slow to start; Python imports this module by itself when it starts.

FLARE's server listens before it knows its own certificate, usually for less than a second. Here it
takes eight seconds more, so that sites and users come before it does.
"""

import importlib.abc
import importlib.machinery
import sys
import time

SECONDS = 8
MODULE = "nvflare.private.fed.app.deployer.server_deployer"


class SlowStart(importlib.abc.MetaPathFinder):
    """Delays the server's start between its first connections and its own certificate."""

    def find_spec(self, name, path=None, target=None):
        if name == MODULE:
            sys.meta_path.remove(self)
            from nvflare.private.fed.server.fed_server import FederatedServer

            set_admin_server = FederatedServer.set_admin_server

            def slowly(server, admin_server):
                set_admin_server(server, admin_server)
                time.sleep(SECONDS)

            FederatedServer.set_admin_server = slowly


sys.meta_path.insert(0, SlowStart())

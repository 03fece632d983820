"""Sites that have left their jobs, and for which the jobs would wait.

A job knows its sites by the tokens of their registrations. FLARE tells jobs that a site is dead
when its heartbeats stay away. It says nothing when an administrator shuts a site out, or when a
site is started again and registers with another token. The job would wait for it until the timeout
in every further round, and a quarter of an hour at its end.
"""

import time

from nvflare.apis.client import Client
from nvflare.apis.fl_constant import RunProcessKey
from nvflare.private.fed.server.fed_server import FederatedServer

_PAUSE = 60.0
"""Seconds until jobs are told of the same site again.

A job's process may have been started again meanwhile, or have heard once more of the site's old
one."""


class LostSites:
    """What the server of this process has told its jobs."""

    def __init__(self) -> None:
        self._told_at: dict[str, float] = {}
        """Token of a site -> when its jobs were told of it last."""

    def tell_jobs(self, server: FederatedServer) -> None:
        """Tell all running jobs which of their sites no longer have that registration."""
        now = time.monotonic()
        registered = set(server.client_manager.get_clients())
        lost: dict[str, Client] = {}
        for process in list(server.engine.run_processes.values()):
            for token, site in process.get(RunProcessKey.PARTICIPANTS, {}).items():
                if token not in registered:
                    lost[token] = site
        self._told_at = {token: told for token, told in self._told_at.items() if token in lost}
        for token, site in lost.items():
            told = self._told_at.get(token)
            if told is None or now - told >= _PAUSE:
                server.notify_dead_client(site)
                self._told_at[token] = now


lost_sites = LostSites()
"""Those of which this process has told its jobs."""

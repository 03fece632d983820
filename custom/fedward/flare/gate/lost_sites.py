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
"""Seconds after which the jobs are notified of the same site again.

Meanwhile a job's process may have restarted, or have received another message of the site's old
process."""


class LostSites:
    """The sites of which the server of this process has notified its jobs."""

    def __init__(self) -> None:
        self._notified_at: dict[str, float] = {}
        """Token of a site -> when its jobs were last notified of it, by the monotonic clock."""

    def tell_jobs(self, server: FederatedServer) -> None:
        """Tell all running jobs which of their sites no longer have that registration."""
        now = time.monotonic()
        registered = set(server.client_manager.get_clients())
        lost: dict[str, Client] = {}
        for process in list(server.engine.run_processes.values()):
            for token, site in process.get(RunProcessKey.PARTICIPANTS, {}).items():
                if token not in registered:
                    lost[token] = site
        self._notified_at = {
            token: notified for token, notified in self._notified_at.items() if token in lost
        }
        for token, site in lost.items():
            notified = self._notified_at.get(token)
            if notified is None or now - notified >= _PAUSE:
                server.notify_dead_client(site)
                self._notified_at[token] = now


lost_sites = LostSites()
"""Those of this process, which is a server's."""

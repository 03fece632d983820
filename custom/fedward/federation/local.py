"""The in-process engine: every site in this process, no FLARE, the same messages and the same weights."""

from collections.abc import Sequence
from pathlib import Path

from fedward.config import Experiment
from fedward.federation.site import Site
from fedward.federation.transport import Deliver
from fedward.federation.wire import Message


class LocalTransport:
    """Runs each site's work in turn, in site-name order."""

    def __init__(
        self, experiment: Experiment, names: Sequence[str], folder: Path, site_folders: Sequence[Path] = ()
    ) -> None:
        self._sites = {name: Site(name, experiment, folder / name, site_folders) for name in sorted(names)}

    def sites(self) -> list[str]:
        """Return the sites' names, sorted."""
        return list(self._sites)

    def exchange(self, requests: dict[str, Message], timeout: int, deliver: Deliver) -> None:
        """Let each site answer its request; a site in this process cannot be late, so ``timeout`` is not used."""
        for name, request in sorted(requests.items()):
            deliver(name, self._sites[name].handle(request))

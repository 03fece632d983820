"""Runs that end in the middle of a round, as by a kill."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from fedward.config import Experiment
from fedward.lab.local import LocalTransport
from fedward.protocol.wire import Message
from running import run_local


def interrupted(
    experiment: Experiment,
    folder: Path,
    sites: Sequence[str],
    round_: int,
    answered: int,
    init: Path | None = None,
    site_folders: Sequence[Path] = (),
    part: int = 0,
) -> None:
    """Run an experiment until ``answered`` sites have answered in an exchange of a round."""
    exchange = LocalTransport.exchange

    def broken(
        self: LocalTransport, requests: dict[str, Message], timeout: int, deliver: Callable
    ) -> None:
        meta = next(iter(requests.values())).meta
        if (meta["round"], meta["part"]) == (round_, part):
            exchange(self, dict(sorted(requests.items())[:answered]), timeout, deliver)
            raise KeyboardInterrupt
        exchange(self, requests, timeout, deliver)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalTransport, "exchange", broken)
        with pytest.raises(KeyboardInterrupt):
            run_local(experiment, folder, sites=list(sites), init=init, site_folders=site_folders)

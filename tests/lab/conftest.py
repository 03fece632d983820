"""Fixtures of the laboratory's tests."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def _less_preloaded() -> Iterator[None]:
    """Let the fork server of this process import what all runs use: timm takes most of the time,
    and no run of the tests needs it there.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "fedward.lab.processes.PRELOADED", ("fedward.lab.local", "fedward.training.trainer")
        )
        yield

"""Shared fixtures: the folder of real data. And what the tests prove, for docs/reliability.md."""

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

import reliability_page
from fedward.lab import lesions

_FIRST = ("lab", "benchmarks", "flare")
"""Folders with the longest files: two processes share the files in order, and none should wait for
a long last one.
"""

settings.register_profile("untimed", deadline=None)  # no test depends on how busy the machine is
settings.load_profile("untimed")


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real images; a test is skipped, and says so, without FEDWARD_DATA."""
    folder = os.environ.get("FEDWARD_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("FEDWARD_DATA names no folder with real images")
    return Path(folder)


@pytest.fixture(scope="module")
def without_report() -> Iterator[None]:
    """Let runs of a file's tests, and of its fixtures, draw no report: it takes most of the time of
    short runs.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedward.lab.simulation.write_report", lambda path: None)
        yield


@pytest.fixture(scope="module")
def narrow_swin() -> Iterator[None]:
    """Let ``masked_swin_28`` have a quarter of its channels and a block in each stage: tests of
    what server and sites do with a network need no larger one.
    """
    from fedward.nets.masked_swin import PRESETS, MaskedSwin  # imports torch

    preset = replace(PRESETS["swin_28"], width=8, depths=(1, 1), heads=(1, 2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedward.nets.masked_swin.masked_swin_28", partial(MaskedSwin, preset))
        yield


@pytest.fixture(scope="session", autouse=True)
def _images_drawn_once() -> Iterator[None]:
    """Draw synthetic images that are equal by their arguments once a process; sites copy what they
    take of them.
    """
    drawn: dict[str, Any] = {}

    def draw(names: Any, size: int, style: Any, rng: Any) -> Any:
        key = repr((list(names), size, style, rng.bit_generator.state))
        if key not in drawn:
            drawn[key] = lesions.draw(names, size, style, rng)
            drawn[key].flags.writeable = False
        return drawn[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedward.lab.synthetic.draw", draw)
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_wait_for_the_disk() -> Iterator[None]:
    """Only a power cut shows who waited for the disk; the tests of power cuts note the calls
    (power_cut.py).
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda number: None)
        yield


@pytest.fixture
def open_umask() -> Iterator[None]:
    """Let new files be readable for everybody, unless their writer prevents it."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--reliability", metavar="PAGE", type=Path, help="write the tables of what the tests prove"
    )


@pytest.hookimpl(tryfirst=True)  # before -m deselects some
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    page = config.getoption("--reliability")
    if page:
        config.stash[reliability_page.FRESH] = reliability_page.written(
            page.read_text(), reliability_page.rows(items)
        )
    items.sort(key=lambda item: item.path.parent.name not in _FIRST)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    config = session.config
    page = config.getoption("--reliability")
    fresh = config.stash.get(reliability_page.FRESH, None)
    if not page or fresh is None or exitstatus:
        return
    if config.getoption("collectonly"):
        if page.read_text() != fresh:
            raise pytest.UsageError(
                f"{page} is not what the tests prove; write it again with `make reliability`"
            )
    elif config.pluginmanager.getplugin("terminalreporter").stats.get("skipped"):
        raise pytest.UsageError(f"{page} is not written: a test that proves something was skipped")
    else:
        page.write_text(fresh)

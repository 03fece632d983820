"""Every page that a run leaves behind, checked by axe-core."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from run_folders import add_answers, write_run
from selenium.webdriver import Chrome

from accessibility import found_by_axe, needs_axe
from chromium import start_browser
from fedward.operation.survey import survey
from fedward.report import write_report
from surveyed import CLASSES, write_hospital

pytestmark = [pytest.mark.browser, needs_axe]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Name -> page."""
    folder = tmp_path_factory.mktemp("pages")
    run, other = (
        write_run(folder / name, rounds=4, seed=seed) for seed, name in enumerate(("run", "other"))
    )
    add_answers(run, 4)
    crowd = write_run(
        folder / "crowd",
        method="fedavg",
        rounds=2,
        sites=tuple(f"h{number}" for number in range(45)),
    )
    hospital = write_hospital(
        folder / "site-1", [("MEL", "train", 30, 60, "a*", "X"), ("NV", "test", 9, 90, "b*", "Y")]
    )
    return {
        "report": write_report(run, [other]),
        "clinician's sheet": run / "clinician.html",
        "report of 45 sites": write_report(crowd),
        "survey": survey([hospital], folder / "survey", CLASSES, 16, pictures=True),
    }


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    started = start_browser()
    yield started
    started.quit()


@pytest.mark.parametrize(
    ("width", "height", "scheme"), [(1366, 625, "light"), (1366, 625, "dark"), (390, 844, "light")]
)
def test_axe_finds_nothing(
    browser: Chrome, pages: dict[str, Path], width: int, height: int, scheme: str
) -> None:
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    found = {}
    for name, page in pages.items():
        browser.get(page.as_uri())
        found[name] = found_by_axe(browser)
    assert {name: each for name, each in found.items() if each} == {}

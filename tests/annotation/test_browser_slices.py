"""The slices of a volume at the page: by key, wheel and slider, and in one window."""

import re
from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys

import nifti_files
from chromium import Served, Tab
from fedward.annotation import queue_of

pytestmark = pytest.mark.browser


@pytest.fixture
def site(tmp_path: Path) -> Path:
    nifti_files.write(tmp_path / "ct.nii.gz", nifti_files.body(1, (40, 48, 30)))
    (tmp_path / "manifest.csv").write_text("sample_id,image,label\nct,ct.nii.gz,\n")
    lines = "kind: manifest\nfolder: .\ncolumns: {group: null}\nannotation: queue\nslices: {}\n"
    (tmp_path / "site.yaml").write_text(lines)
    queue_of(tmp_path / "site.yaml").request("run", 1, "fedal", ["ct#10", "ct#20"], [2, 1])
    return tmp_path / "site.yaml"


@pytest.fixture
def server(site: Path, serving: list[Served]) -> Served:
    serving.append(Served(site, ("MEL", "NV")))
    return serving[0]


def on_stage(tab: Tab) -> str:
    shown_slices = re.findall(
        r"id=ct%23(\d+)", tab.run("return document.getElementById('image').src")
    )
    return str(shown_slices[0]) if shown_slices else ""


def at(tab: Tab, index: int) -> None:
    """Wait until this slice has come."""
    loaded = (
        "const image = document.getElementById('image'); return image.complete && !image.hidden"
    )
    tab.until(lambda: on_stage(tab) == str(index) and tab.run(loaded))


def test_slices_are_scrolled_and_the_asked_one_is_answered(
    tab: Tab, server: Served, site: Path
) -> None:
    tab.command(
        "Emulation.setDeviceMetricsOverride",
        width=1366,
        height=625,
        deviceScaleFactor=1,
        mobile=False,
    )
    tab.open(server.address)
    assert tab.text("slice-now") == "Slice 11 of 30"
    assert "slice 11 of 30. Your answer is for this slice alone" in tab.text("about")
    tab.press(Keys.ARROW_DOWN)
    at(tab, 11)
    tab.until(lambda: tab.find("aside").is_displayed())
    assert tab.text("aside") == "Slice 11 is in question. Back to it"
    tab.press("1")
    assert queue_of(site).verdicts() == {}
    tab.press(Keys.ARROW_UP * 14)
    at(tab, 0)
    assert tab.text("slice-now") == "Slice 1 of 30"
    tab.press(Keys.PAGE_DOWN)
    at(tab, 10)
    tab.command("Input.dispatchMouseEvent", type="mouseWheel", x=300, y=300, deltaX=0, deltaY=200)
    at(tab, 12)
    tab.press(Keys.HOME)
    at(tab, 10)
    tab.wait_for_image()
    assert tab.answer("2") == "ct#10"
    assert queue_of(site).labels() == {"ct#10": "NV"}
    tab.wait_for_image()
    assert tab.text("slice-now") == "Slice 21 of 30"
    assert [entry for entry in tab.browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_window_and_zoom_stay_from_slice_to_slice(tab: Tab, server: Served) -> None:
    tab.open(server.address)
    tab.until(lambda: tab.find("window").is_displayed())
    tab.press("w")
    tab.press(Keys.ARROW_LEFT * 5)
    tab.press(Keys.ESCAPE)
    tab.until(lambda: "centre=" in tab.run("return document.getElementById('image').src"))
    centre = tab.find("centre").get_attribute("value")
    tab.press("++")
    scale = tab.text("scale")
    tab.run(
        "const s = document.getElementById('slice'); s.value = 15; s.dispatchEvent(new "
        "Event('input'))"
    )
    at(tab, 15)
    assert f"centre={centre}" in tab.run("return document.getElementById('image').src")
    assert (tab.find("centre").get_attribute("value"), tab.text("scale")) == (centre, scale)
    assert tab.run("return document.getElementById('image').style.filter") == ""


def test_a_telephone_has_room_for_the_slider(tab: Tab, server: Served) -> None:
    tab.command(
        "Emulation.setDeviceMetricsOverride",
        width=390,
        height=844,
        deviceScaleFactor=1,
        mobile=True,
    )
    tab.open(server.address)
    assert tab.run("return document.documentElement.scrollWidth") <= 390
    box = tab.find("slice").rect
    assert box["width"] >= 64
    assert box["height"] >= 40

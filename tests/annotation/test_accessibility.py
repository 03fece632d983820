"""The page checked by axe-core in each of its states, and read by keyboard alone."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image
from selenium.webdriver.common.keys import Keys

from accessibility import found_by_axe, needs_axe
from chromium import Served, Tab
from fedward.label_kinds import SEVERAL_LABELS

pytestmark = pytest.mark.browser

_READING = """kind: manifest
folder: .
columns: {group: patient}
reading:
  readers: 2
  columns: [age]
  lesion: lesion
  classes: {MEL: {title: Melanoma, definition: A tumour., examples: [s06]}}
"""


@pytest.fixture
def address(make_clinic: Callable[[int], Any], serving: list[Served]) -> str:
    """A page on six images, the first of which is grey; three lesions of two patients.

    The seventh image is an example.
    """
    clinic = make_clinic(7)
    rows = ["sample_id,image,label,patient,lesion,age"]
    rows += [
        f"{name},images/{name}.png,,p{index // 4},l{index // 2},50"
        for index, name in enumerate(clinic.ids[:6])
    ]
    rows.append("s06,images/s06.png,,p9,l9,50")
    (clinic.site_file.parent / "manifest.csv").write_text("\n".join(rows))
    grey = np.linspace(1000, 5000, 1200).astype(np.uint16).reshape(30, 40)
    Image.fromarray(grey).save(clinic.site_file.parent / "images" / "s00.png")
    clinic.site_file.write_text(_READING)
    clinic.ask(*clinic.ids[:6])
    serving.append(Served(clinic.site_file, ("MEL", "NV", "BCC")))
    return serving[0].address


@needs_axe
@pytest.mark.parametrize(
    ("width", "height", "scheme"), [(1366, 625, "light"), (844, 390, "light"), (1024, 768, "dark")]
)
def test_axe_finds_nothing_in_any_state(
    tab: Tab, address: str, width: int, height: int, scheme: str
) -> None:
    tab.command(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=height,
        deviceScaleFactor=1,
        mobile=False,
    )
    tab.command(
        "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}]
    )
    violations = {}
    tab.browser.get(address)
    tab.until(lambda: tab.find("who").is_displayed())
    violations["name"] = found_by_axe(tab.browser)
    tab.open(address)
    tab.until(lambda: tab.find("window").is_displayed())
    violations["question"] = found_by_axe(tab.browser)
    tab.press("w")
    violations["window"] = found_by_axe(tab.browser)
    tab.press(Keys.ESCAPE + "?")
    violations["help"] = found_by_axe(tab.browser)
    tab.press(Keys.ESCAPE + "bqdno")
    assert tab.find("beside").is_displayed()
    violations["beside, with a remark"] = found_by_axe(tab.browser)
    tab.press(Keys.ESCAPE + "be")
    tab.until(lambda: tab.find("examples").is_displayed())
    violations["examples"] = found_by_axe(tab.browser)
    tab.press(Keys.ESCAPE)
    tab.run("document.querySelector('#strip [data-id=s03]').click()")
    tab.until(lambda: tab.find("aside").is_displayed() and tab.find("image").is_displayed())
    violations["another image"] = found_by_axe(tab.browser)
    tab.run("document.getElementById('aside').click()")
    tab.wait_for_image()
    first = tab.answer("1")
    tab.wait_for_image(other_than=first)
    tab.press("l")
    tab.until(lambda: tab.find("given").is_displayed())
    violations["own answers"] = found_by_axe(tab.browser)
    tab.press(Keys.ENTER)
    tab.until(lambda: tab.about() == first)
    violations["an answer again"] = found_by_axe(tab.browser)
    tab.find("back").click()
    for _ in range(2):
        tab.wait_for_image(other_than=first)
        tab.answer("x")
    tab.until(lambda: "waiting" in tab.text("question"))
    violations["the end"] = found_by_axe(tab.browser)
    tab.browser.delete_all_cookies()
    tab.browser.get(address.partition("?")[0])
    violations["without the address"] = found_by_axe(tab.browser)
    assert {state: each for state, each in violations.items() if each} == {}


@needs_axe
@pytest.mark.parametrize(("width", "height", "scheme"), [(1366, 625, "dark"), (390, 844, "light")])
def test_axe_finds_nothing_where_findings_are_ticked(
    tab: Tab,
    make_clinic: Callable[[int], Any],
    serving: list[Served],
    width: int,
    height: int,
    scheme: str,
) -> None:
    tab.command(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=height,
        deviceScaleFactor=1,
        mobile=False,
    )
    tab.command(
        "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}]
    )
    clinic = make_clinic(3)
    clinic.site_file.write_text(
        "kind: manifest\nfolder: .\ncolumns: {group: null}\nreading: {readers: 2}\n"
    )
    clinic.ask(*clinic.ids, several=True)
    serving.append(
        Served(clinic.site_file, [f"Finding {number}" for number in range(14)], SEVERAL_LABELS)
    )
    tab.open(serving[0].address)
    violations = {"question": found_by_axe(tab.browser)}
    tab.press("12")
    violations["ticked"] = found_by_axe(tab.browser)
    tab.answer(Keys.ENTER)
    tab.run("document.querySelector('details').open = true")
    violations["the next"] = found_by_axe(tab.browser)
    tab.press("?")
    violations["help"] = found_by_axe(tab.browser)
    assert {state: each for state, each in violations.items() if each} == {}


def focus(tab: Tab) -> str:
    active = tab.browser.switch_to.active_element
    names = [active.get_attribute(name) for name in ("id", "data-label", "data-id")]
    return next(filter(None, names), "")


def tab_to(tab: Tab, name: str) -> None:
    """Press Tab until the focus is there; it must be seen."""
    for _ in range(60):
        tab.press(Keys.TAB)
        if focus(tab) == name:
            break
    assert focus(tab) == name
    assert tab.browser.switch_to.active_element.value_of_css_property("outline-style") == "solid"


def come_in(tab: Tab, address: str) -> None:
    """Enter a reader's name and switch single keys off, as users of a screen reader do."""
    tab.browser.get(address)
    tab.until(lambda: tab.find("who").is_displayed())
    tab.press("Anna" + Keys.ENTER)
    tab.wait_for_image()
    tab_to(tab, "help")
    tab.press(Keys.ENTER)
    tab_to(tab, "shortcuts")
    tab.press(Keys.SPACE + Keys.ESCAPE)
    assert focus(tab) == "help"


def test_images_are_looked_at_by_keyboard_alone(tab: Tab, address: str) -> None:
    come_in(tab, address)
    tab.until(lambda: tab.find("window").is_displayed())
    tab_to(tab, "window")
    tab.press(Keys.ENTER)
    assert focus(tab) == "centre"
    tab.press(Keys.ARROW_RIGHT)
    tab_to(tab, "width")
    tab_to(tab, "reset")
    tab.press(Keys.ENTER + Keys.ESCAPE)
    assert focus(tab) == "window"
    tab_to(tab, "s03")
    tab.press(Keys.ENTER)
    tab.until(lambda: tab.find("aside").is_displayed() and tab.find("image").is_displayed())
    tab_to(tab, "aside")
    tab.press(Keys.ENTER)
    assert focus(tab) == "stage"
    tab.wait_for_image()


def test_answers_are_given_and_changed_by_keyboard_alone(tab: Tab, address: str) -> None:
    come_in(tab, address)
    tab_to(tab, "NV")
    first = tab.answer(Keys.ENTER)
    tab.wait_for_image(other_than=first)
    assert focus(tab) == "NV", "the focus stays where the next answer is"
    tab_to(tab, "own")
    tab.press(Keys.ENTER)
    tab.until(lambda: tab.find("given").is_displayed())
    tab.press(Keys.ENTER)
    tab.until(lambda: tab.about() == first)
    tab.wait_for_image()
    tab_to(tab, "back")
    tab.press(Keys.ENTER)
    tab.until(lambda: tab.about() not in ("", first))
    assert focus(tab) == "stage"
    tab.wait_for_image()
    tab_to(tab, "none")
    tab.answer(Keys.SPACE)
    assert tab.text("mine") == "2"

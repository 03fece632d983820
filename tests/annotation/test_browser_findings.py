"""Several findings of one image at the page: ticked and sent by mouse, touch and keyboard."""

from collections.abc import Callable
from typing import Any

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from chromium import Served, Tab
from fedward.annotation import Queue, queue_of
from fedward.label_kinds import SEVERAL_LABELS

pytestmark = pytest.mark.browser

FINDINGS = ("Mass", "Edema", "Hernia")
_SITE = """kind: manifest
folder: .
columns: {group: null}
reading: {classes: {Mass: {title: A mass}}, readers: %d}
"""


@pytest.fixture
def at(clinic: Any, serving: list[Served]) -> Callable[..., Served]:
    """Serve six images to so many readers."""

    def start(readers: int = 1) -> Served:
        clinic.site_file.write_text(_SITE % readers)
        clinic.ask(*clinic.ids, several=True)
        serving.append(Served(clinic.site_file, FINDINGS, SEVERAL_LABELS))
        return serving[-1]

    return start


@pytest.fixture
def queue(clinic: Any) -> Callable[[], Queue]:
    return lambda: queue_of(clinic.site_file, SEVERAL_LABELS)


def ticked(tab: Tab) -> list[str]:
    return [
        each.get_attribute("data-label")
        for each in tab.browser.find_elements(By.CSS_SELECTOR, ".choice[aria-pressed=true]")
    ]


def test_digits_toggle_and_enter_sends(
    tab: Tab, at: Callable[..., Served], queue: Callable[[], Queue]
) -> None:
    tab.open(at().address)
    tab.press(Keys.ENTER)
    assert tab.text("said") == "Tick what it shows, or “None of these”."
    tab.press("w")
    tab.until(lambda: tab.browser.switch_to.active_element.get_attribute("id") == "centre")
    tab.press("123")
    tab.press("2")
    assert ticked(tab) == ["Mass", "Hernia"], "keys answer while a slider has the focus"
    assert queue().labels() == {}
    assert tab.answer(Keys.ENTER) == "s00"
    assert tab.text("said") == "Saved: A mass, Hernia."
    tab.wait_for_image()
    assert ticked(tab) == []
    tab.press("1n")
    assert ticked(tab) == ["No Finding"]
    tab.answer(Keys.ENTER)
    tab.press("n2")
    assert ticked(tab) == ["Edema"]
    tab.press("2")
    assert tab.find("send").get_attribute("aria-disabled") == "true"
    assert queue().labels() == {"s00": "Hernia|Mass", "s01": "No Finding"}
    assert tab.browser.get_log("browser") == []


def test_ticks_and_remarks_are_not_those_of_the_next_reader(
    tab: Tab, at: Callable[..., Served]
) -> None:
    tab.open(at().address)
    tab.press("2q")
    assert ticked(tab) == ["Edema"]
    assert tab.find("unsure").get_attribute("aria-pressed") == "true"
    tab.find("reader").click()
    tab.find("name").clear()
    tab.find("name").send_keys("Ben" + Keys.ENTER)
    tab.until(lambda: tab.text("reader") == "Ben")
    tab.wait_for_image()
    assert tab.about() == "s00", "the same image"
    assert ticked(tab) == []
    assert tab.find("unsure").get_attribute("aria-pressed") == "false"


def test_mouse_ticks_undo_and_changed_answers(
    tab: Tab, at: Callable[..., Served], queue: Callable[[], Queue]
) -> None:
    tab.open(at().address)
    for name in ("Edema", "Mass"):
        tab.browser.find_element(By.CSS_SELECTOR, f"[data-label={name}]").click()
    tab.find("send").click()
    tab.until(lambda: tab.about() == "s01")
    tab.wait_for_image()
    tab.answer("x")
    assert queue().verdicts()["s01"].kind == "unusable"
    tab.press("u")
    tab.until(lambda: tab.about() == "s01")
    assert tab.text("undo").endswith("Undo “Edema, A mass” for s00")
    tab.press("l")
    tab.until(lambda: tab.find("given").is_displayed())
    tab.press(Keys.ENTER)
    tab.until(lambda: tab.about() == "s00")
    tab.wait_for_image()
    assert ticked(tab) == ["Mass", "Edema"]
    assert "You said: Edema, A mass." in tab.text("notice")
    tab.press("23")
    tab.press(Keys.ENTER)
    tab.until(lambda: tab.text("said") == "Saved: A mass, Hernia.")
    assert queue().labels() == {"s00": "Hernia|Mass"}


def test_ticks_stay_when_the_page_looks_again(tab: Tab, at: Callable[..., Served]) -> None:
    tab.open(at().address)
    tab.press("2")
    tab.run("window.dispatchEvent(new Event('focus'))")
    tab.until(lambda: tab.find("send").get_attribute("aria-disabled") == "false")
    assert ticked(tab) == ["Edema"]
    assert tab.answer("s") == "s00"
    assert ticked(tab) == [], "they are of one image"


def test_fingers_tick_on_a_telephone(
    tab: Tab, at: Callable[..., Served], queue: Callable[[], Queue]
) -> None:
    tab.command(
        "Emulation.setDeviceMetricsOverride",
        width=390,
        height=844,
        deviceScaleFactor=1,
        mobile=True,
    )
    tab.command("Emulation.setTouchEmulationEnabled", enabled=True)
    try:
        tab.open(at().address)
        assert tab.run("return document.documentElement.scrollWidth") <= 390
        for where in ("[data-label=Edema]", "[data-label=Hernia]", "#send"):
            box = tab.browser.find_element(By.CSS_SELECTOR, where).rect
            assert box["height"] >= 44
            point = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
            tab.command("Input.dispatchTouchEvent", type="touchStart", touchPoints=[point])
            tab.command("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        tab.until(lambda: tab.about() == "s01")
        assert queue().labels() == {"s00": "Edema|Hernia"}
    finally:
        tab.command("Emulation.setTouchEmulationEnabled", enabled=False)


def test_tab_space_and_the_send_button_are_enough(
    tab: Tab, at: Callable[..., Served], queue: Callable[[], Queue]
) -> None:
    tab.open(at().address)
    tab.run("document.getElementById('shortcuts').click()")
    tab.run("document.querySelector('[data-label=Mass]').focus()")
    tab.press(Keys.SPACE + Keys.TAB + Keys.ENTER)
    assert ticked(tab) == ["Mass", "Edema"], "without single keys, Enter is the button's"
    tab.press(Keys.TAB * 3)
    assert tab.browser.switch_to.active_element.get_attribute("id") == "send"
    tab.press(Keys.ENTER)
    tab.until(lambda: tab.about() == "s01")
    assert queue().labels() == {"s00": "Edema|Mass"}


def test_two_readers_are_told_how_far_they_agree(
    tab: Tab,
    at: Callable[..., Served],
    queue: Callable[[], Queue],
    make_clinician: Callable[..., Any],
) -> None:
    server = at(2)
    for name, labels in (("Ben", ["Mass", "No Finding"]), ("Clara", ["Mass", "Edema"])):
        for number, label in enumerate(labels):
            make_clinician(queue(), name).say(f"s{number:02d}", label)
    tab.open(server.address)
    assert tab.text("notice") == "Readers differ here. Your answer decides."
    assert tab.text("agreement") == "1 of 2, κ 0.33"
    tab.find("kappas").find_element(By.XPATH, "../summary").click()
    assert tab.text("kappas").split("\n") == ["Edema", "κ 0.00", "A mass", "κ 1.00"]


def test_a_job_of_another_kind_closes_the_open_page(
    tab: Tab, at: Callable[..., Served], clinic: Any, queue: Callable[[], Queue]
) -> None:
    tab.open(at().address)
    tab.press("1")
    tab.answer(Keys.ENTER)
    tab.wait_for_image(other_than="s00")
    clinic.ask(*clinic.ids, run="newer")
    tab.press("2" + Keys.ENTER)
    tab.until(lambda: "asks for another kind of answer" in tab.browser.page_source)
    assert "Answers before that are saved" in tab.browser.find_element(By.TAG_NAME, "main").text
    assert queue().labels() == {"s00": "Mass"}
    clinic.ask(*clinic.ids, several=True, run="newest")
    tab.browser.refresh()
    assert tab.wait_for_image(other_than="s00")
    assert ticked(tab) == []

"""Reading at the page: lesions, earlier answers, refused images, adjudication, windows."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from chromium import Served, Tab
from fedward.annotation import queue_of

pytestmark = pytest.mark.browser

CLASSES = ("MEL", "NV", "BCC")
_READING = """kind: manifest
folder: .
columns: {group: patient}
reading:
  columns: [age]
  lesion: lesion
  classes: {MEL: {title: Melanoma, definition: A tumour.}}
"""


@pytest.fixture
def lesions(make_clinic: Callable[[int], Any]) -> Any:
    """Six images of two patients; the first three show one lesion, the next two another."""
    clinic = make_clinic(6)
    rows = ["sample_id,image,label,patient,lesion,age"]
    rows += [
        f"{name},images/{name}.png,,p{index // 5},l{index // 3},50"
        for index, name in enumerate(clinic.ids)
    ]
    (clinic.site_file.parent / "manifest.csv").write_text("\n".join(rows))
    clinic.site_file.write_text(_READING)
    clinic.ask(*(name for name in clinic.ids if name != "s02"))
    return clinic


@pytest.fixture
def at(lesions: Any, serving: list[Served]) -> Callable[..., Served]:
    """Serve the clinic with lines added to its site file."""

    def start(more: str = "") -> Served:
        lesions.site_file.write_text(_READING + more)
        serving.append(Served(lesions.site_file, CLASSES))
        return serving[-1]

    return start


def pressed(tab: Tab, where: str) -> list[str]:
    found = tab.browser.find_elements(By.CSS_SELECTOR, f"{where} [aria-pressed=true]")
    return [
        each.get_attribute("data-id") or each.get_attribute("data-label") or each.text
        for each in found
    ]


def test_a_lesion_is_asked_once_beside_its_other_images(
    tab: Tab, at: Callable[..., Served], lesions: Any
) -> None:
    tab.open(at().address)
    assert tab.text("question") == "What does this lesion show?"
    assert "50" in tab.text("facts")
    shown = tab.browser.find_elements(By.CSS_SELECTOR, "#strip button")
    assert [each.get_attribute("data-id") for each in shown] == ["s00", "s01", "s02", "s03", "s04"]
    assert [each.get_attribute("class") for each in shown] == ["together", "together", "", "", ""]
    tab.press(".")
    tab.until(lambda: pressed(tab, "#strip") == ["s01"] and tab.find("image").is_displayed())
    assert tab.answer("1") == "s00"
    assert queue_of(lesions.site_file).labels() == {"s00": "MEL", "s01": "MEL"}
    assert tab.text("said") == "Saved: Melanoma."


def test_no_answer_is_given_while_another_image_is_looked_at(
    tab: Tab, at: Callable[..., Served], lesions: Any
) -> None:
    tab.open(at().address)
    tab.browser.find_element(By.CSS_SELECTOR, "#strip [data-id=s03]").click()
    tab.until(lambda: tab.find("aside").is_displayed() and tab.find("image").is_displayed())
    tab.press("1")
    tab.press("x")
    tab.find("aside").click()
    tab.wait_for_image()
    assert not tab.find("aside").is_displayed()
    assert tab.about() == "s00"
    assert queue_of(lesions.site_file).verdicts() == {}


def test_own_answers_are_listed_shown_and_changed_by_keyboard(
    tab: Tab, at: Callable[..., Served], lesions: Any
) -> None:
    tab.open(at().address)
    tab.answer("1")
    tab.wait_for_image()
    tab.answer("n")
    tab.press("l")
    tab.until(lambda: tab.find("given").is_displayed())
    listed = [each.text for each in tab.browser.find_elements(By.CSS_SELECTOR, "#given-list b")]
    assert listed == ["none of these", "Melanoma"]
    tab.press(Keys.TAB)
    tab.press(Keys.ENTER)
    tab.until(lambda: "You said: Melanoma" in tab.text("notice") and tab.about() == "s00")
    tab.wait_for_image()
    assert pressed(tab, ".choices") == ["MEL"]
    tab.press("2")
    tab.until(lambda: tab.text("said") == "Saved: NV.")
    assert queue_of(lesions.site_file).labels() == {"s00": "NV", "s01": "NV"}
    assert queue_of(lesions.site_file).verdicts()["s03"].kind == "none of these"
    assert tab.find("notice").text == ""


def test_what_is_looked_at_again_may_stay_as_it_is(
    tab: Tab, at: Callable[..., Served], lesions: Any
) -> None:
    tab.open(at().address)
    first = tab.answer("x")
    tab.wait_for_image()
    tab.find("own").click()
    tab.until(lambda: tab.find("given").is_displayed())
    tab.browser.find_element(By.CSS_SELECTOR, "#given-list button").click()
    tab.until(lambda: tab.about() == first)
    assert pressed(tab, ".actions")
    tab.find("back").click()
    tab.until(lambda: tab.about() not in ("", first))
    assert queue_of(lesions.site_file).verdicts()[first].kind == "unusable"


def test_an_adjudicator_is_told_that_readers_differ(
    tab: Tab, at: Callable[..., Served], lesions: Any, make_clinician: Callable[..., Any]
) -> None:
    server = at("  readers: 2\n  adjudicators: [Dr. Weiss]\n")
    queue = queue_of(lesions.site_file)
    for name, label in (("Anna", "MEL"), ("Ben", "NV")):
        make_clinician(queue, name).say("s00", label)
    tab.open(server.address, "Dr. Weiss")
    assert tab.text("notice") == "Readers differ here. Your answer decides."
    assert "MEL" not in tab.text("notice")
    assert (tab.text("waiting"), tab.text("disputed")) == ("1", "1")
    tab.press("3")
    tab.until(lambda: tab.text("question") == "Nothing is waiting for you")
    assert queue.labels() == {"s00": "BCC", "s01": "BCC"}


def test_seconds_are_those_at_the_question(
    tab: Tab, at: Callable[..., Served], lesions: Any
) -> None:
    tab.open(at().address)
    tab.answer("1")
    with queue_of(lesions.site_file).database.reading() as database:
        seconds = database.execute("SELECT seconds FROM answers").fetchone()[0]
    assert 0 <= seconds < 600


_SHOWN = """
const image = document.getElementById("image"), canvas = document.createElement("canvas");
Object.assign(canvas, { width: image.naturalWidth, height: image.naturalHeight });
const drawing = canvas.getContext("2d");
drawing.filter = "none";
drawing.drawImage(image, 0, 0);
return drawing.getImageData(arguments[0], 0, 1, 1).data[0];
"""


def test_window_and_level_of_sixteen_bits_by_key_and_mouse(
    tab: Tab, at: Callable[..., Served], lesions: Any
) -> None:
    values = np.tile(np.linspace(1000, 5000, 40).astype(np.uint16), (30, 1))
    Image.fromarray(values).save(lesions.site_file.parent / "images" / "s00.png")
    tab.open(at().address)
    tab.until(lambda: tab.find("window").is_displayed())
    before = tab.run(_SHOWN, 20)
    tab.press("w")
    assert tab.browser.switch_to.active_element.get_attribute("id") == "centre"
    assert tab.text("centre-now") == "3000"
    tab.press(Keys.ARROW_RIGHT * 3)
    tab.until(lambda: tab.text("centre-now") != "3000")
    tab.until(
        lambda: (
            tab.run(_SHOWN, 20) != before
            or tab.run("return document.getElementById('image').src").count("centre")
        )
    )
    tab.press(Keys.ESCAPE)
    assert not tab.find("levels").is_displayed()
    centre = tab.find("centre").get_attribute("value")
    tab.command(
        "Input.dispatchMouseEvent",
        type="mousePressed",
        x=300,
        y=300,
        button="right",
        buttons=2,
        clickCount=1,
    )
    tab.command(
        "Input.dispatchMouseEvent", type="mouseMoved", x=200, y=360, button="right", buttons=2
    )
    tab.command(
        "Input.dispatchMouseEvent", type="mouseReleased", x=200, y=360, button="right", clickCount=1
    )
    tab.until(lambda: tab.find("centre").get_attribute("value") != centre)
    tab.until(lambda: "width=" in tab.run("return document.getElementById('image').src"))
    tab.until(lambda: tab.run("return document.getElementById('image').style.filter") == "")
    tab.find("window").click()
    tab.find("reset").click()
    tab.until(lambda: tab.text("centre-now") == "3000" and tab.run(_SHOWN, 20) == before)


def test_colour_has_no_window(tab: Tab, at: Callable[..., Served]) -> None:
    tab.open(at().address)
    tab.press("w")
    assert not tab.find("window").is_displayed()
    assert not tab.find("levels").is_displayed()

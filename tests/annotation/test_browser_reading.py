"""Reading at the page: lesions, earlier answers, refused images, adjudication, windows."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from chromium import Served, Tab
from fedward.annotation import OwnAgreement, Remark, queue_of

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
    tab.press(",b")
    assert tab.text("beside-name") == "Image s01 · 1 of 4 others"
    tab.press(".")
    assert tab.text("beside-name") == "Image s02 · 2 of 4 others"
    tab.browser.find_element(By.CSS_SELECTOR, "#strip [data-id=s04]").click()
    assert tab.text("beside-name") == "Image s04 · 4 of 4 others"
    loaded = "return document.getElementById('beside-image').naturalWidth"
    tab.until(lambda: tab.run(loaded) == 40)
    stage = tab.find("stage").rect
    assert stage["x"] + stage["width"] <= tab.find("beside").rect["x"] + 1
    tab.wait_for_image()
    assert tab.answer("1") == "s00", "the image in question can be answered all the while"
    assert queue_of(lesions.site_file).labels() == {"s00": "MEL", "s01": "MEL"}
    assert tab.text("said") == "Saved: Melanoma."
    assert tab.text("beside-name").startswith("Image s04 · 1 of"), "another lesion, still beside"
    tab.press("b")
    assert not tab.find("beside").is_displayed()


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
    tab.press("qd")
    assert tab.browser.switch_to.active_element.get_attribute("id") == "comment"
    tab.press("123 x-ray?" + Keys.ENTER)
    assert queue_of(lesions.site_file).verdicts() == {}, "what is typed is no answer"
    tab.answer("1")
    assert tab.text("said") == "Saved: Melanoma, unsure, to discuss."
    tab.wait_for_image()
    assert pressed(tab, ".actions") == [], "a remark is of one answer"
    assert not tab.find("why").is_displayed()
    tab.answer("n")
    tab.press("l")
    tab.until(lambda: tab.find("given").is_displayed())
    listed = [each.text for each in tab.browser.find_elements(By.CSS_SELECTOR, "#given-list b")]
    assert listed == ["none of these", "Melanoma, unsure, to discuss"]
    assert re.fullmatch(r"2 answers, \d+\.\d seconds each \(median\)", tab.text("given-pace"))
    tab.browser.find_element(By.CSS_SELECTOR, "[data-which=unsure]").click()
    assert tab.text("given-list").split("\n")[:2] == ["Melanoma, unsure, to discuss", "123 x-ray?"]
    assert pressed(tab, "#given-which") == ["Unsure"]
    tab.press(Keys.TAB * 2)
    tab.press(Keys.ENTER)
    tab.until(lambda: "You said: Melanoma" in tab.text("notice") and tab.about() == "s00")
    tab.wait_for_image()
    assert pressed(tab, ".choices") == ["MEL"]
    assert tab.find("comment").get_attribute("value") == "123 x-ray?"
    tab.press("q2")
    tab.until(lambda: tab.text("said") == "Saved: NV, to discuss.")
    assert queue_of(lesions.site_file).labels() == {"s00": "NV", "s01": "NV"}
    assert queue_of(lesions.site_file).verdicts()["s03"].kind == "none of these"
    remarks = {each.text: each.remark for each in queue_of(lesions.site_file).decisions()}
    assert remarks["NV"] == Remark(unsure=False, discuss=True, comment="123 x-ray?")
    assert remarks["none of these"] == Remark()
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
    for name in ("s00", "s03"):
        Image.fromarray(values).save(lesions.site_file.parent / "images" / f"{name}.png")
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
    tab.press("w")
    assert not tab.find("levels").is_displayed(), "W closes what it has opened"
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
    own = tab.find("centre").get_attribute("value"), tab.find("width").get_attribute("value")
    tab.press("w2")
    tab.until(lambda: tab.about() == "s03" and tab.find("window").is_displayed())
    assert queue_of(lesions.site_file).labels()["s00"] == "NV", "keys answer beside an open window"
    assert tab.text("window") == "Window (yours)"
    now = tab.find("centre").get_attribute("value"), tab.find("width").get_attribute("value")
    assert now == own, "the window holds for the next image of the kind"
    tab.until(lambda: "width=" in tab.run("return document.getElementById('image').src"))
    tab.find("reset").click()
    tab.until(lambda: tab.text("centre-now") == "3000" and tab.run(_SHOWN, 20) == before)
    tab.wait_for_image()
    tab.press("3")
    tab.until(lambda: tab.about() == "s05" and tab.find("window").is_displayed())
    assert tab.text("window") == "Brightness", "colour has no window"
    assert tab.text("centre-name") == "Brightness"
    tab.find("centre").send_keys(Keys.ARROW_RIGHT * 3)
    tab.find("width").send_keys(Keys.ARROW_LEFT * 2)
    assert (tab.text("centre-now"), tab.text("width-now")) == ("3", "98 %")
    assert tab.text("window") == "Brightness (yours)"
    slope = "return document.querySelector('#stretch feFuncR').getAttribute('slope')"
    assert float(tab.run(slope)) == pytest.approx(0.98, abs=0.001)


def test_a_slow_network_says_what_is_open(
    tab: Tab, at: Callable[..., Served], lesions: Any
) -> None:
    slow = {"offline": False, "downloadThroughput": -1, "uploadThroughput": -1}
    tab.open(at().address)
    tab.command("Network.enable")
    try:
        tab.command("Network.emulateNetworkConditions", latency=600, **slow)
        tab.press("bqdwhy" + Keys.ENTER)
        assert tab.text("beside-name") == "Image s01 · 1 of 4 others"
        tab.press("b1")
        tab.until(lambda: tab.text("said") == "Saving…")
        tab.press("2")
        tab.until(lambda: tab.text("said") == "Saved: Melanoma, unsure, to discuss.")
        tab.press("3")
        tab.until(lambda: tab.text("empty") == "Loading the image…")
        tab.wait_for_image()
        assert (tab.about(), tab.text("empty")) == ("s03", "")
        tab.press("w")
        tab.until(lambda: tab.find("levels").is_displayed())
        tab.press("3")
        tab.until(lambda: tab.text("said") == "")
    finally:
        tab.command("Network.disable")
    tab.until(lambda: tab.text("said") == "Saved: BCC.")
    labels = queue_of(lesions.site_file).labels()
    assert labels == {"s00": "MEL", "s01": "MEL", "s03": "BCC", "s04": "BCC"}


def test_examples_are_shown_and_checks_are_asked_as_any_image(
    tab: Tab, make_clinic: Callable[[int], Any], serving: list[Served], make_clinician: Any
) -> None:
    clinic = make_clinic(26)
    clinic.site_file.write_text(
        "kind: manifest\nfolder: .\ncolumns: {group: null}\n"
        "reading: {repeat: 1, known: {s25: NV}, classes: {BCC: {examples: [s24]}}}\n"
    )
    clinic.ask(*clinic.ids[:24])
    queue = queue_of(clinic.site_file)
    anna = make_clinician(queue, "Anna")
    for sample_id in clinic.ids[:21]:
        anna.say(sample_id, "NV")
    serving.append(Served(clinic.site_file, CLASSES))
    tab.open(serving[0].address)
    tab.press("e")
    small = "return document.querySelector('#examples-list img')?.naturalWidth"
    tab.until(lambda: tab.run(small) == 40)
    assert tab.text("examples-list") == "BCC"
    tab.press(Keys.ENTER + Keys.ESCAPE)
    said = (tab.text("notice"), tab.text("count"), tab.text("question"))
    assert said == ("", "21 of 29 by you", "What does this image show?")
    assert tab.answer("1") == "s25", "the image of known class"
    tab.press("u")
    tab.until(lambda: tab.about() == "s25")
    tab.wait_for_image()
    tab.answer("2")
    asked = []
    for key in "1222222":
        tab.wait_for_image(other_than=asked[-1] if asked else "s25")
        assert (tab.text("notice"), pressed(tab, ".choices")) == ("", [])
        asked.append(tab.about())
        tab.press(key)
    tab.until(lambda: tab.text("question") == "Nothing is waiting for you")
    assert asked == ["s00", "s21", "s01", "s22", "s02", "s23", "s03"]
    assert queue.labels() == dict.fromkeys(clinic.ids[:24], "NV")
    assert queue.own_agreement() == {"Anna": OwnAgreement(4, 3, 1, 1)}
    assert "came twice: 3 of 4" in tab.text("empty")
    assert "known class: 1 of 1" in tab.text("empty")

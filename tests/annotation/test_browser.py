"""The page as a clinician uses it, in headless Chromium, also when its server dies."""

import re
import signal
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image
from selenium.webdriver import ActionChains, Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from chromium import Served, Server, Tab, start_browser

pytestmark = pytest.mark.browser

CLASSES = ("MEL", "NV", "BCC")


def test_twenty_images_are_answered_by_keyboard_over_a_reload(
    tab: Tab, serve: Callable[[], Served], big_clinic: Any
) -> None:
    tab.open(serve().address)
    assert tab.text("reader") == "Anna"
    assert "token" not in tab.browser.current_url
    expected = {}
    for number in range(10):
        expected[tab.answer(str(1 + number % 3))] = CLASSES[number % 3]
    tab.browser.refresh()
    tab.wait_for_image()
    assert tab.text("count") == "10 of 24"
    assert tab.text("undo").endswith(f"Undo “MEL” for {big_clinic.ids[9]}")
    for number in range(10, 20):
        expected[tab.answer(str(1 + number % 3))] = CLASSES[number % 3]
    assert big_clinic.queue.labels() == expected
    assert list(expected) == big_clinic.ids[:20]
    assert tab.text("waiting") == "4"
    assert tab.browser.get_log("browser") == []


def test_skip_cannot_tell_undo_and_the_end_of_the_queue(
    tab: Tab, serving: list[Served], clinic: Any
) -> None:
    clinic.ask(*clinic.ids)
    serving.append(Served(clinic.site_file, CLASSES))
    tab.open(serving[0].address)
    skipped = tab.answer("s")
    unclear = tab.answer("c")
    assert tab.text("waiting") == "5 (1 skipped)"
    wrong = tab.answer("1")
    assert tab.text("said") == "Saved: MEL."
    assert tab.answer("u") != wrong
    tab.wait_for_image()
    assert tab.about() == wrong
    assert clinic.queue.labels() == {}
    for _ in range(4):
        tab.answer("2")
    assert tab.about() == skipped
    tab.press("3")
    tab.until(lambda: tab.text("question") == "Nothing is waiting for you")
    assert "All images are done" in tab.text("empty")
    labels = clinic.queue.labels()
    assert (labels[skipped], labels[wrong], len(labels)) == ("BCC", "NV", 5)
    assert clinic.queue.cannot_tell() == {unclear}
    assert tab.text("undecidable") == "1"
    ActionChains(tab.browser).key_down(Keys.CONTROL).send_keys("z").key_up(Keys.CONTROL).perform()
    tab.wait_for_image()
    assert tab.about() == skipped


def undo_of(tab: Tab) -> tuple[str, str]:
    """Return the text on the button, and the sentence that says it in full."""
    text = tab.run("return document.querySelector('#undo span').textContent")
    return text, tab.find("undo").get_attribute("title")


def test_undo_says_what_it_takes_back_at_any_moment(
    tab: Tab, serving: list[Served], make_clinic: Callable[[int], Any]
) -> None:
    clinic = make_clinic(2)
    clinic.ask(*clinic.ids)
    serving.append(Served(clinic.site_file, CLASSES))
    tab.open(serving[0].address)
    assert undo_of(tab) == ("Undo", "There is no answer to take back.")
    again = ", and show the image again."
    tab.answer("s")
    text = "Undo the skip of s00"
    assert undo_of(tab) == (text, text + again)
    tab.answer("1")
    text = "Undo “MEL” for s01"
    assert undo_of(tab) == (text, text + again)
    tab.press("2")
    tab.until(lambda: tab.text("question") == "Nothing is waiting for you")
    text = "Undo “NV” for s00"
    assert undo_of(tab) == (text, text + again)
    tab.press("l")
    tab.until(lambda: tab.find("given").is_displayed())
    tab.press(Keys.ENTER)
    tab.until(lambda: tab.text("notice").startswith("You said: NV."))
    tab.wait_for_image()
    tab.press("3")
    tab.until(lambda: tab.text("said") == "Saved: BCC.")
    text = "Undo “BCC” for s00, back to “NV”"
    assert undo_of(tab) == (text, f"{text}.")
    tab.press("u")
    tab.until(lambda: tab.text("said") == "Taken back: “BCC” for s00.")
    assert undo_of(tab)[0] == "Undo “NV” for s00"
    assert clinic.queue.labels() == {"s00": "NV", "s01": "MEL"}


def test_the_second_click_of_a_double_click_answers_no_image(
    tab: Tab, serve: Callable[[], Served], big_clinic: Any
) -> None:
    """It comes when the next image has just appeared."""
    tab.open(serve().address)
    first = tab.about()
    tab.run(
        "const button = document.querySelector('.choice');"
        "const again = () => setTimeout(() => button.click(), 50);"
        "document.getElementById('image').addEventListener('load', again, { once: true });"
        "button.click();"
    )
    tab.wait_for_image(other_than=first)
    assert big_clinic.queue.labels() == {first: "MEL"}
    assert tab.about() == big_clinic.ids[1]


def test_buttons_do_what_keys_do(tab: Tab, serve: Callable[[], Served], big_clinic: Any) -> None:
    tab.open(serve().address)
    first = tab.about()
    tab.browser.find_element(By.CSS_SELECTOR, "[data-label=BCC]").click()
    tab.wait_for_image(other_than=first)
    tab.find("undo").click()
    tab.until(lambda: tab.about() == first)
    assert big_clinic.queue.labels() == {}


def test_new_requests_appear_on_a_page_that_waits(
    tab: Tab, serving: list[Served], make_clinic: Callable[[int], Any]
) -> None:
    clinic = make_clinic(2)
    serving.append(Served(clinic.site_file, CLASSES))
    tab.browser.get(serving[0].address)
    tab.find("name").send_keys("Anna" + Keys.ENTER)
    tab.until(lambda: "No images have been asked for" in tab.text("empty"))
    clinic.ask("s01")
    tab.until(lambda: tab.run("window.dispatchEvent(new Event('focus'))") or tab.about() == "s01")


def test_two_tabs_at_once_never_answer_the_same_image_twice(
    tab: Tab, serve: Callable[[], Served], big_clinic: Any
) -> None:
    address = serve().address
    tab.open(address)
    tab.browser.switch_to.new_window("tab")
    other = Tab(tab.browser, tab.browser.current_window_handle).open(address)
    answered = []
    for turn in range(8):
        now = (tab, other)[turn % 2].to_front()
        # What a tab does when it comes to the front; a headless browser may leave it out.
        now.run("window.dispatchEvent(new Event('focus'))")
        now.until(lambda page=now: page.wait_for_image() and page.about() not in answered)
        answered.append(now.answer("1"))
    assert big_clinic.queue.labels() == dict.fromkeys(answered, "MEL")
    assert len(answered) == len(set(answered))


def test_an_image_answered_in_another_tab_is_not_answered_again(
    tab: Tab, serve: Callable[[], Served], big_clinic: Any, make_clinician: Callable[..., Any]
) -> None:
    tab.open(serve().address)
    first = tab.about()
    make_clinician(big_clinic.queue, "Anna").say(first, "NV")
    tab.press("1")
    tab.wait_for_image(other_than=first)
    assert "already answered" in tab.text("trouble")
    assert big_clinic.queue.labels() == {first: "NV"}


def test_a_second_reader_sees_the_same_images_and_the_agreement(
    tab: Tab, serve: Callable[[], Served], big_clinic: Any
) -> None:
    big_clinic.site_file.write_text(big_clinic.site_file.read_text() + "reading: {readers: 2}\n")
    tab.open(serve().address)
    for key in "123":
        tab.answer(key)
    tab.find("reader").click()
    tab.find("name").clear()
    tab.find("name").send_keys("Ben" + Keys.ENTER)
    tab.until(lambda: tab.text("reader") == "Ben" and tab.text("mine") == "0")
    tab.wait_for_image()
    assert tab.about() == big_clinic.ids[0]
    for key in "121":
        tab.answer(key)
    assert tab.text("agreement") == "2 of 3, κ 0.50"
    assert (tab.text("count"), tab.text("final")) == ("3 of 24 by you", "2 of 24")


def test_two_tabs_may_have_two_readers(
    tab: Tab, serve: Callable[[], Served], big_clinic: Any
) -> None:
    """A name that is changed in one tab is not that of the answers given in the other."""
    big_clinic.site_file.write_text(big_clinic.site_file.read_text() + "reading: {readers: 2}\n")
    address = serve().address
    tab.open(address)
    tab.browser.switch_to.new_window("tab")
    other = Tab(tab.browser, tab.browser.current_window_handle).open(address)
    other.find("reader").click()
    other.find("name").clear()
    other.find("name").send_keys("Ben" + Keys.ENTER)
    other.until(lambda: other.text("reader") == "Ben")
    other.wait_for_image()
    other.answer("2")
    tab.to_front()
    assert tab.text("reader") == "Anna"
    tab.answer("1")
    answers = {(each.annotator, each.label) for each in big_clinic.queue.decisions()}
    assert answers == {("Ben", "NV"), ("Anna", "MEL")}


def test_a_killed_server_loses_no_answer_and_the_page_goes_on(
    tab: Tab, command: Callable[..., Server], big_clinic: Any
) -> None:
    server = command()
    tab.open(server.address)
    first = tab.answer("1")
    second = tab.answer("2")
    server.end(signal.SIGKILL)
    assert big_clinic.queue.labels() == {first: "MEL", second: "NV"}
    third = tab.about()
    tab.press("3")
    tab.until(lambda: "Not saved yet" in tab.text("trouble"))
    assert tab.about() == third
    (chosen,) = tab.browser.find_elements(By.CSS_SELECTOR, ".chosen")
    assert chosen.text.endswith("basal cell carcinoma")
    again = command(server.port)
    assert again.address == server.address
    tab.wait_for_image(other_than=third)
    assert tab.text("trouble") == ""
    assert tab.text("said") == "Saved: basal cell carcinoma."
    assert tab.browser.find_elements(By.CSS_SELECTOR, ".chosen") == []
    assert big_clinic.queue.labels() == {first: "MEL", second: "NV", third: "BCC"}
    again.end(signal.SIGKILL)
    command(server.port)
    tab.browser.refresh()
    tab.wait_for_image()
    assert tab.text("count") == "3 of 24"


def test_a_page_of_a_former_server_says_its_answer_is_unsaved(
    tab: Tab, command: Callable[..., Server], big_clinic: Any
) -> None:
    server = command()
    tab.open(server.address)
    code, text = server.end(signal.SIGINT)
    assert (code, "saved" in text) == (0, True)
    assert server.line.count("\n") == 1
    assert not (big_clinic.queue.folder / "token").exists()
    command(server.port)
    tab.press("1")
    tab.until(lambda: "Not saved." in tab.text("trouble"))
    assert "new address" in tab.text("trouble")
    assert big_clinic.queue.labels() == {}


_WOULD_LEAVE = """
const leaving = new Event("beforeunload", { cancelable: true });
return window.dispatchEvent(leaving);
"""


def test_the_page_asks_before_it_is_left_with_an_unsaved_answer(
    tab: Tab, command: Callable[..., Server], big_clinic: Any
) -> None:
    server = command()
    tab.open(server.address)
    assert tab.run(_WOULD_LEAVE)
    server.end(signal.SIGKILL)
    (big_clinic.queue.folder / "token").unlink()
    tab.press("1")
    tab.until(lambda: "Not saved yet" in tab.text("trouble"))
    assert not tab.run(_WOULD_LEAVE)
    tab.find("reader").click()
    assert not tab.find("who").is_displayed()
    command(server.port)
    tab.until(lambda: "new address" in tab.text("trouble"))
    assert tab.run(_WOULD_LEAVE)
    tab.find("reader").click()
    assert tab.find("who").is_displayed()


def test_a_name_that_a_spreadsheet_would_carry_out_is_not_taken(
    tab: Tab, serve: Callable[[], Served], big_clinic: Any
) -> None:
    tab.browser.get(serve().address)
    tab.find("name").send_keys(" =1+1" + Keys.ENTER)
    assert tab.find("who").is_displayed()
    tab.find("name").clear()
    tab.find("name").send_keys("O'Brien-Ñ (2)" + Keys.ENTER)
    tab.wait_for_image()
    assert tab.text("reader") == "O'Brien-Ñ (2)"


def test_an_image_that_cannot_be_shown_cannot_be_labelled(
    tab: Tab, serve: Callable[[], Served], big_clinic: Any
) -> None:
    (big_clinic.site_file.parent / "images" / "s00.png").write_bytes(b"no image")
    tab.browser.get(serve().address)
    tab.find("name").send_keys("Anna" + Keys.ENTER)
    tab.until(lambda: "cannot be shown" in tab.text("empty"))
    tab.press("1")
    tab.press("c")
    tab.wait_for_image(other_than="s00")
    assert big_clinic.queue.labels() == {}
    assert big_clinic.queue.cannot_tell() == {"s00"}


def test_single_keys_can_be_switched_off(
    tab: Tab, serve: Callable[[], Served], big_clinic: Any
) -> None:
    tab.open(serve().address)
    tab.press("?")
    tab.find("shortcuts").click()
    tab.press("1")
    tab.press(Keys.ESCAPE)
    tab.press("1")
    tab.browser.refresh()
    tab.wait_for_image()
    tab.press("1")
    tab.browser.find_element(By.CSS_SELECTOR, "[data-label=NV]").send_keys(Keys.ENTER)
    tab.wait_for_image(other_than="s00")
    assert big_clinic.queue.labels() == {"s00": "NV"}


# --- zoom


def box(tab: Tab) -> dict[str, float]:
    found: dict[str, float] = tab.run(
        "return document.getElementById('image').getBoundingClientRect().toJSON()"
    )
    return found


def test_zoom_by_key_wheel_finger_and_button_and_moving(
    tab: Tab, serve: Callable[[], Served], big_clinic: Any
) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (1200, 1600, 3), np.uint8)
    Image.fromarray(pixels).save(big_clinic.site_file.parent / "images" / "s00.png")
    width = "return document.getElementById('image').naturalWidth"
    tab.open(serve().address)
    stage = tab.find("stage")
    whole = box(tab)
    assert 640 <= tab.run(width) <= 1024, "no more pixels than the stage shows, in steps of 128"
    assert tab.text("scale") == "Fits"
    assert whole["width"] <= stage.size["width"] + 1
    assert whole["height"] <= stage.size["height"] + 1
    assert max(whole["width"] / stage.size["width"], whole["height"] / stage.size["height"]) > 0.99
    assert whole["width"] / whole["height"] == pytest.approx(40 / 30)

    tab.press("+")
    assert box(tab)["width"] == pytest.approx(1.5 * whole["width"])
    tab.until(lambda: tab.run(width) == 1600)
    assert box(tab)["width"] == pytest.approx(1.5 * whole["width"]), "sharper, and no larger"
    tab.until(lambda: tab.text("scale") == f"{round(100 * box(tab)['width'] / 1600)} %")
    before = box(tab)
    tab.press(Keys.ARROW_LEFT)
    assert box(tab)["x"] == pytest.approx(before["x"] + 60)
    ActionChains(tab.browser).drag_and_drop_by_offset(stage, -30, -20).perform()
    assert (box(tab)["x"], box(tab)["y"]) == pytest.approx((before["x"] + 30, before["y"] - 20))
    tab.press("f")
    assert box(tab) == pytest.approx(whole)

    tab.find("in").click()
    tab.find("out").click()
    assert box(tab) == pytest.approx(whole)
    ActionChains(tab.browser).double_click(stage).perform()
    assert box(tab)["width"] > 2 * whole["width"]
    ActionChains(tab.browser).double_click(stage).perform()
    assert box(tab) == pytest.approx(whole)
    tab.press("-")
    assert box(tab) == pytest.approx(whole)

    left = stage.location["x"] + 200
    top = stage.location["y"] + 200
    spot = (left - whole["x"]) / whole["width"]
    tab.command("Input.dispatchMouseEvent", type="mouseWheel", x=left, y=top, deltaX=0, deltaY=-300)
    tab.until(lambda: box(tab)["width"] > 1.2 * whole["width"])
    wheeled = box(tab)
    assert (left - wheeled["x"]) / wheeled["width"] == pytest.approx(spot, abs=0.01)

    for kind, gap in [("touchStart", 40), ("touchMove", 60), ("touchMove", 80), ("touchEnd", None)]:
        points = (
            []
            if gap is None
            else [{"x": left - gap, "y": top, "id": 0}, {"x": left + gap, "y": top, "id": 1}]
        )
        tab.command("Input.dispatchTouchEvent", type=kind, touchPoints=points)
    tab.until(lambda: box(tab)["width"] > 1.5 * wheeled["width"])
    tab.answer("1")
    tab.until(lambda: box(tab) == pytest.approx(whole))


# --- looks, at every size


@pytest.fixture(scope="module", params=[13, 16, 32], ids=["80 %", "100 %", "200 %"])
def sized_browser(request: pytest.FixtureRequest) -> Iterator[Chrome]:
    """A browser whose user has set another text size."""
    driver = start_browser(request.param)
    yield driver
    driver.quit()


def test_nothing_is_cut_off_at_any_width_and_text_size(
    sized_browser: Chrome, serve: Callable[[], Served], big_clinic: Any
) -> None:
    tab = Tab(sized_browser, sized_browser.current_window_handle)
    address = serve().address
    for width, height in [(360, 740), (844, 390), (820, 1180), (1366, 625), (1440, 900)]:
        tab.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        tab.open(address)
        assert tab.run("return document.scrollingElement.scrollWidth") <= width
        stage = tab.find("stage").size
        assert stage["height"] >= 0.4 * height or stage["width"] >= 0.6 * width
        for element in tab.browser.find_elements(By.CSS_SELECTOR, "button, .numbers dd, #about"):
            if element.is_displayed():
                left, right, inner, outer = tab.run(
                    "const box = arguments[0].getBoundingClientRect();"
                    "return [box.left, box.right, arguments[0].scrollWidth, "
                    "arguments[0].clientWidth]",
                    element,
                )
                assert 0 <= left < right <= width, element.text
                assert inner <= outer + 1, element.text


LONG = (
    "pneumonia_other_than_viral",
    "cardiomegaly",
    "Plattenepithelkarzinom",
    "MEL",
    "NV",
    "BCC",
    "AK",
    "DF",
)
_IN_VIEW = """
const parts = document.querySelectorAll(
  "#stage, .choice, .actions button, .zoom button:not([hidden])");
return [...parts].filter((part) => {
  const box = part.getBoundingClientRect();
  const corners = [[box.left + 3, box.top + 3], [box.right - 3, box.bottom - 3]];
  const isSeen = ([x, y]) => part.contains(document.elementFromPoint(x, y));
  return part.id !== "stage" && !corners.every(isSeen);
}).map((part) => part.textContent);
"""


_SIZES = {
    8: [(1366, 625), (844, 390), (768, 1024), (390, 844)],
    20: [(1366, 625), (1024, 768), (768, 1024)],
}


@pytest.mark.parametrize("classes", _SIZES)
def test_image_and_all_answers_are_in_view_at_once(
    tab: Tab, big_clinic: Any, serving: list[Served], classes: int
) -> None:
    """On a laptop, a telephone and a tablet, with names that are long."""
    with big_clinic.site_file.open("a") as file:
        file.write(f"site: {'Universitätsklinikum Überall, ' * 4}\n")
    names = [*LONG, *(f"lung_opacity_{index}" for index in range(classes - len(LONG)))]
    serving.append(Served(big_clinic.site_file, names))
    for width, height in _SIZES[classes]:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        tab.command("Emulation.setDeviceMetricsOverride", **size)
        tab.open(serving[0].address)
        tab.answer("1")
        tab.wait_for_image()
        assert tab.run(_IN_VIEW) == [], (width, height)
        document = tab.run(
            "return [document.scrollingElement.scrollWidth, document.scrollingElement.scrollHeight]"
        )
        assert document == [width, height]
        shown = box(tab)
        assert max(shown["width"], shown["height"]) > 0.55 * min(width, height)
        assert not tab.find("below").is_displayed()
    tab.command("Emulation.setDeviceMetricsOverride", **size | {"width": 390, "height": 500})
    tab.until(lambda: tab.find("below").is_displayed())
    assert 0 < len(tab.run(_IN_VIEW)) <= int(re.findall(r"\d+", tab.text("below"))[0]) + 1
    tab.find("below").click()
    tab.until(lambda: not tab.find("below").is_displayed())


_CONTRAST = """
const channels = (colour) => colour.match(/[\\d.]+/g).slice(0, 3).map((value) => {
  const part = value / 255;
  return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
});
const light = (colour) => {
  const [red, green, blue] = channels(colour);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
};
const ground = (element) => {
  const colour = getComputedStyle(element).backgroundColor;
  return /, 0\\)|transparent/.test(colour) ? ground(element.parentElement) : colour;
};
const [a, b] = [light(getComputedStyle(arguments[0]).color), light(ground(arguments[0]))];
return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_light_and_in_dark(
    tab: Tab, serve: Callable[[], Served], scheme: str
) -> None:
    """The contrast ratio of WCAG 2.2, at least 4.5."""
    tab.command(
        "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}]
    )
    tab.open(serve().address)
    tab.answer("1")
    page = tab.run("return getComputedStyle(document.body).backgroundColor")
    assert (int(re.findall(r"\d+", page)[0]) > 128) == (scheme == "light")
    shown = tab.browser.find_elements(
        By.CSS_SELECTOR,
        "h1, .quiet, .choice span, .actions span, kbd, dt, dd, .brand b, .brand span, .plain, "
        "#said",
    )
    ratios = {
        element.text: tab.run(_CONTRAST, element) for element in shown if element.is_displayed()
    }
    assert len(ratios) > 15
    assert min(ratios.values()) >= 4.5, ratios


def test_everything_has_a_name_and_can_be_reached_with_tab(
    tab: Tab, serve: Callable[[], Served]
) -> None:
    tab.open(serve().address)
    buttons = [
        each for each in tab.browser.find_elements(By.CSS_SELECTOR, "button") if each.is_displayed()
    ]
    assert all(each.accessible_name for each in buttons)
    assert tab.find("stage").accessible_name
    assert tab.find("image").get_attribute("alt") == "Image s00"
    assert tab.find("said").get_attribute("aria-live") == "polite"
    reached = set()
    tab.run("document.activeElement.blur()")
    for _ in range(len(buttons) + 3):
        tab.press(Keys.TAB)
        focused = tab.browser.switch_to.active_element
        reached.add(focused.get_attribute("id") or focused.get_attribute("data-label"))
        if focused.tag_name == "button":
            assert focused.value_of_css_property("outline-style") == "solid"
    assert {
        each.get_attribute("id") or each.get_attribute("data-label") for each in buttons
    } <= reached
    assert "stage" in reached


def test_the_page_asks_nobody_else_for_anything(tab: Tab, serve: Callable[[], Served]) -> None:
    server = serve()
    tab.open(server.address)
    tab.answer("1")
    names = tab.run("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert names
    assert all(name.startswith(f"http://127.0.0.1:{server.port}/") for name in names)
    assert not any("token" in name for name in names)
    assert tab.browser.get_log("browser") == []


def test_folders_that_may_name_the_class_are_not_shown(
    tab: Tab, serve: Callable[[], Served], big_clinic: Any
) -> None:
    """Images that came in a folder for each class have ids that begin with it."""
    table = big_clinic.site_file.with_name("manifest.csv")
    table.write_text(table.read_text().replace("\ns", "\nMelanoma/s"))
    big_clinic.ask("Melanoma/s00", "Melanoma/s01", round_=2)
    tab.open(serve().address)
    assert tab.text("about").startswith("Image s0")
    tab.answer("3")
    tab.press("l")
    tab.until(lambda: "s0" in tab.text("given-list"))
    assert "Melanoma" not in tab.browser.find_element("tag name", "body").text

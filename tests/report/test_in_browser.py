"""What the report's script adds in a browser: sorting, values under the pointer, and nothing but
that.
"""

from collections.abc import Iterator

import pytest
from run_folders import SITES, add_answers, write_run
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from chromium import start_browser
from fedward.report import write_report

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    """The report of a run with counts, open in a browser."""
    folder = write_run(tmp_path_factory.mktemp("browser") / "run", rounds=4)
    add_answers(folder, 4)
    browser = start_browser()
    browser.get(write_report(folder).as_uri())
    yield browser
    browser.quit()


def column(page: Chrome, place: int) -> list[str]:
    cells = page.find_elements(By.CSS_SELECTOR, f"#table-sites tbody tr > :nth-child({place})")
    return [cell.text.rstrip("†") for cell in cells]


def press(page: Chrome, place: int) -> str:
    page.find_element(By.CSS_SELECTOR, f"#table-sites th:nth-child({place}) button").click()
    heading = page.find_element(By.CSS_SELECTOR, f"#table-sites th:nth-child({place})")
    return str(heading.get_attribute("aria-sort"))


def test_headings_sort_and_totals_stay_last(page: Chrome) -> None:
    """In a section that is folded until a link leads to it."""
    assert not page.find_element(By.ID, "table-sites").is_displayed()
    page.find_element(By.CSS_SELECTOR, "nav a[href='#sites']").click()
    assert page.find_element(By.ID, "table-sites").is_displayed()
    assert press(page, 5) == "descending"
    *sites, total = column(page, 5)
    assert [int(cell) for cell in sites] == sorted((int(cell) for cell in sites), reverse=True)
    assert int(total) == sum(map(int, sites))
    assert press(page, 5) == "ascending"
    assert [int(cell) for cell in column(page, 5)[:-1]] == sorted(int(cell) for cell in sites)
    assert press(page, 1) == "ascending"
    assert column(page, 1) == [*SITES, "All sites"]
    assert len(page.find_elements(By.CSS_SELECTOR, "#table-sites [aria-sort]")) == 1


def test_the_first_screen_of_a_small_laptop_holds_all_answers(page: Chrome) -> None:
    size = {"width": 1366, "height": 625, "deviceScaleFactor": 1, "mobile": False}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    boxes = page.find_elements(By.CSS_SELECTOR, ".answers > div")
    ends = [box.rect["y"] + box.rect["height"] for box in boxes]
    assert 0 < max(ends) <= 625


def test_on_paper_only_long_tables_stay_folded(page: Chrome) -> None:
    """Unless the reader has opened them; afterwards all is as before."""
    state = """
        dispatchEvent(new Event(arguments[0]));
        const fold = (name) => document.getElementById(name).closest("details").open;
        return ["findings", "clinical", "settings"].map(fold);
    """
    assert page.execute_script(state, "beforeprint") == [True, True, False]
    assert page.execute_script(state, "afterprint") == [False, False, False]


def test_the_pointer_shows_values_of_the_nearest_round(page: Chrome) -> None:
    said = page.execute_script("""
        const svg = document.querySelector("svg[data-values]");
        const box = svg.getBoundingClientRect();
        const texts = [0.01, 0.99].map((share) => {
            const place = { clientX: box.left + share * box.width, clientY: box.top };
            svg.dispatchEvent(new PointerEvent("pointermove", place));
            return document.querySelector(".tip").textContent;
        });
        svg.dispatchEvent(new PointerEvent("pointerleave"));
        return [...texts, document.querySelector(".tip").hidden];
    """)
    first, last, hidden = said
    assert [text.splitlines()[0] for text in (first, last)] == ["round 0", "round 4"]
    assert [line.split(":")[0] for line in last.splitlines()[1:]] == ["mean", *SITES]
    assert hidden


def test_a_browser_finds_no_fault_in_the_page(page: Chrome) -> None:
    """No script is refused and none fails; the page is never wider than the window, that of a
    telephone too.
    """
    for width in (1366, 400):
        page.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 700, "deviceScaleFactor": 1, "mobile": False},
        )
        assert page.execute_script("return document.documentElement.scrollWidth") <= width
    assert page.get_log("browser") == []  # type: ignore[no-untyped-call]


def test_on_a_telephone_cards_are_as_wide_as_the_page_and_hidden_links_cast_a_shadow(
    page: Chrome,
) -> None:
    size = {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    widths, page_width = page.execute_script("""
        const card = document.querySelector(".answers > div").cloneNode(true);
        card.classList.add("model");
        document.querySelector(".answers").append(card);
        const cards = [...document.querySelectorAll(".answers > div")];
        const widths = cards.map((one) => one.offsetWidth);
        card.remove();
        return [widths, document.querySelector("main").offsetWidth];
    """)
    assert len(widths) > 2
    assert set(widths) == {page_width}
    links = """
        const links = document.querySelector("nav");
        const { backgroundAttachment } = getComputedStyle(links);
        return [links.scrollWidth > links.clientWidth, backgroundAttachment];
    """
    is_cut, attachment = page.execute_script(links)
    assert is_cut
    # Two pieces of the page that move with the links, above two shadows that do not.
    assert attachment.startswith("local, local, scroll, scroll")


def test_scripts_in_a_run_folder_would_not_run(page: Chrome) -> None:
    ran = page.execute_script("""
        const script = document.createElement("script");
        script.textContent = "window.ran = true";
        document.body.append(script);
        return window.ran === true;
    """)
    assert not ran
    assert "Content Security Policy" in page.get_log("browser")[0]["message"]  # type: ignore[no-untyped-call]

"""A clinic on disk that a federation asks, and a clinician who answers without a browser."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from selenium.webdriver import Chrome

from chromium import Served, Server, Tab, start_browser
from fedward.annotation import Queue, Rules, queue_folder
from fedward.annotation.desk import Desk
from fedward.annotation.page_content import SentAnswer
from fedward.label_kinds import kind_of_field

CLASSES = ("MEL", "NV", "BCC")
_KEYS = count()


class Clinic:
    """A site file, its images and its queue."""

    def __init__(self, folder: Path, images: int) -> None:
        (folder / "images").mkdir(parents=True)
        self.ids = [f"s{index:02d}" for index in range(images)]
        rows = ["sample_id,image,label"]
        for index, sample_id in enumerate(self.ids):
            noise = np.random.default_rng(index).integers(0, 256, (30, 40, 3), np.uint8)
            Image.fromarray(noise).save(folder / "images" / f"{sample_id}.png")
            rows.append(f"{sample_id},images/{sample_id}.png,")
        (folder / "manifest.csv").write_text("\n".join(rows))
        self.site_file = folder / "clinic.yaml"
        self.site_file.write_text(
            "kind: manifest\nfolder: .\ncolumns: {group: null}\nlabels: {naevus: NV}\n"
        )
        self.queue = Queue(queue_folder(self.site_file))

    def ask(
        self, *sample_ids: str, round_: int = 1, several: bool = False, run: str = "run"
    ) -> None:
        """Ask for the class of images, or for several findings of each, the first named first."""
        queue = Queue(self.queue.folder, Rules(label_kind=kind_of_field(several)))
        queue.request(
            run, round_, "fedal", sample_ids, [-float(place) for place in range(len(sample_ids))]
        )


class Clinician:
    """Answers as the page would."""

    def __init__(self, queue: Queue, name: str) -> None:
        self.queue = queue
        self.name = name
        self.desk = Desk(queue, {f"s{index:02d}" for index in range(100)})

    def say(self, sample_id: str, label: str | None, kind: str = "") -> SentAnswer:
        """Give a class, or None for "cannot tell"."""
        with self.queue.database.reading() as database:
            query = (
                "SELECT coalesce(max(answer), 0) FROM answers WHERE annotator = ? AND sample_id = ?"
            )
            seen = database.execute(query, [self.name, sample_id]).fetchone()[0]
        kind = kind or ("cannot tell" if label is None else "label")
        message = SentAnswer(self.name, sample_id, kind, label, self.key(), seen)
        self.desk.answer(message)
        return message

    def take_back(self) -> str:
        """Undo the newest answer."""
        last = self.desk.view(self.name).last
        assert last is not None
        return self.desk.undo(self.name, last.answer, self.key())

    def key(self) -> str:
        return f"{next(_KEYS):032x}"


@pytest.fixture(scope="module")
def module_clinic(tmp_path_factory: pytest.TempPathFactory) -> Clinic:
    """Eight images, asked for all but the last two; its tests share it."""
    clinic = Clinic(tmp_path_factory.mktemp("clinic"), 8)
    clinic.ask(*clinic.ids[:6])
    return clinic


@pytest.fixture
def make_clinic(tmp_path: Path) -> Callable[[int], Clinic]:
    """Make a clinic with so many images, nothing asked yet."""
    return lambda images: Clinic(tmp_path / f"clinic-{images}", images)


@pytest.fixture
def clinic(make_clinic: Callable[[int], Clinic]) -> Clinic:
    """Six images, nothing asked yet."""
    return make_clinic(6)


@pytest.fixture
def clinician(clinic: Clinic) -> Callable[[str], Clinician]:
    """Make a clinician by name."""
    return lambda name: Clinician(clinic.queue, name)


@pytest.fixture
def make_clinician() -> Callable[[Queue, str], Clinician]:
    """Make a clinician by queue and name."""
    return Clinician


@pytest.fixture(scope="session")
def browser() -> Iterator[Chrome]:
    driver = start_browser()
    yield driver
    driver.quit()


@pytest.fixture
def tab(browser: Chrome) -> Iterator[Tab]:
    """A browser that has never been here: no name, no cookie, one window of a laptop's size."""
    browser.get("about:blank")
    browser.get_log("browser")  # of the tests before
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 1280, "height": 800, "deviceScaleFactor": 1, "mobile": False},
    )
    yield Tab(browser, browser.current_window_handle)
    first, *others = browser.window_handles
    for window in others:
        browser.switch_to.window(window)
        browser.close()
    browser.switch_to.window(first)
    if browser.current_url.startswith("http"):
        browser.execute_script("localStorage.clear()")
    browser.delete_all_cookies()
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {})


@pytest.fixture
def serving() -> Iterator[list[Served]]:
    """Pages put into it are ended with the test."""
    pages: list[Served] = []
    yield pages
    for page in pages:
        page.end()


@pytest.fixture
def serve(big_clinic: Any, serving: list[Served]) -> Callable[[], Served]:
    """Serve the big clinic."""

    def start() -> Served:
        serving.append(Served(big_clinic.site_file, CLASSES))
        return serving[-1]

    return start


@pytest.fixture
def command(big_clinic: Any) -> Iterator[Callable[..., Server]]:
    """Start the command on the big clinic, in a process that can be killed."""
    servers: list[Server] = []

    def start(port: int = 0) -> Server:
        servers.append(Server(big_clinic.site_file, CLASSES, port))
        return servers[-1]

    yield start
    for server in servers:
        server.process.kill()
        server.process.communicate()


@pytest.fixture
def big_clinic(make_clinic: Callable[[int], Any]) -> Any:
    """Twenty-four images, all asked for."""
    clinic = make_clinic(24)
    clinic.ask(*clinic.ids)
    return clinic

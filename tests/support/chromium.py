"""A headless Chromium at the page for clinicians, and the command that serves the page."""

import base64
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import pytest
from selenium.common.exceptions import WebDriverException
from selenium.webdriver import ActionChains, Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from fedward.annotation.desk import Desk
from fedward.annotation.page.app import Page
from fedward.annotation.page.guard import Guard
from fedward.annotation.page.server import Token, address, listen, server
from fedward.annotation.pictures import Pictures
from fedward.annotation.queue import queue_of
from fedward.label_kinds import ONE_LABEL, LabelKind
from waiting import PATIENCE

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
)

PRINT_TRIES = 5

_COMMAND = """
import signal, sys
from fedward.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main())
"""
"""The command, which heeds SIGINT even if a shell runs the tests in the background.

Such a shell lets its processes ignore SIGINT, and they pass that on."""


class Server:
    """``fedward annotate`` in a process of its own."""

    def __init__(
        self,
        site_file: Path,
        classes: Sequence[str],
        port: int = 0,
        *options: str,
        errors: IO[bytes] | None = None,
    ) -> None:
        words = ["annotate", str(site_file), "--classes", *classes, "--port", str(port), *options]
        command = [sys.executable, "-c", _COMMAND, *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        self.address = re.findall(r"http://\S+", self.line)[0]
        self.port = int(re.findall(r":(\d+)/", self.address)[0])

    def end(self, how: signal.Signals) -> tuple[int, str]:
        self.process.send_signal(how)
        text, _ = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, text


class Served:
    """The page as the command serves it, in a thread, because a process takes seconds to start."""

    def __init__(
        self, site_file: Path, classes: Sequence[str], label_kind: LabelKind = ONE_LABEL
    ) -> None:
        pictures = Pictures(site_file, classes, label_kind)
        queue = queue_of(site_file, label_kind)
        self._listening = listen("127.0.0.1", 0)
        token = Token(queue.folder).value
        self.address = address(self._listening, token)
        self.port = self._listening.getsockname()[1]
        desk = Desk(queue, pictures.ids, classes)
        self._server = server(
            Page(desk, pictures, Guard(token, "127.0.0.1")).app(), self._listening
        )
        threading.Thread(target=self._server.serve_forever, args=[0.02], daemon=True).start()

    def end(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._listening.close()


class Tab:
    """One tab of the browser, by what a person sees and does there."""

    def __init__(self, browser: Chrome, window: str) -> None:
        self.browser = browser
        self.window = window

    def to_front(self) -> "Tab":
        self.browser.switch_to.window(self.window)
        return self

    def open(self, address: str, name: str = "Anna") -> "Tab":
        self.browser.get(address)
        if self.find("who").is_displayed():
            self.find("name").send_keys(name + Keys.ENTER)
        return self.wait_for_image()

    def find(self, name: str) -> Any:
        return self.browser.find_element(By.ID, name)

    def until(self, true: Callable[[], Any]) -> Any:
        return WebDriverWait(self.browser, PATIENCE, poll_frequency=0.05).until(lambda _: true())

    def text(self, name: str) -> str:
        return str(self.find(name).text)

    def about(self) -> str:
        """Return the id of the image on the stage, '' if there is none."""
        match = re.search(r"Image (\S+)", self.text("about"))
        return match[1] if match else ""

    def wait_for_image(self, other_than: str = "") -> "Tab":
        def is_there() -> bool:
            return self.is_enabled(".choice") and self.about() not in ("", other_than)

        self.until(is_there)
        return self

    def is_enabled(self, selector: str) -> bool:
        """Return whether the first such button can be pressed."""
        # Selenium's own question would send a long script each time.
        look = "return document.querySelector(arguments[0]).getAttribute('aria-disabled')"
        return bool(self.run(look, selector) == "false")

    def press(self, keys: str) -> None:
        ActionChains(self.browser).send_keys(keys).perform()

    def answer(self, key: str) -> str:
        """Answer the image on the stage with a key, wait for the next; return its id."""
        sample_id = self.about()

        def page() -> list[str]:
            look = "return arguments[0].map(id => document.getElementById(id).textContent)"
            return list(self.run(look, ["about", "said", "waiting"]))

        before = page()

        def is_taken() -> bool:
            if page() != before:
                return True
            # A page that looks for news takes no answer, and one that sends is closed for others.
            if self.is_enabled("#skip"):
                self.press(key)
            return False

        self.until(is_taken)
        self.until(lambda: self.is_enabled("#undo"))
        return sample_id

    def run(self, script: str, *arguments: Any) -> Any:
        return self.browser.execute_script(script, *arguments)

    def command(self, name: str, **parameters: Any) -> Any:
        return self.browser.execute_cdp_cmd(name, parameters)


def printed(browser: Chrome) -> bytes:
    """Return the page that the browser shows as a PDF.

    Chromium sometimes fails to print a page that it prints a moment later (about one time in
    forty, whatever the page). Only that message is tried again; any other one is the page's fault.
    """
    for tries_left in reversed(range(PRINT_TRIES)):
        try:
            made = browser.execute_cdp_cmd(
                "Page.printToPDF", {"preferCSSPageSize": True, "printBackground": True}
            )
        except WebDriverException as error:
            if "Printing failed" not in str(error.msg) or not tries_left:
                raise
            browser.refresh()
        else:
            return base64.b64decode(made["data"])
    raise AssertionError("unreachable: the last try returns or raises")


def start_browser(font_size: int = 16) -> Chrome:
    programs = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
    missing = [name for name, path in programs.items() if path is None]
    if missing:
        pytest.fail(
            f"{' and '.join(missing)} not found. "
            "Install them (Debian: apt-get install chromium chromium-driver), "
            "or leave these tests out: pytest -m 'not browser and not secure'."
        )
    options = ChromeOptions()
    options.binary_location = programs["chromium"] or ""
    for flag in FLAGS:
        options.add_argument(flag)
    options.add_experimental_option(
        "prefs", {"webkit": {"webprefs": {"default_font_size": font_size}}}
    )
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return Chrome(options=options, service=Service(programs["chromedriver"]))

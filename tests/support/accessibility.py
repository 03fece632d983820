"""axe-core, which checks a page by WCAG: a tool of npm and no part of this repository."""

from pathlib import Path

import pytest
from selenium.webdriver import Chrome

_AXE = Path(__file__).parents[2] / "node_modules" / "axe-core" / "axe.min.js"
_CHECK = """
const done = arguments[arguments.length - 1];
const rules = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
const words = (each) => `${each.impact} ${each.id}: ${each.nodes.map((node) => node.html)}`;
axe.run(document, { runOnly: rules }).then(({ passes, violations }) => {
  done(passes.length ? violations.map(words) : ["axe-core has checked nothing"]);
});
"""

needs_axe = pytest.mark.skipif(
    not _AXE.exists(),
    reason="needs axe-core: npm install --prefix . --no-save --no-package-lock axe-core",
)


def found_by_axe(browser: Chrome) -> list[str]:
    """Return what it finds wrong with the page as it is now."""
    if not browser.execute_script("return 'axe' in window"):
        browser.execute_script(_AXE.read_text())
    browser.set_script_timeout(600)
    found: list[str] = browser.execute_async_script(_CHECK)
    return found

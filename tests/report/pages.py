"""Reports read back: what a page's tables, tags and text hold."""

import re
from collections import Counter, defaultdict
from html.parser import HTMLParser

from fedward.report import write_report

VOID = {"meta", "br", "link", "img", "input", "hr"}
"""Tags that are never closed."""
_WHITE_SPACE = re.compile(r"[ \t\n]+")
"""What a browser shows as one space; a no-break space is none of it."""


def _shown(text: str) -> str:
    return _WHITE_SPACE.sub(" ", text).strip(" ")


class Page(HTMLParser):
    """A page, parsed: its tables, tags, pictures and visible text.

    Texts have the white space that a browser shows.
    """

    def __init__(self, html):
        super().__init__()
        self.tables = defaultdict(list)
        """Id of a table -> its rows of cell texts."""
        self.tags = []
        """Name and attributes of each tag."""
        self.pictures = Counter()
        """Id of a section's heading -> SVG pictures in the section; None outside of sections."""
        self.text = ""
        self.by_id = {}
        """Id of a tag -> text inside."""
        self.unclosed = []
        """Tags that another tag closes."""
        self._table = None
        self._section = None
        self._in_cell = False
        self._open = []
        self.feed(html)
        self.close()
        self.text = _shown(self.text)
        self.by_id = {name: _shown(text) for name, text in self.by_id.items()}
        for rows in self.tables.values():
            rows[:] = [[_shown(cell) for cell in row] for row in rows]

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        if tag not in VOID:
            self._open.append((tag, attributes.get("id")))
        if tag == "section":
            self._section = attributes["aria-labelledby"]
        elif tag == "svg":
            self.pictures[self._section] += 1
        elif tag == "table":
            self._table = attributes["id"]
        elif tag == "tr":
            self.tables[self._table].append([])
        elif tag in ("td", "th"):
            self._in_cell = True
            self.tables[self._table][-1].append("")

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        opened, _ = self._open.pop()
        if opened != tag:
            self.unclosed.append((opened, tag))
        if tag == "section":
            self._section = None
        if tag in ("td", "th"):
            self._in_cell = False

    def handle_data(self, data):
        if self._open and self._open[-1][0] in ("style", "script"):
            return
        self.text += data
        if self._in_cell:
            self.tables[self._table][-1][-1] += data
        for _, name in self._open:
            if name:
                self.by_id[name] = self.by_id.get(name, "") + data


def report(folder, *others):
    """Write a run folder's report; return it as HTML and parsed."""
    html = write_report(folder, others).read_text(encoding="utf-8")
    return html, Page(html)

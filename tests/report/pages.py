"""Reports read back: what a page's tables, tags and text hold."""

from collections import defaultdict
from html.parser import HTMLParser

from fedward.report import write_report

VOID = {"meta", "br", "link", "img", "input", "hr"}


class Page(HTMLParser):
    """Tables by id as rows of cell texts, all tags with attributes, and visible text."""

    def __init__(self, html):
        super().__init__()
        self.tables = defaultdict(list)
        self.tags = []
        self.text = ""
        self.by_id = {}
        self._table = None
        self._cell = False
        self._open = []
        self.unclosed = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags.append((tag, attrs))
        if tag not in VOID:
            self._open.append((tag, attrs.get("id")))
        if tag == "table":
            self._table = attrs["id"]
        elif tag == "tr":
            self.tables[self._table].append([])
        elif tag in ("td", "th"):
            self._cell = True
            self.tables[self._table][-1].append("")

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        opened, _ = self._open.pop()
        if opened != tag:
            self.unclosed.append((opened, tag))
        if tag in ("td", "th"):
            self._cell = False

    def handle_data(self, data):
        if self._open and self._open[-1][0] in ("style", "script"):
            return
        self.text += data
        if self._cell:
            self.tables[self._table][-1][-1] += data
        for _, name in self._open:
            if name:
                self.by_id[name] = self.by_id.get(name, "") + data


def report(folder, *others):
    html = write_report(folder, others).read_text(encoding="utf-8")
    return html, Page(html)

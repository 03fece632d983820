"""What pages hold for other readers: links into the repository, roles of docstrings, long lines.

The plugin ``offline`` would load a script from another server. Its place takes ``worker.js``.
"""

import re
from pathlib import Path
from typing import Any

WORKER = Path(__file__).with_name("worker.js")
FOREIGN_WORKER = '<script src="https://unpkg.com/iframe-worker/shim"></script>'
ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):<code>~?")
BLOCK = re.compile(r"(<pre>(?:<span></span>)?<code>)(.*?)(</code></pre>)", re.DOTALL)
TABLE = re.compile(r"<table>(?!(?:(?!</table>).)*<a )", re.DOTALL)
"""A table without a link, which no key would reach to scroll it on a phone."""
SEARCH = '<div class="md-search" data-md-component="search" role="dialog"'
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#:\s]+)(?:#[^)\s]*)?\)")


def on_page_markdown(markdown: str, page: Any, files: Any, **_: Any) -> str:
    """Replace each link to a file that is not on the site by text that names its place."""
    if page.file.abs_src_path is None:  # a page that another hook has made
        return markdown
    folder = Path(page.file.abs_src_path).parent
    root = Path(__file__).resolve().parents[2]

    def replaced(match: re.Match[str]) -> str:
        text, target = match.groups()
        path = (folder / target).resolve()
        try:
            place = path.relative_to(root).as_posix()
        except ValueError:
            return match[0]
        if not path.exists() or files.get_file_from_path(place.removeprefix("docs/")):
            return match[0]
        return f"`{place}`" if text.strip("`") in place else f"{text} (`{place}`)"

    return LINK.sub(replaced, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Write ``:func:`name``` of a docstring as code, and let keys scroll what is wide.

    The theme's script takes a ``tabindex`` from the code itself where no mouse is found.
    """
    html = TABLE.sub('<table tabindex="0">', ROLE.sub("<code>", html))
    return BLOCK.sub(r'\1<span class="lines" tabindex="0">\2</span>\3', html)


def on_post_page(output: str, **_: Any) -> str:
    """Put our own worker into a page for the one that the plugin loads; name the search."""
    output = output.replace(FOREIGN_WORKER, f"<script>\n{WORKER.read_text('utf-8')}</script>")
    return output.replace(SEARCH, f'{SEARCH} aria-label="Search"')

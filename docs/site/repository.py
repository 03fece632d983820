"""What pages hold for other readers: links into the repository, roles of docstrings, long lines.

The plugin ``offline`` would load a script from another server. Its place takes ``worker.js``.
"""

import re
from pathlib import Path
from typing import Any

WORKER = Path(__file__).with_name("worker.js")
FOREIGN_WORKER = '<script src="https://unpkg.com/iframe-worker/shim"></script>'
ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):<code>~?")
BLOCK = re.compile(r"<pre>(<span></span>)?<code>")
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
    """Write ``:func:`name``` of a docstring as code, and let keys scroll long lines of code."""
    return BLOCK.sub(r'<pre>\1<code tabindex="0">', ROLE.sub("<code>", html))


def on_post_page(output: str, **_: Any) -> str:
    """Put our own worker into a page, instead of the one that the plugin loads from elsewhere."""
    return output.replace(FOREIGN_WORKER, f"<script>\n{WORKER.read_text('utf-8')}</script>")

"""What pages hold for other readers: links into the repository, and the roles of docstrings."""

import re
from pathlib import Path
from typing import Any

ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):<code>~?")
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#:\s]+)(?:#[^)\s]*)?\)")


def on_page_markdown(markdown: str, page: Any, files: Any, **_: Any) -> str:
    """Replace each link to a file that exists but is not on the site by text that names the place."""
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
    """Write ``:func:`name``` of a docstring as code."""
    return ROLE.sub("<code>", html)

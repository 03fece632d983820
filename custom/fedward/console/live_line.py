"""The line that stays below a run's rows in a terminal, drawn by rich."""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Protocol, TextIO, cast

from fedward.console.progress import State
from fedward.terminal import SafeStream, encodable, printable

if TYPE_CHECKING:
    from rich.console import RenderableType


class HasState(Protocol):
    """Says how far something is."""

    def state(self) -> State:
        """Return how far it is now; called from another thread."""
        ...


_BAR = 10
"""Width of the bar in characters."""
_REFRESHES_PER_SECOND = 1.0


@contextmanager
def live_line(progress: HasState) -> Iterator[None]:
    """Keep a line about the progress below all that is printed inside the ``with`` block.

    Without a terminal there is no line, and rich is not imported. What is printed must pass through
    :func:`fedward.terminal.printing_safely`, so that names cannot steer the terminal.
    """
    output = sys.stdout
    capable = os.environ.get("TERM", "dumb") != "dumb"
    if not isinstance(output, SafeStream) or not output.isatty() or not capable:
        yield
        return
    from rich.console import Console
    from rich.file_proxy import FileProxy
    from rich.live import Live

    # Rows longer than the terminal stay whole, so that a path can be copied.
    terminal = Console(file=output.stream, soft_wrap=True, markup=False, highlight=False)
    line = Live(
        get_renderable=lambda: _drawn(progress, terminal.encoding),
        console=terminal,
        refresh_per_second=_REFRESHES_PER_SECOND,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    with ExitStack() as stack:
        stack.enter_context(line)
        for stream in (output, sys.stderr):
            # A file that standard error is redirected to gets its lines itself.
            if isinstance(stream, SafeStream) and stream.isatty():
                above = cast(TextIO, FileProxy(terminal, stream.stream))
                stack.enter_context(stream.redirected(above))
        yield


def _drawn(progress: HasState, encoding: str) -> "RenderableType":
    """Return the line as it is now: a bar during the rounds, and words cut to the terminal."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    state = progress.state()
    words = Text(encodable(printable(state.words), encoding), no_wrap=True)
    # An ellipsis at the end of a line that is too long is a character that ASCII lacks.
    words.overflow = "ellipsis" if encoding == "utf-8" else "crop"
    if state.share is None:
        return words
    line = Table.grid(padding=(0, 1))
    line.add_row(ProgressBar(total=1, completed=state.share, width=_BAR), words)
    return line

"""Figures of studies as files, for light and dark pages."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedward.digests import digest
from fedward.lab.bench import curves, forest
from fedward.lab.bench.curves import draw_curves, shown_rows
from fedward.lab.bench.forest import baseline_of, draw_forest
from fedward.lab.bench.results import Results
from fedward.report.drawing import palette, svg

_FONT = 'text { font-family: system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }'
_DIGESTS = re.compile("<metadata>([0-9a-f]{64}) ([0-9a-f]{64})</metadata>")
"""In a figure's file: the digest of what it shows, and that of the rest of the file."""


@dataclass(frozen=True)
class Figure:
    """A figure of a study."""

    file: Path
    title: str
    """What screen readers speak, with what intervals do not cover."""
    plotted: Sequence[str]
    """What it shows, in words and numbers; empty if there is nothing to show."""
    drawn: Callable[[], Any]
    """Draws it, if there is something to show."""

    @property
    def digest(self) -> str:
        """SHA-256 of its title and of what it shows, which its file keeps beside that of itself."""
        return digest([self.title, *self.plotted])


def figures(results: Results, page: Path, name: str, caption: str) -> list[Figure]:
    """Return a study's forest plot and its curves, whose files lie beside its page.

    Args:
        results: of the study.
        page: shows the figures.
        name: of the study, with which the names of the files begin.
        caption: what intervals do not cover; ends the titles.
    """
    study = results.study
    shown = ", ".join(study.rows[row].title for row in shown_rows(results))
    baseline = study.rows[baseline_of(results)].title
    ending = caption.replace("*", "")

    def title(content: str) -> str:
        return f"{study.title}: {content}. {ending}".strip()

    return [
        Figure(
            page.parent / f"{name}.svg",
            title(f"differences of all rows from {baseline}"),
            forest.plotted(results),
            lambda: draw_forest(results),
        ),
        Figure(
            page.parent / f"{name}_curves.svg",
            title(shown),
            curves.plotted(results),
            lambda: draw_curves(results),
        ),
    ]


def write_figure(figure: Figure) -> None:
    """Write a figure as SVG with its own colours; equal results give equal bytes.

    The file of a figure that has nothing to show is deleted.
    """
    if not figure.plotted:
        figure.file.unlink(missing_ok=True)
        return
    head, end, body = svg(figure.drawn(), figure.title).partition(">")
    names = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    before = f'<?xml version="1.0" encoding="utf-8"?>\n{head} {names}{end}'
    after = f"<style>\n{palette()}\n{_FONT}\n</style>{body}\n"
    digests = f"<metadata>{figure.digest} {digest([before, after])}</metadata>"
    figure.file.parent.mkdir(parents=True, exist_ok=True)
    figure.file.write_text(f"{before}{digests}{after}", encoding="utf-8")


def is_as_written(figure: Figure) -> bool:
    """Return whether a figure's file shows it; of one with nothing to show, whether it has none.

    A file that was edited or damaged does not. Whoever computes its digests again is not noticed.
    """
    if not figure.plotted or not figure.file.exists():
        return not figure.plotted and not figure.file.exists()
    text = figure.file.read_text(encoding="utf-8", errors="replace")
    before, *digests_and_after = _DIGESTS.split(text)
    if len(digests_and_after) != 3:
        return False
    shown, of_the_rest, after = digests_and_after
    return (shown, of_the_rest) == (figure.digest, digest([before, after]))

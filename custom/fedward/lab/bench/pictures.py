"""Figures of studies as files, for light and dark pages."""

from pathlib import Path
from typing import Any

from fedward.lab.bench.curves import draw_curves, shown_rows
from fedward.lab.bench.forest import baseline_of, draw_forest
from fedward.lab.bench.results import Results
from fedward.report.drawing import palette, svg

_FONT = 'text { font-family: system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }'


def draw(results: Results, forest: Path, curves: Path, caption: str = "") -> None:
    """Write a study's forest plot and its curves as SVG; equal results give equal bytes.

    A figure that has nothing to show is not written.

    Args:
        results: of the study.
        forest: file of the forest plot.
        curves: file of the curves.
        caption: what intervals do not cover; ends the titles, which screen readers speak.
    """
    study = results.study
    shown = ", ".join(study.rows[row].title for row in shown_rows(results))
    baseline = study.rows[baseline_of(results)].title
    figures = {
        forest: (draw_forest(results), f"differences of all rows from {baseline}"),
        curves: (draw_curves(results), shown),
    }
    for file, (figure, content) in figures.items():
        if figure is not None:
            _write(figure, file, f"{study.title}: {content}. {caption.replace('*', '')}".strip())


def _write(figure: Any, file: Path, title: str) -> None:
    """Write a figure as a file that has its own colours."""
    head, end, body = svg(figure, title).partition(">")
    names = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    text = (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        f"{head} {names}{end}<style>\n{palette()}\n{_FONT}\n</style>{body}\n"
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")

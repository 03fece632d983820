"""The part of a results page that a study writes, between two comments.

Further tables, which few read, are a page of their own in the folder ``tables``.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from fedward.errors import ConfigError, reason_of
from fedward.lab.bench.curves import has_curves, has_level_lines, shown_rows
from fedward.lab.bench.forest import baseline_of, groups_of
from fedward.lab.bench.in_short import in_short
from fedward.lab.bench.markdown import folded
from fedward.lab.bench.notes import caption, notes
from fedward.lab.bench.pictures import figures, is_as_written, write_figure
from fedward.lab.bench.results import Results
from fedward.lab.bench.shortcomings import shortcomings
from fedward.lab.bench.tables import further_tables, value_table


def read_page(page: Path) -> str:
    """Return the text of a page; ConfigError if it cannot be read."""
    try:
        return page.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"page {page}",
            "Name a page that is there, or restore it.",
            expected="a page in markdown",
            found=reason_of(error),
        ) from None


def write_page(
    page: Path, study: Path, results: Results, studies_on_page: Sequence[Results]
) -> None:
    """Write a study's figures and further tables beside a page, and its values into the page.

    Args:
        page: markdown with the lines ``<!-- study NAME -->`` and ``<!-- end NAME -->``; what is
            between them is replaced.
        study: file of the study; its stem is the name.
        results: what figures and tables show.
        studies_on_page: results of all studies whose tables stand on the page, ``results`` among
            them.

    Raises:
        ConfigError: the page cannot be read, lacks one of the lines, has it twice, or has them in
            another order.
    """
    text = read_page(page)
    new_text = _replaced(page, text, study.stem, block(study, results, studies_on_page))
    for figure in figures(results, page, study.stem, caption(results)):
        write_figure(figure)
    page.write_text(new_text, encoding="utf-8")
    further = _further_page(page, study)
    further.parent.mkdir(exist_ok=True)
    further.write_text(_further_text(page, results), encoding="utf-8")


def check_page(
    page: Path, study: Path, results: Results, studies_on_page: Sequence[Results]
) -> None:
    """Raise ConfigError unless a page, its figures and its further tables show a study's results.

    Arguments are those of :func:`write_page`.
    """
    text = read_page(page)
    further = _further_page(page, study)
    expected_texts = {
        page: _replaced(page, text, study.stem, block(study, results, studies_on_page)),
        further: _further_text(page, results),
    }
    wrong = [
        path
        for path, expected_text in expected_texts.items()
        if not path.exists() or path.read_text("utf-8", errors="replace") != expected_text
    ]
    for figure in figures(results, page, study.stem, caption(results)):
        if not is_as_written(figure):
            wrong.append(figure.file)
    if wrong:
        raise ConfigError(
            f"{wrong[0]} does not say what the results of {study.name} say",
            f"Run `fedward bench {study} --page {page}`.",
        )


def block(study: Path, results: Results, studies_on_page: Sequence[Results]) -> str:
    """Return a study's part of a page: what it shows, where it fails, figures, tables."""
    parts = [
        in_short(results, studies_on_page),
        shortcomings(results),
        *_figure_lines(study, results),
        folded("Values of all rows", value_table(results)),
        folded("What these numbers support", notes(results, studies_on_page)),
        f"[Further metrics, differences of rows, work of a run](tables/{study.stem}.md)",
    ]
    return "\n\n".join(part for part in parts if part)


def _figure_lines(study: Path, results: Results) -> list[str]:
    """Return the lines that show the figures, of those that have something to show."""
    baseline = results.study.rows[baseline_of(results)].title
    lines = []
    if groups_of(results, results.study.metrics[0]):
        lines.append(
            f"![Differences from {baseline}, with intervals]({study.stem}.svg)\n\n"
            "*Circles are rows of the study, diamonds are references, and the bold row is the one "
            "that the page is about. Intervals are over repetitions, and not corrected for their "
            "number. Hollow grey marks are withheld: no conclusion may be drawn from them.*"
        )
    if has_curves(results):
        titles = [results.study.rows[row].title for row in shown_rows(results)]
        explanation = "Lines are means over repetitions, bands their 95 % intervals."
        if has_level_lines(results):
            explanation += " A dashed line is a row that has a single value."
        lines.append(
            f"![Curves of {'; '.join(titles)}]({study.stem}_curves.svg)\n\n*{explanation}*"
        )
    return lines


def _further_page(page: Path, study: Path) -> Path:
    return page.parent / "tables" / f"{study.stem}.md"


def _further_text(page: Path, results: Results) -> str:
    heading = f"# {results.study.title}: further tables"
    link = f"The values are on [their page](../{page.name})."
    parts = [heading, link, caption(results), further_tables(results)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _replaced(page: Path, text: str, name: str, content: str) -> str:
    """Return a page's text with other content between the two comments of a study.

    Raises:
        ConfigError: the comments are not there once each, alone on a line and in their order; or
            those of another part of the page are between them, and would be lost.
    """
    begin = f"<!-- study {name} -->"
    end = f"<!-- end {name} -->"
    lines = re.escape(f"{begin}\n"), re.escape(end)
    blocks = list(re.finditer(rf"^{lines[0]}(.*?)^{lines[1]}$", text, re.DOTALL | re.MULTILINE))
    is_whole = len(blocks) == 1 and text.count(begin) == text.count(end) == 1
    if not is_whole or "<!--" in blocks[0][1]:
        raise ConfigError(
            f"page {page} does not have the lines {begin} and {end} once each, in this order and "
            "without other comments between them",
            "Write both lines where the tables belong, without spaces around them.",
        )
    start, stop = blocks[0].span(1)
    return f"{text[:start]}\n{content}\n\n{text[stop:]}"

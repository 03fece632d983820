"""The part of a results page that a study writes, between two comments.

Further tables, which few read, are a page of their own in the folder ``tables``.
"""

from pathlib import Path

from fedward.errors import ConfigError
from fedward.lab.bench.pictures import draw
from fedward.lab.bench.results import Results
from fedward.lab.bench.tables import caption, further_tables, value_table


def write_page(page: Path, study: Path, results: Results, notes: str) -> None:
    """Write a study's figure and further tables beside a page, and its values into the page.

    Args:
        page: markdown with the lines ``<!-- study NAME -->`` and ``<!-- end NAME -->``; what is
            between them is replaced.
        study: file of the study; its stem is the name.
        results: what figure and tables show.
        notes: what the numbers carry; see :func:`fedward.lab.bench.notes.notes`.

    Raises:
        ConfigError: the page lacks one of the lines, or has it twice.
    """
    text = page.read_text(encoding="utf-8")
    new_text = _replaced(page, text, study.stem, block(study, results, notes))
    draw(results, page.parent / f"{study.stem}.svg", caption(results))
    page.write_text(new_text, encoding="utf-8")
    further = _further_page(page, study)
    further.parent.mkdir(exist_ok=True)
    further.write_text(_further_text(page, results), encoding="utf-8")


def check_page(page: Path, study: Path, results: Results, notes: str) -> None:
    """Raise ConfigError unless a page and its further tables show a study's results as they are."""
    text = page.read_text(encoding="utf-8")
    further = _further_page(page, study)
    expected_texts = {
        page: _replaced(page, text, study.stem, block(study, results, notes)),
        further: _further_text(page, results),
    }
    for path, expected_text in expected_texts.items():
        if not path.exists() or path.read_text(encoding="utf-8") != expected_text:
            raise ConfigError(
                f"{path} does not say what the results of {study.name} say",
                f"Run `fedward bench {study} --page {page}`.",
            )


def block(study: Path, results: Results, notes: str) -> str:
    """Return a study's part of a page: figure, values, what they carry, link to further tables."""
    figure = f"![{results.study.title}]({study.stem}.svg)"
    link = f"[Further metrics, differences of rows, work of a run](tables/{study.stem}.md)"
    return f"{figure}\n\n{value_table(results)}\n\n{notes}\n\n{link}"


def _further_page(page: Path, study: Path) -> Path:
    return page.parent / "tables" / f"{study.stem}.md"


def _further_text(page: Path, results: Results) -> str:
    heading = f"# {results.study.title}: further tables"
    link = f"The values are on [their page](../{page.name})."
    parts = [heading, link, caption(results), further_tables(results)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _replaced(page: Path, text: str, name: str, content: str) -> str:
    """Return a page's text with other content between the two comments of a study."""
    begin = f"<!-- study {name} -->"
    end = f"<!-- end {name} -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ConfigError(
            f"page {page} does not have the lines {begin} and {end} once each",
            "Write both lines where the tables belong.",
        )
    before, _, rest = text.partition(f"{begin}\n")
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n\n{content}\n\n{end}{after}"

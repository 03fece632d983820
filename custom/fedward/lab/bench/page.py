"""The part of a results page that a study writes: between two comments, and nowhere else."""

import re
from pathlib import Path

from fedward.errors import ConfigError
from fedward.lab.bench.pictures import draw
from fedward.lab.bench.tables import Results, tables


def write_page(page: Path, study: Path, results: Results) -> None:
    """Write a study's figure beside a page, and its tables into the page.

    Args:
        page: markdown with the lines ``<!-- study NAME -->`` and ``<!-- end NAME -->``; what is
            between goes.
        study: file of the study; its stem is the name.
        results: what the tables say.

    Raises ConfigError: the page lacks one of the lines, or has it twice.
    """
    text = page.read_text(encoding="utf-8")
    picture = page.parent / f"{study.stem}.svg"
    draw(results, picture)
    page.write_text(_replaced(page, text, study.stem, block(study, results)), encoding="utf-8")


def check_page(page: Path, study: Path, results: Results) -> None:
    """Raise ConfigError unless a page says of a study what its results say."""
    text = page.read_text(encoding="utf-8")
    if _replaced(page, text, study.stem, block(study, results)) != text:
        expected = f"what the results of {study.name} say"
        remedy = f"Run `fedward bench {study} --page {page}`."
        raise ConfigError(f"page {page}", expected=expected, found="something else", remedy=remedy)


def block(study: Path, results: Results) -> str:
    """Return what a page says of a study: its figure and its tables."""
    return f"![{results.study.title}]({study.stem}.svg)\n\n{tables(results)}"


def _replaced(page: Path, text: str, name: str, content: str) -> str:
    begin = f"<!-- study {name} -->"
    end = f"<!-- end {name} -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        remedy = "Write both lines where the tables are to stand."
        raise ConfigError(
            f"page {page}", expected=f"{begin} and {end}, once each", found="not so", remedy=remedy
        )
    pattern = f"({re.escape(begin)}\n).*?({re.escape(end)})"
    return re.sub(
        pattern, lambda found: f"{found[1]}\n{content}\n\n{found[2]}", text, flags=re.DOTALL
    )

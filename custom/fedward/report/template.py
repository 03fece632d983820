"""The templates of a run's pages, how they write numbers, and the one script they may run."""

import re
from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from fedward.evaluation.answer_counts import THRESHOLD
from fedward.evaluation.histograms import INTERVALS
from fedward.evaluation.in_fives import MOST_SIZES
from fedward.evaluation.selection import LAST, mean, median
from fedward.evaluation.small_counts import SMALLEST_COUNT
from fedward.evaluation.subgroups import LEFT_OUT
from fedward.report.class_lines import MARKS
from fedward.runs.about import NOT_STATED
from fedward.runs.sentences import MOST_NAMED, spelled
from fedward.runs.site_lines import FEW
from fedward.runs.verdict import WANTED
from fedward.runs.verdict_words.shares import of_hundred
from fedward.text import count


@cache
def template(name: str) -> Template:
    """Return a template of this folder by its file's name.

    A page's policy admits one script, by its hash: nothing that a run folder holds can be run.
    """
    environment = Environment(
        loader=PackageLoader("fedward", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["num"] = _number
    environment.filters["signed"] = _signed
    environment.filters["count_of"] = count
    environment.filters["mb"] = _megabytes
    environment.filters["percent"] = _percent
    environment.filters["thousands"] = _thousands
    environment.filters["of_hundred"] = of_hundred
    environment.filters["upfirst"] = _upfirst
    environment.filters["mean"] = mean
    environment.filters["median"] = median
    environment.filters["headings"] = _headings
    script = files("fedward.report").joinpath("report.js").read_text(encoding="utf-8")
    environment.globals["script"] = Markup(script)
    environment.globals["script_digest"] = b64encode(sha256(script.encode()).digest()).decode()
    environment.globals["few"] = FEW
    environment.globals["fewest"] = spelled(SMALLEST_COUNT)
    environment.globals["left_out"] = LEFT_OUT
    environment.globals["intervals"] = INTERVALS
    environment.globals["last_evaluations"] = spelled(LAST)
    environment.globals["marks"] = MARKS
    environment.globals["most_sizes"] = spelled(MOST_SIZES)
    environment.globals["most_named"] = MOST_NAMED
    environment.globals["not_stated"] = NOT_STATED
    environment.globals["threshold"] = THRESHOLD
    environment.globals["wanted"] = WANTED
    return environment.get_template(name)


def _number(value: float | None, digits: int = 3) -> str:
    return "n/a" if value is None else f"{value:.{digits}f}"


def _signed(value: float, digits: int = 3) -> str:
    return f"{value:+.{digits}f}"


def _percent(share: float, digits: int = 1) -> str:
    return f"{share * 100:.{digits}f}"


def _thousands(number: int) -> str:
    """Return a number with a comma between its thousands, such as ``1,234``."""
    return f"{number:,}"


def _megabytes(size: float) -> str:
    return f"{size / 1e6:,.1f}"


def _upfirst(text: str) -> str:
    """Return the text with a capital first letter; jinja's ``capitalize`` lowers ``AUROC``, too."""
    return text[:1].upper() + text[1:]


def _headings(page: str) -> list[tuple[str, Markup]]:
    """Return (id, title) of each section of a page."""
    return [(name, Markup(title)) for name, title in re.findall(r'<h2 id="(\w+)">(.*?)</h2>', page)]

"""Tables in markdown, and titles of rows and numbers over several runs as tables write them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fedward.evaluation import mean_and_interval
from fedward.evaluation.intervals import Interval
from fedward.lab.bench.study import Study

_METRIC_NAMES = {
    "accuracy": "Accuracy",
    "f1_macro": "Macro F1",
    "f1_weighted": "Weighted F1",
    "auroc_macro": "AUROC",
    "balanced_accuracy": "Balanced accuracy",
    "precision_macro": "Macro precision",
    "precision_weighted": "Weighted precision",
    "ece_adaptive": "ECE in adaptive bins",
    "mce_adaptive": "MCE in adaptive bins",
    "aurc": "Area under risk-coverage",
}


@dataclass
class Table:
    """A table that is filled line by line."""

    columns: Sequence[str]
    left: Collection[int] = (0,)
    """Columns that hold words, which are aligned to the left; numbers are aligned to the right."""
    lines: list[str] = field(default_factory=list)

    def add(self, *cells: str) -> None:
        """Add a line."""
        self.lines.append(table_line(cells))

    def markdown(self) -> str:
        """Return the table as text."""
        return "\n".join([*header_lines(self.columns, self.left), *self.lines])


def header_lines(columns: Sequence[str], left: Collection[int] = (0,)) -> list[str]:
    """Return the first two lines of a table, as of :class:`Table`."""
    alignments = ["---|" if index in left else "--:|" for index in range(len(columns))]
    return [table_line(columns), f"|{''.join(alignments)}"]


def table_line(cells: Sequence[str]) -> str:
    """Return a line of a table."""
    return f"| {' | '.join(cells)} |"


def folded(summary: str, content: str) -> str:
    """Return content that a click unfolds on GitHub and on the site; empty without content."""
    if not content:
        return ""
    summary_line = f'<details markdown="1"><summary>{summary}</summary>'
    return f"{summary_line}\n\n{content}\n\n</details>"


def row_title(study: Study, row: str) -> str:
    """Return the title of a row; the row that the page is about is bold."""
    title = study.rows[row].title
    return f"**{title}**" if row == study.own else title


def full_title(study: Study, variant: str, row: str) -> str:
    """Return :func:`row_title` with the title of its variant before it, if variants have titles."""
    return study.in_variant(variant, row_title(study, row))


def metric_name(metric: str) -> str:
    """Return what tables and figures call a metric."""
    return _METRIC_NAMES.get(metric, metric)


def mean_text(values: Sequence[float]) -> str:
    """Return mean and sample standard deviation; the mean alone for one run."""
    interval = mean_and_interval(values)
    text = f"{interval.mean:.3f}"
    if interval.sd is None:
        return text
    return f"{text} ± {interval.sd:.3f}"


def interval_text(values: Sequence[float], metric: str, over_groups: float | None = None) -> str:
    """Return a mean with its 95 % interval, and half of that over test groups if it is known.

    Args:
        values: one of each repetition; a single one has no interval.
        metric: what they are of. Intervals of scores are cut at 0 and 1.
        over_groups: half the interval over groups of test images.
    """
    interval = mean_and_interval(values).of_score(metric)
    text = f"{interval.mean:.3f}"
    if interval.low is not None:
        text = f"{text} [{interval.low:.3f}, {interval.high:.3f}]"
    if over_groups is not None:
        text = f"{text} ± {over_groups:.3f}"
    return text


class Spread(NamedTuple):
    """How values differ between sites."""

    mean: float
    median: float
    sd: float | None
    """Sample standard deviation; None for a single site."""


def spread_text(spread: Spread | None) -> str:
    """Return mean (median) ± deviation; empty without values."""
    if spread is None:
        return ""
    text = f"{spread.mean:.3f} ({spread.median:.3f})"
    return text if spread.sd is None else f"{text} ± {spread.sd:.3f}"


def gap_text(gap: Interval, digits: int = 3) -> str:
    """Return a mean difference with its 95 % interval; the difference alone for one pair.

    Args:
        gap: the difference.
        digits: decimal places.
    """
    text = f"{gap.mean:+.{digits}f}"
    if gap.low is None:
        return text
    return f"{text} [{gap.low:+.{digits}f}, {gap.high:+.{digits}f}]"

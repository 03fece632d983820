"""The picture of a verdict: all images, each class and each site, the worst on top, with n."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from markupsafe import Markup

from fedward.report.drawing import FAINT, INK, SERIES, axes_of, fitting, svg
from fedward.runs.measured import Measured, lowest_first
from fedward.runs.verdict import Verdict
from fedward.runs.verdict_words.shares import percent
from fedward.text import count

_ROW = 0.21
"""Height of a row in inches."""
_WIDTH = 5.6
_LEFT = 1.55
_RIGHT_OF_AXES = 1.02
"""Where numbers begin, in widths of the axes."""
_LONGEST_NAME = 20
"""Characters of a name beside the picture."""
_MOST_ROWS = 12
"""Rows of classes, of sites and of groups, at most."""


class _Row(NamedTuple):
    name: str
    measured: Measured | None
    """None for a heading, or for the row of those that are left out."""


@dataclass(frozen=True)
class _Part:
    """The classes, the sites or the groups of a verdict."""

    one: str
    """What one of them is called, such as ``class``."""
    plural: str
    values: Sequence[Measured]
    """The lowest first."""

    @property
    def rows(self) -> list[_Row]:
        """The heading, and a row of each value; of too many, of the lowest and of the last one."""
        heading = _Row(f"by {self.one}", None)
        rows = [_Row(value.name, value) for value in self.values]
        left_out = len(rows) - _MOST_ROWS
        if left_out <= 0:
            return [heading, *rows]
        return [heading, *rows[: _MOST_ROWS - 1], _Row(f"… {left_out} more", None), rows[-1]]

    @property
    def which(self) -> str:
        """Which of them have a row, in words."""
        number = len(self.values)
        if number <= _MOST_ROWS:
            return f"each {self.one}"
        return (
            f"{_MOST_ROWS} of {number} {self.plural}, the lowest {_MOST_ROWS - 1} and the highest"
        )


@dataclass(frozen=True)
class Forest:
    """The picture with its words."""

    title: str
    picture: Markup
    caption: str

    @classmethod
    def of(cls, verdict: Verdict, model: str) -> "Forest | None":
        """Draw shares of right answers with their intervals; None for a verdict without classes.

        The dashed line beside all images is the share of the commonest class, which a constant
        answer would reach. It says nothing about one class, site or group.

        Args:
            verdict: on the model.
            model: what the model is called.
        """
        if not verdict.classes:
            return None
        parts = _parts(verdict)
        rows = [_Row("all", verdict.overall)] if verdict.overall else []
        for part in parts:
            rows += part.rows
        return cls(_title(verdict, parts), _picture(verdict, rows), _caption(verdict, model, parts))


def _parts(verdict: Verdict) -> list[_Part]:
    """Return classes, sites and groups, as far as there are several numbers of them."""
    what = ("class", "classes") if verdict.exclusive else ("finding", "findings")
    parts = [_Part(*what, verdict.parts)]
    if verdict.exclusive and len(verdict.sites) > 1:
        parts.append(_Part("site", "sites", verdict.sites))
    if verdict.subgroups:
        groups = [replace(one.measured, name=one.title) for one in verdict.subgroups]
        parts.append(_Part("group", "groups", lowest_first(groups)))
    return parts


def _title(verdict: Verdict, parts: Sequence[_Part]) -> str:
    *others, last = [part.one for part in parts]
    by = f"{', '.join(others)} and {last}" if others else last
    return f"{_what(verdict)} by {by}"


def _what(verdict: Verdict) -> str:
    return "Right answers" if verdict.exclusive else "Sensitivity"


def _caption(verdict: Verdict, model: str, parts: Sequence[_Part]) -> str:
    shown = [part.which for part in parts]
    if verdict.exclusive:
        shown[0] += " (its sensitivity)"
        beginning = f"Right answers of {model}"
        shown.insert(0, f"all test {verdict.unit}s")
    else:
        beginning = f"Share of the {verdict.unit}s with a finding that {model} finds"
    sentences = [f"{beginning}: of {'; of '.join(shown)}.", "The lowest are on top."]
    if verdict.common:
        sentences.append(f"The dashed line at the top is always answering {verdict.common.name}.")
    if verdict.subgroups:
        sentences.append(
            f"A group leaves out {verdict.unit}s of classes that are too small in it. So compare "
            "it with what is expected of it, under Clinical numbers, and not with the other rows."
        )
    return " ".join(sentences)


def _picture(verdict: Verdict, rows: Sequence[_Row]) -> Markup:
    height = _ROW * len(rows) + 0.6
    figure, axes = axes_of(_WIDTH, height, left=_LEFT, bottom=0.46, top=0.06, right=0.95)
    axes.grid(visible=False)
    axes.set_xlim(0, 1)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25", "50", "75", "100 %"])
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(_meaning(verdict))
    if verdict.common:
        common = verdict.common.value
        axes.plot([common] * 2, [-0.45, 0.45], color=FAINT, linewidth=1.4, linestyle=(0, (2, 1.5)))
    for place, row in enumerate(rows):
        _draw(axes, place, row)
    return svg(figure, _in_words(verdict, rows))


def _meaning(verdict: Verdict) -> str:
    if verdict.exclusive:
        return f"right answers of 100 {verdict.unit}s, with 95 % interval"
    return f"found, of 100 {verdict.unit}s with the finding, with 95 % interval"


def _draw(axes: Any, place: int, row: _Row) -> None:
    name = fitting(row.name, _LONGEST_NAME)
    weight = "bold" if row.name == "all" or row.measured is None else "normal"
    axes.text(-0.03, place, name, ha="right", va="center", color=INK, fontweight=weight)
    if row.measured is None:
        return
    value = row.measured
    if value.low is not None and value.high is not None:
        axes.plot([value.low, value.high], [place, place], color=SERIES[0], linewidth=1.6)
    axes.plot([value.value], [place], "o", color=SERIES[0], markersize=5, clip_on=False)
    number = f"{percent(value.value)} · n {value.n}"
    axes.text(_RIGHT_OF_AXES + 0.01, place, number, va="center", color=INK, fontsize=9)


def _in_words(verdict: Verdict, rows: Sequence[_Row]) -> str:
    """Return the picture for people who cannot see it."""
    texts = []
    for row in rows:
        if row.measured is None:
            texts.append(row.name)
        else:
            what = count(row.measured.n, verdict.unit if verdict.exclusive else "finding")
            texts.append(f"{row.name}: {percent(row.measured.value)} % of {what}")
    return f"{_what(verdict)}, the lowest first: {'; '.join(texts)}"

"""What the sites hold, on one page: tables, histograms side by side, and what follows from them for
a training.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from markupsafe import Markup

from fedward.evaluation.in_fives import BRIGHTNESS, CONTRAST, OTHERS, SIDES
from fedward.report import verdict, words
from fedward.report.drawing import INK, SERIES, axes_of
from fedward.report.many import MANY
from fedward.report.multiples import pictures
from fedward.report.survey_words import conclusions, flags, median
from fedward.report.template import template
from fedward.runs.run import Run
from fedward.storage.rows import SurveyRow
from fedward.text import natural

_LEVELS = 4
"""Shades of a table's cells."""
SPLITS = {
    "labelled": "Training images with a label",
    "val": "Validation images",
    "test": "Test images",
}


@dataclass(frozen=True)
class Surveyed:
    """What one page is made of."""

    data: str
    """What the images are called."""
    classes: Sequence[str]
    rows: Sequence[SurveyRow]
    about: str
    """Where the numbers come from."""
    banner: str | None = None
    synthetic: str = ""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Site -> why it has told nothing."""
    sheet: Sequence[tuple[str, Sequence[str]]] = ()
    """Title and pictures, as data URIs, of each row of a contact sheet; a page with one stays at
    its site.
    """


def of_run(run: Run) -> Surveyed:
    """Return what a survey's run folder holds, made of the sites' answers alone."""
    info = run.info
    origin = verdict.origin(run)
    about = f"seed {info.seed} · engine {info.engine} · started {info.started} · {info.status}"
    failed = {site: reason for row in run.rounds for site, reason in row.failed.items()}
    told = {row.site for row in run.surveys}
    return Surveyed(
        data=str((info.experiment.get("data") or {}).get("name", "unnamed data")),
        classes=run.classes,
        rows=run.surveys,
        about=f"{about}. {origin.sentence}" if origin.sentence else about,
        banner=words.banner(run),
        synthetic=origin.warning,
        failed={site: reason for site, reason in failed.items() if site not in told},
    )


def render_survey(surveyed: Surveyed) -> str:
    """Return the page as HTML."""
    rows = sorted(surveyed.rows, key=lambda row: natural(row.site))
    content = {
        "surveyed": surveyed,
        "rows": rows,
        "shown": rows[:MANY],
        "conclusions": conclusions(rows, surveyed.classes),
        "flags": flags(rows, surveyed.classes),
        "total": {name: sum(sum(getattr(row, name)) for row in rows) for name in SPLITS},
        "unlabelled": sum(row.unlabelled for row in rows),
        "splits": [
            (name, title, *_by_class(rows, name, len(surveyed.classes)))
            for name, title in SPLITS.items()
        ],
        "sides": _sides(rows),
        "brightness": _histograms(rows[:MANY], lambda row: row.brightness, BRIGHTNESS),
        "contrast": _histograms(rows[:MANY], lambda row: row.contrast, CONTRAST),
        "columns": _columns(rows),
    }
    return template("survey.html").render(content)


def _by_class(
    rows: Sequence[SurveyRow], name: str, classes: int
) -> tuple[list[tuple[str, list[tuple[int, int]]]], list[int]]:
    """Return the lines of a table, each site with (count, shade) by class, and the column sums."""
    counts = np.array([getattr(row, name) for row in rows]).reshape(len(rows), classes)
    shades = np.ceil(_LEVELS * counts / counts.max(initial=1)).astype(int)
    lines = [
        (row.site, list(zip(map(int, count), map(int, shade), strict=True)))
        for row, count, shade in zip(rows, counts, shades, strict=True)
    ]
    return lines, [int(total) for total in counts.sum(axis=0)]


def _histograms(
    rows: Sequence[SurveyRow],
    counts_of: Callable[[SurveyRow], Sequence[int]],
    edges: Sequence[float],
) -> list[tuple[str, float, Markup]]:
    """Return site, median and picture: the site's shares as bars, those of all sites together as a
    line.
    """
    shares = {
        row.site: np.array(counts_of(row)) / sum(counts_of(row))
        for row in rows
        if any(counts_of(row))
    }
    if not shares:
        return []
    total = np.sum([counts_of(row) for row in rows], axis=0)
    _, axes = axes_of(2.6, 1.3, left=0.1, bottom=0.26)
    axes.set_ylim(0, 1.08 * max(share.max() for share in shares.values()))
    axes.set_yticks([])
    used = np.flatnonzero(total)
    axes.set_xlim(edges[used[0]], edges[used[-1] + 1])
    axes.locator_params(axis="x", nbins=3)

    def put(site: str) -> str:
        axes.fill_between(
            edges, np.append(shares[site], 0), step="post", color=SERIES[0], linewidth=0
        )
        axes.plot(
            edges, np.append(total / total.sum(), 0), drawstyle="steps-post", color=INK, linewidth=1
        )
        return f"{site}: median {median(counts_by_site[site], edges):.2f}"

    counts_by_site = {row.site: counts_of(row) for row in rows}
    drawn = pictures(axes, shares, put)
    return [(site, median(counts_by_site[site], edges), picture) for site, picture in drawn.items()]


def _sides(rows: Sequence[SurveyRow]) -> tuple[list[str], list[tuple[str, tuple[int, ...]]]]:
    """Return the intervals of the shorter side from the first to the last that has images, and the
    sites' counts.
    """
    names = [
        *(f"{low} to {high - 1}" for low, high in pairwise(SIDES[:-1])),
        f"{SIDES[-2]} or more",
    ]
    used = [place for place in range(len(names)) if any(row.sides[place] for row in rows)]
    shown = slice(used[0], used[-1] + 1) if used else slice(0)
    return names[shown], [(row.site, tuple(row.sides[shown])) for row in rows]


def _columns(rows: Sequence[SurveyRow]) -> list[tuple[str, list[str], list[tuple[str, list[int]]]]]:
    """Return each reported column: its name, its values, and each site with counts by value."""
    names = dict.fromkeys(name for row in rows for name in row.columns)
    tables = []
    for name in names:
        telling = [row for row in rows if name in row.columns]
        found = {value for row in telling for value in row.columns[name]}
        values = sorted(found, key=lambda value: (value == OTHERS, natural(value)))
        tables.append(
            (
                name,
                values,
                [(row.site, [row.columns[name].get(v, 0) for v in values]) for row in telling],
            )
        )
    return tables

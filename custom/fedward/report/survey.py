"""The page of a survey: what the sites hold, side by side, and what follows for a training."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from fedward.evaluation.in_fives import BRIGHTNESS, CONTRAST, OTHERS, SIDES
from fedward.report import origin, words
from fedward.report.drawing import INK, SERIES, axes_of
from fedward.report.multiples import pictures
from fedward.report.shades import shade
from fedward.report.sites import MANY
from fedward.report.survey_words import conclusions, flags, median
from fedward.report.template import template
from fedward.runs.run import Run
from fedward.storage.rows import SurveyRow
from fedward.text import natural

SPLITS = {
    "labelled": "Training images with a label",
    "val": "Validation images",
    "test": "Test images",
}
"""Field of a row -> title of its table."""


@dataclass(frozen=True)
class Surveyed:
    """What one page is made of."""

    data: str
    """Name of the images."""
    classes: Sequence[str]
    rows: Sequence[SurveyRow]
    """The answer of each site."""
    about: str
    """Where the numbers come from."""
    banner: str | None = None
    """What to know of a survey that did not end well."""
    synthetic: str = ""
    """That images are synthetic, if any are."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Site -> why it has not answered."""
    sheet: Sequence[tuple[str, Sequence[str]]] = ()
    """Rows of a contact sheet, each with its title and pictures as data URIs.

    A page with a sheet stays at its site.
    """


class ClassCell(NamedTuple):
    """A site's images of one class in one split."""

    images: int
    style: str
    """Class of the style sheet: how dark the cell is, or that it is empty."""


class ClassCounts(NamedTuple):
    """A site's images in one split, by class."""

    site: str
    cells: Sequence[ClassCell]
    """By class, in the survey's order."""
    images: int
    """Of all classes."""


class ClassTable(NamedTuple):
    """Images by site and class in one split."""

    name: str
    """One of :data:`SPLITS`."""
    title: str
    lines: Sequence[ClassCounts]
    sums: Sequence[int]
    """Images of each class at all sites."""


class SiteHistogram(NamedTuple):
    """How one property is distributed over a site's images."""

    site: str
    median: float
    picture: Markup


class Look(NamedTuple):
    """One property by which images look alike or different."""

    title: str
    explanation: str
    """What the property is, and what its histograms show."""
    histograms: Sequence[SiteHistogram]


class CountTable(NamedTuple):
    """Images by site and value of one property."""

    title: str
    values: Sequence[str]
    lines: Sequence[tuple[str, Sequence[int]]]
    """Site, and its images with each value."""


@dataclass(frozen=True)
class SurveyPage:
    """What the page's template is given."""

    surveyed: Surveyed
    rows: Sequence[SurveyRow]
    """In natural order of sites."""
    asked: int
    """Number of sites that were asked."""
    conclusions: Sequence[str]
    flags: Sequence[str]
    total: Mapping[str, int]
    """Images of all sites in each of :data:`SPLITS`."""
    unlabelled: int
    """Unlabelled training images of all sites."""
    splits: Sequence[ClassTable]
    sides: CountTable
    """Images by their shorter side."""
    looks: Sequence[Look]
    columns: Sequence[CountTable]
    """Images by the columns of sites' files that a site reports."""


def of_run(run: Run) -> Surveyed:
    """Return the content of a survey's run folder: the sites' answers and nothing else."""
    info = run.info
    came_from = origin.origin(run)
    about = f"seed {info.seed} · engine {info.engine} · started {info.started} · {info.status}"
    if came_from.sentence:
        about += f". {came_from.sentence}"
    answered = {row.site for row in run.surveys}
    failed = {}
    for row in run.rounds:
        for site, reason in row.failed.items():
            if site not in answered:
                failed[site] = reason
    return Surveyed(
        data=run.data_name,
        classes=run.classes,
        rows=run.surveys,
        about=about,
        banner=words.banner(run),
        synthetic=came_from.warning,
        failed=failed,
    )


def render_survey(surveyed: Surveyed) -> str:
    """Return the page as HTML."""
    rows = sorted(surveyed.rows, key=lambda row: natural(row.site))
    splits = [_class_table(rows, name, len(surveyed.classes)) for name in SPLITS]
    page = SurveyPage(
        surveyed=surveyed,
        rows=rows,
        asked=len(rows) + len(surveyed.failed),
        conclusions=conclusions(rows, surveyed.classes),
        flags=flags(rows, surveyed.classes),
        total={table.name: sum(table.sums) for table in splits},
        unlabelled=sum(row.unlabelled for row in rows),
        splits=splits,
        sides=_sides(rows),
        looks=_looks(rows),
        columns=_columns(rows),
    )
    return template("survey.html").render(vars(page))


def _class_table(rows: Sequence[SurveyRow], name: str, classes: int) -> ClassTable:
    counts = np.array([getattr(row, name) for row in rows]).reshape(len(rows), classes)
    most = int(counts.max(initial=1))
    lines = []
    for row, of_site in zip(rows, counts.tolist(), strict=True):
        cells = []
        for images in of_site:
            style = f"level-{shade(images, most)}" if images else "none"
            cells.append(ClassCell(images, style))
        lines.append(ClassCounts(row.site, cells, sum(of_site)))
    sums = [int(total) for total in counts.sum(axis=0)]
    return ClassTable(name, SPLITS[name], lines, sums)


def _looks(rows: Sequence[SurveyRow]) -> list[Look]:
    """Return how bright and how rich in contrast the images of the first sites by name are."""
    shown = rows[:MANY]
    of_all = ""
    if len(rows) > len(shown):
        of_all = f"Line: of all {len(shown)} sites shown here, the first by name. "
    elif len(rows) > 1:
        of_all = f"Line: of all {len(rows)} sites. "
    histograms = (
        f"Blue: shares of a site's images. {of_all}Images are measured at the size that the job "
        "decodes them to."
    )
    return [
        Look(
            "Brightness",
            f"Mean grey value of an image: 0 is black, 1 is white. {histograms}",
            _histograms(shown, lambda row: row.brightness, BRIGHTNESS),
        ),
        Look(
            "Contrast",
            f"Standard deviation of an image's grey values, up to 0.5. {histograms}",
            _histograms(shown, lambda row: row.contrast, CONTRAST),
        ),
    ]


def _histograms(
    rows: Sequence[SurveyRow],
    counts_of: Callable[[SurveyRow], Sequence[int]],
    edges: Sequence[float],
) -> list[SiteHistogram]:
    """Draw each site's shares of images as bars, over those of all sites as a line."""
    counts = {row.site: counts_of(row) for row in rows if any(counts_of(row))}
    if not counts:
        return []
    shares = {site: np.array(numbers) / sum(numbers) for site, numbers in counts.items()}
    total = np.sum(list(counts.values()), axis=0)
    _, axes = axes_of(2.6, 1.3, left=0.1, bottom=0.26)
    axes.set_ylim(0, 1.08 * max(share.max() for share in shares.values()))
    axes.set_yticks([])
    used = np.flatnonzero(total)
    axes.set_xlim(edges[used[0]], edges[used[-1] + 1])
    axes.locator_params(axis="x", nbins=3)
    medians = {site: median(numbers, edges) for site, numbers in counts.items()}

    def draw(site: str) -> str:
        # The last edge closes the last interval.
        bars = np.append(shares[site], 0)
        line = np.append(total / total.sum(), 0)
        axes.fill_between(edges, bars, step="post", color=SERIES[0], linewidth=0)
        axes.plot(edges, line, drawstyle="steps-post", color=INK, linewidth=1)
        return f"{site}: median {medians[site]:.2f}"

    drawn = pictures(axes, counts, draw)
    return [SiteHistogram(site, medians[site], picture) for site, picture in drawn.items()]


def _sides(rows: Sequence[SurveyRow]) -> CountTable:
    """Return images by their shorter side, from the first to the last interval with images."""
    names = [f"{low} to {high - 1}" for low, high in pairwise(SIDES[:-1])]
    names.append(f"{SIDES[-2]} or more")
    used = [place for place in range(len(names)) if any(row.sides[place] for row in rows)]
    shown = slice(used[0], used[-1] + 1) if used else slice(0)
    return CountTable("sides", names[shown], [(row.site, row.sides[shown]) for row in rows])


def _columns(rows: Sequence[SurveyRow]) -> list[CountTable]:
    """Return images by each column that a site reports."""
    tables = []
    for name in dict.fromkeys(name for row in rows for name in row.columns):
        reporting = [row for row in rows if name in row.columns]
        values = {value for row in reporting for value in row.columns[name]}
        ordered = sorted(values, key=lambda value: (value == OTHERS, natural(value)))
        lines = []
        for row in reporting:
            lines.append((row.site, [row.columns[name].get(value, 0) for value in ordered]))
        tables.append(CountTable(name, ordered, lines))
    return tables

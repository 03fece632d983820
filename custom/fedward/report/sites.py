"""The report's section on sites: all of them, or of many both ends and quartiles."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from fedward.report import figures
from fedward.runs.choices import Choices, site_test_values
from fedward.runs.exchanges import traffic_by_site
from fedward.runs.run import Run
from fedward.runs.sentences import lowest_and_highest, spelled
from fedward.runs.site_lines import SiteLine, site_lines
from fedward.runs.titles import title_of

MANY = 30
"""With more sites than this a report shows some of them."""
_END = 10
"""Number of sites shown at either end."""
QUARTILES = ("lowest", "lower quartile", "median", "upper quartile", "highest")
_SHARES = (0, 0.25, 0.5, 0.75, 1)
"""Shares of the sites below each of :data:`QUARTILES`."""


@dataclass(frozen=True)
class SiteResults:
    """One site in the table of all sites."""

    site: SiteLine
    end: float | None
    """Test key metric, mean of the last rounds."""
    shared: float | None
    """Test key metric at the best single round."""
    best: float | None
    """Test key metric at the site's own best round."""
    auroc: float | None
    """Macro AUROC on test images, of the selected model."""
    down: float
    """Megabytes to the site."""
    up: float
    """Megabytes from the site."""


class QuartileLine(NamedTuple):
    """How sites differ in one thing."""

    name: str
    digits: int
    """Digits after the point to show."""
    values: Sequence[float]
    """At each of :data:`QUARTILES`, over the sites that have a value."""


@dataclass(frozen=True)
class Sites:
    """What the section shows, and which sites other sections show."""

    all: Sequence[SiteLine]
    shown: Sequence[SiteLine]
    """The sites that are shown one by one: all, or of many the two ends."""
    selection: str
    """Which sites are shown one by one, in a sentence; empty if all are."""
    ends: str
    """The lowest and the highest test value of the selected model; empty if none was tested."""
    results: Sequence[SiteResults]
    """All sites with their results."""
    distribution: Markup | None
    """Of many sites, the figure of their test values with the selected model."""
    quartile_names: Sequence[str] = QUARTILES

    @classmethod
    def of(cls, run: Run, choices: Choices) -> "Sites":
        """Return the section."""
        lines = site_lines(run)
        values = site_test_values(run, run.key_metric, choices.reported)
        metric = title_of(run.key_metric)
        shown = list(lines)
        selection = ""
        if len(lines) > MANY:
            shown, selection = _ends(lines, values, metric)
        return cls(
            all=lines,
            shown=shown,
            selection=selection,
            ends=lowest_and_highest(values) if values else "",
            results=site_results(run, choices, lines),
            distribution=figures.distribution(values, metric) if len(values) > MANY else None,
        )

    @property
    def many(self) -> bool:
        """Whether only some sites are shown one by one."""
        return len(self.all) > MANY

    @property
    def names(self) -> list[str]:
        """Names of the sites that are shown one by one."""
        return [line.site for line in self.shown]

    @property
    def labelled(self) -> int | None:
        """Labelled images of all sites that report them; None if none does."""
        return _total(line.labelled for line in self.all)

    @property
    def unlabelled(self) -> int | None:
        """Unlabelled images of all sites that report them; None if none does."""
        return _total(line.unlabelled for line in self.all)

    @property
    def quartiles(self) -> list[QuartileLine]:
        """How sites differ."""
        return quartiles(self.results)


def _ends(
    sites: Sequence[SiteLine], values: Mapping[str, float], metric: str
) -> tuple[list[SiteLine], str]:
    """Return which of many sites are shown one by one, and a sentence on their choice.

    They are those with the lowest and those with the highest test values of the selected model. If
    too few of the many have a test value, the first ones by name are returned.

    Args:
        sites: all sites of the run, more than :data:`MANY`.
        values: site -> its test value.
        metric: title of the metric.
    """
    tested = [line for line in sites if line.site in values]
    both = 2 * _END
    if len(tested) < both:
        return list(sites[:both]), f"the first {both} of {len(sites)} sites."
    ranked = sorted(tested, key=lambda line: values[line.site])
    end = spelled(_END)
    which = (
        f"{both} of {len(sites)} sites: the {end} lowest and the {end} highest by test {metric}."
    )
    return [*ranked[:_END], *ranked[-_END:]], which


def _total(values: Iterable[int | None]) -> int | None:
    reported = [value for value in values if value is not None]
    return sum(reported) if reported else None


def site_results(run: Run, choices: Choices, sites: Sequence[SiteLine]) -> list[SiteResults]:
    """Return a line per site, by rising test value of the selected model, the untested last."""
    selected = site_test_values(run, choices.shared.metric, choices.reported)
    end = {choice.site: choice.test for choice in choices.end.sites}
    shared = {choice.site: choice.test for choice in choices.shared.sites}
    best = {choice.site: choice.test for choice in choices.own.sites}
    auroc = site_test_values(run, "auroc_macro", choices.reported)
    traffic = traffic_by_site(run)
    lines = []
    for line in sites:
        site = line.site
        results = SiteResults(
            site=line,
            end=end.get(site),
            shared=shared.get(site),
            best=best.get(site),
            auroc=auroc.get(site),
            down=traffic[site].down / 1e6,
            up=traffic[site].up / 1e6,
        )
        lines.append(results)
    return sorted(lines, key=lambda one: selected.get(one.site.site, np.inf))


def quartiles(lines: Sequence[SiteResults]) -> list[QuartileLine]:
    """Return a line for each thing in which sites differ and that some site reports."""
    columns: list[tuple[str, int, list[float | None]]] = [
        ("labelled images", 0, [line.site.labelled for line in lines]),
        ("unlabelled images", 0, [line.site.unlabelled for line in lines]),
        ("validation images", 0, [line.site.val for line in lines]),
        ("test images", 0, [line.site.test for line in lines]),
        ("rounds trained", 0, [line.site.trained for line in lines]),
        ("failures", 0, [line.site.failures for line in lines]),
        ("test value, last rounds", 3, [line.end for line in lines]),
        ("test value, best single round", 3, [line.shared for line in lines]),
        ("test value, best per site", 3, [line.best for line in lines]),
        ("macro AUROC, selected model", 3, [line.auroc for line in lines]),
        ("MB down", 1, [line.down for line in lines]),
        ("MB up", 1, [line.up for line in lines]),
    ]
    rows = []
    for name, digits, values in columns:
        reported = [value for value in values if value is not None]
        if reported:
            rows.append(QuartileLine(name, digits, np.quantile(reported, _SHARES).tolist()))
    return rows

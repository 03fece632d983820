"""Small multiples: a small picture of each site, on axes equal for all sites, which are drawn once."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from markupsafe import Markup

from fedward.report.drawing import FAINT, SERIES, Line, axes_of, bars, drawn, svg, xy

Lines = Mapping[str, Line]
"""Site -> round -> value."""


def validation_curves(
    lines: Lines, mean: Line, best: Mapping[str, int | None]
) -> dict[str, Markup]:
    """Each site's validation curve over the faint mean of all sites; its ``best`` round is marked."""
    axes = _values_up_to_one(max(*mean, 1))
    axes.plot(*xy(mean), color=FAINT, linewidth=1.4)

    def put(site: str) -> str:
        line = lines[site]
        marked = best[site]
        axes.plot(*xy(line), color=SERIES[0], linewidth=1.6)
        if marked is not None:
            axes.plot([marked], [line[marked]], "o", color=SERIES[1], markersize=5, clip_on=False)
        return f"{site}: {max(line.values()):.3f} at its best round {marked}"

    return pictures(axes, lines, put)


def label_curves(lines: Lines, last: int) -> dict[str, Markup]:
    """Each site's value against the labels bought there; ``last``: most labels of any."""
    axes = _values_up_to_one(max(last, 1))

    def put(site: str) -> str:
        line = lines[site]
        axes.plot(
            *xy(line), color=SERIES[0], linewidth=1.6, marker="o", markersize=3, clip_on=False
        )
        most = max(line)
        return f"{site}: {line[most]:.3f} with {most} labels bought"

    return pictures(axes, lines, put)


def weights(lines: Lines, colours: Mapping[str, str]) -> dict[str, Markup]:
    """Each site's share of its average, a bar for each round it contributed to, in the colour of
    the site.
    """
    _, axes = axes_of(2.6, 1.3, left=0.5, bottom=0.26)
    axes.set_ylim(0, max(max(line.values()) for line in lines.values()) * 1.1)
    axes.set_xlim(0.5, max(map(max, lines.values())) + 0.5)
    axes.locator_params(axis="x", nbins=3, integer=True)
    axes.locator_params(axis="y", nbins=3)

    def put(site: str) -> str:
        values = np.asarray(list(lines[site].values()))
        bars(axes, list(lines[site]), values * 0, values, colours[site])
        return f"Weight of {site} by round, {values.mean():.3f} on average"

    return pictures(axes, lines, put)


def _values_up_to_one(last: float) -> Any:
    """Return axes from 0 to ``last`` for values from 0 to 1."""
    _, axes = axes_of(2.6, 1.5, left=0.35, bottom=0.26)
    axes.set_ylim(0, 1)
    axes.set_yticks([0, 0.5, 1])
    axes.set_xlim(0, last)
    axes.locator_params(axis="x", nbins=3, integer=True)
    return axes


def pictures(axes: Any, names: Iterable[str], put: Callable[[str], str]) -> dict[str, Markup]:
    """Return name -> picture: the axes as they are, and over them what ``put`` puts there and
    describes in words.
    """
    below = drawn(axes.figure)
    found = {}
    axes.set_axis_off()
    for name in names:
        for artist in (*axes.lines, *axes.collections):
            artist.remove()
        words = put(name)
        found[name] = svg(axes.figure, words, below)
    return found

"""Small multiples: a small picture of each site, on axes equal for all sites and drawn once."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from markupsafe import Markup

from fedward.report.drawing import FAINT, SERIES, Line, axes_of, bars, svg, svg_content, xy
from fedward.text import count

Lines = Mapping[str, Line]
"""Site -> round -> value."""


def validation_curves(
    lines: Lines, mean: Line, best: Mapping[str, int | None]
) -> dict[str, Markup]:
    """Draw each site's validation curve over the faint mean of all sites.

    Args:
        lines: site -> its curve.
        mean: the curve of all sites.
        best: site -> the round to mark; None for none.
    """
    axes = _values_up_to_one(max(*mean, 1))
    axes.plot(*xy(mean), color=FAINT, linewidth=1.4)

    def draw(site: str) -> str:
        line = lines[site]
        axes.plot(*xy(line), color=SERIES[0], linewidth=1.6)
        marked = best[site]
        if marked is not None:
            axes.plot([marked], [line[marked]], "o", color=SERIES[1], markersize=5, clip_on=False)
        return f"{site}: {max(line.values()):.3f} at its best round {marked}"

    return pictures(axes, lines, draw)


def label_curves(lines: Lines, last: int) -> dict[str, Markup]:
    """Draw each site's value against the labels bought there; ``last`` is the most of any site."""
    axes = _values_up_to_one(max(last, 1))
    style: dict[str, Any] = {"color": SERIES[0], "linewidth": 1.6, "marker": "o", "markersize": 3}

    def draw(site: str) -> str:
        line = lines[site]
        axes.plot(*xy(line), **style, clip_on=False)
        most = max(line)
        return f"{site}: {line[most]:.3f} with {count(most, 'label')} bought"

    return pictures(axes, lines, draw)


def weights(lines: Lines, colours: Mapping[str, str]) -> dict[str, Markup]:
    """Draw each site's share of its average as a bar for each round, in the colour of the site."""
    _, axes = axes_of(2.6, 1.3, left=0.5, bottom=0.26)
    axes.set_ylim(0, max(max(line.values()) for line in lines.values()) * 1.1)
    axes.set_xlim(0.5, max(map(max, lines.values())) + 0.5)
    axes.locator_params(axis="x", nbins=3, integer=True)
    axes.locator_params(axis="y", nbins=3)

    def draw(site: str) -> str:
        values = np.asarray(list(lines[site].values()))
        bars(axes, list(lines[site]), np.zeros_like(values), values, colours[site])
        return f"Weight of {site} by round, {values.mean():.3f} on average"

    return pictures(axes, lines, draw)


def _values_up_to_one(last: float) -> Any:
    """Return axes from 0 to ``last`` for values from 0 to 1."""
    _, axes = axes_of(2.6, 1.5, left=0.35, bottom=0.26)
    axes.set_ylim(0, 1)
    axes.set_yticks([0, 0.5, 1])
    axes.set_xlim(0, last)
    axes.locator_params(axis="x", nbins=3, integer=True)
    return axes


def pictures(axes: Any, names: Iterable[str], draw: Callable[[str], str]) -> dict[str, Markup]:
    """Return name -> picture, all on the same axes.

    The axes are drawn once with what they hold. Only what ``draw`` adds is drawn for each picture.

    Args:
        axes: as :func:`fedward.report.drawing.axes_of` made them.
        names: of the pictures.
        draw: draws the content of a picture into the axes, and returns its description in words.
    """
    background = svg_content(axes.figure)
    axes.set_axis_off()
    by_name = {}
    for name in names:
        for artist in (*axes.lines, *axes.collections):
            artist.remove()
        description = draw(name)
        by_name[name] = svg(axes.figure, description, background)
    return by_name

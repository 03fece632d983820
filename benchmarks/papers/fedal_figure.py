"""Figures 2 and 3 of the FedAL benchmark: test scores against the share of labels, as pictures and as numbers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.figure import Figure

from papers.fedal import ROWS
from papers.fedal_paper import METRICS
from papers.svg import STYLE, save

SPLIT = "test"
"""Whose scores are drawn; the results hold those of ``val`` too."""
_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))


class Curve(NamedTuple):
    """Means over the seeds of one row."""

    row: str
    seeds: int
    percents: tuple[float, ...]
    """Of the training images that had a label, for each point."""
    values: Mapping[str, tuple[float, ...]]
    """Metric -> percent at each point."""


def curves(results: Sequence[Mapping[str, Any]], split: str) -> list[Curve]:
    """Return the curves of one split in the order of the tables; rows without a curve or a result are left out.

    With all labels from the start it is one point, the round that validation images choose.
    """
    found = []
    for row in ROWS:
        lines = [r["curve"] for r in results if (r["row"], r["split"]) == (row, split) and r["curve"]]
        if not lines:
            continue
        points = list(zip(*([line[-1:] for line in lines] if ROWS[row].everything else lines), strict=True))
        values = {name: tuple(fmean(each[SPLIT][name] for each in point) for point in points) for name in METRICS}
        percents = tuple(fmean(each["percent"] for each in point) for point in points)
        found.append(Curve(row, len(lines), percents, values))
    return found


def numbers(found: Sequence[Curve]) -> str:
    """Return the curves as markdown: a table for each metric, a column for each share of labels."""
    lines: list[str] = []
    shares = sorted({round(percent) for line in found for percent in line.percents})
    for metric, name in METRICS.items():
        heads = " | ".join(f"{share} %" for share in shares)
        lines += [f"\n#### {name} on test images by share of labels\n", f"| method | seeds | {heads} |"]
        lines.append("|---|" + "--:|" * (1 + len(shares)))
        for line in found:
            own = dict(zip(map(round, line.percents), line.values[metric], strict=True))
            cells = [f"{own[share]:.2f}" if share in own else "" for share in shares]
            lines.append(f"| {ROWS[line.row].title} | {line.seeds} | {' | '.join(cells)} |")
    return "\n".join(lines)


def draw(found: Sequence[Curve], picture: Path) -> None:
    """Write the curves as SVG, a panel for each metric; rows with all labels are level lines."""
    colours, places = mpl.colormaps["tab10"], list(ROWS)  # a row looks alike in all figures
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(12, 3.8), layout="constrained")
        panels = figure.subplots(1, len(METRICS))
        for panel, (metric, name) in zip(panels, METRICS.items(), strict=True):
            for line in found:
                index = places.index(line.row)
                style = {"color": colours(index), "linestyle": _DASHES[index % len(_DASHES)]}
                if ROWS[line.row].everything:
                    panel.axhline(line.values[metric][0], label=ROWS[line.row].title, **style)
                else:
                    label = ROWS[line.row].title
                    panel.plot(line.percents, line.values[metric], marker="o", markersize=3, label=label, **style)
            panel.set_ylabel(f"test {name}, %")
            panel.spines[["top", "right"]].set_visible(False)
        figure.supxlabel("labelled training images, %; the last point is the best of several rounds", size="medium")
        handles = panels[0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside upper center", ncols=4, frameon=False)
        save(figure, picture)

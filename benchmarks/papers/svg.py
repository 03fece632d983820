"""Pictures of the benchmarks: SVG whose text stays text, equal bytes for equal numbers."""

from pathlib import Path

from matplotlib.figure import Figure

STYLE = {"svg.fonttype": "none", "svg.hashsalt": "fedward"}
"""For ``matplotlib.rc_context``, around drawing and :func:`save`."""


def save(figure: Figure, picture: Path) -> None:
    """Write a figure; its folder is made if absent."""
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, format="svg", metadata={"Date": None})

"""Figures of clinical numbers: curves of each class, calibration, and what referring to a human
brings.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure

from fedward.evaluation.clinical import Share, Values
from fedward.report.drawing import FAINT, INK, SERIES, axes_of, svg
from fedward.report.multiples import pictures

Curves = Mapping[str, tuple[Values, Values]]
"""Class -> x and y of its curve."""


def roc(curves: Curves) -> dict[str, Markup]:
    """Each class's true positive rate against its false positive rate; chance is the diagonal."""
    axes = _square()
    axes.plot([0, 1], [0, 1], color=FAINT, linewidth=0.8)

    def put(name: str) -> str:
        x, y = curves[name]
        axes.plot(x, y, color=SERIES[0], linewidth=1.8, clip_on=False)
        return f"ROC curve of {name}, area {float(np.trapezoid(y, x)):.2f}"

    return pictures(axes, curves, put)


def precision_recall(curves: Curves) -> dict[str, Markup]:
    """Each class's precision against its recall, in steps; chance is the dashed line, the share of
    the class.
    """
    axes = _square()

    def put(name: str) -> str:
        recall, precision = curves[name]
        axes.plot([0, 1], [precision[-1]] * 2, color=FAINT, linewidth=0.8, linestyle=(0, (4, 3)))
        at = np.concatenate([[0.0], recall])
        found = np.concatenate([precision[:1], precision])
        axes.plot(at, found, color=SERIES[1], linewidth=1.8, clip_on=False, drawstyle="steps-pre")
        return f"Precision and recall of {name}; chance is {precision[-1]:.2f}"

    return pictures(axes, curves, put)


def reliability(points: Sequence[tuple[float, Share]]) -> Markup:
    """Share of right answers against confidence, with intervals; a calibrated model lies on the
    diagonal.
    """
    figure, axes = _half("confidence of the model", "share of right answers")
    axes.plot([0, 1], [0, 1], color=FAINT, linewidth=0.8)
    for at, share in points:
        axes.plot([at, at], [share.low, share.high], color=SERIES[0], linewidth=1.4)
    axes.plot(
        [at for at, _ in points],
        [share.value for _, share in points],
        "o-",
        color=SERIES[0],
        markersize=4,
    )
    said = ", ".join(f"{at:.2f}: {share.value:.2f}" for at, share in points)
    return svg(figure, f"Share of right answers by confidence: {said}")


def reliabilities(points: Mapping[str, Sequence[tuple[float, Share]]]) -> dict[str, Markup]:
    """Share of images that show a class against the probability that the model gives it, with
    intervals.
    """
    axes = _square()
    axes.plot([0, 1], [0, 1], color=FAINT, linewidth=0.8)

    def put(name: str) -> str:
        for at, share in points[name]:
            axes.plot(
                [at, at], [share.low, share.high], color=SERIES[0], linewidth=1.2, clip_on=False
            )
        values = [(at, share.value) for at, share in points[name]]
        axes.plot(
            *zip(*values, strict=True),
            "o-",
            color=SERIES[0],
            markersize=3,
            linewidth=1,
            clip_on=False,
        )
        said = ", ".join(f"{at:.2f}: {value:.2f}" for at, value in values)
        return f"Share of images that show {name} by its probability: {said}"

    return pictures(axes, points, put)


def referral(coverage: Values, right: Values) -> Markup:
    """Share of right answers among the images that are not referred, against the share that is."""
    figure, axes = _half("share of images referred to a human", "right answers among the others")
    axes.plot(1 - coverage, right, "o-", color=SERIES[2], markersize=4)
    axes.set_ylim(min(0.5, float(right.min()) - 0.1), 1.02)
    axes.annotate(
        f"none referred: {right[-1]:.2f}",
        (0, right[-1]),
        (8, -12),
        textcoords="offset points",
        color=INK,
        fontsize=9,
    )
    return svg(
        figure,
        f"Share of right answers by share referred: {right[-1]:.2f} of all, {right[0]:.2f} of the surest",
    )


def _square() -> Any:
    _, axes = axes_of(1.9, 1.7, left=0.35, bottom=0.26)
    for limit, ticks in ((axes.set_xlim, axes.set_xticks), (axes.set_ylim, axes.set_yticks)):
        limit(0, 1)
        ticks([0, 0.5, 1])
    return axes


def _half(across: str, up: str) -> tuple[Figure, Any]:
    """Return axes half as wide as the page, for shares."""
    figure, axes = axes_of(5.2, 3.4, left=0.6, bottom=0.48)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.02)
    return figure, axes

"""Figures of clinical numbers: curves of each class, calibration, and what a referral brings."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure

from fedward.evaluation.arrays import Values
from fedward.evaluation.intervals import Share
from fedward.report.drawing import FAINT, INK, SERIES, axes_of, svg
from fedward.report.multiples import pictures

Curves = Mapping[str, tuple[Values, Values]]
"""Class -> x and y of its curve."""
Point = tuple[float, float]
"""1 - specificity and sensitivity."""
Calibration = Sequence[tuple[float, Share]]
"""Probability that a model gives, and the share of images for which it is right."""


def roc(
    curves: Curves, points: Mapping[str, Point | None], areas: Mapping[str, str]
) -> dict[str, Markup]:
    """Draw each class's true positive rate against its false positive rate, over the diagonal.

    Args:
        curves: class -> its curve.
        points: class -> where its answers are.
        areas: class -> the exact area, in words.
    """
    axes = _square()
    axes.plot([0, 1], [0, 1], color=FAINT, linewidth=0.8)

    def draw(name: str) -> str:
        x, y = curves[name]
        axes.plot(x, y, color=SERIES[0], linewidth=1.8, clip_on=False)
        description = f"ROC curve of {name}, area {areas[name]}"
        point = points[name]
        if point:
            across, up = point
            axes.plot([across], [up], "o", color=SERIES[1], markersize=6, clip_on=False)
            description += f"; its answers have sensitivity {up:.2f}, specificity {1 - across:.2f}"
        return description

    return pictures(axes, curves, draw)


def precision_recall(curves: Curves, areas: Mapping[str, str]) -> dict[str, Markup]:
    """Draw each class's precision against its recall, in steps.

    Chance is the dashed line: the share of the class. ``areas``: class -> exact area, in words.
    """
    axes = _square()

    def draw(name: str) -> str:
        recall, precision = curves[name]
        chance = precision[-1]
        axes.plot([0, 1], [chance, chance], color=FAINT, linewidth=0.8, linestyle=(0, (4, 3)))
        # The first step begins at recall 0.
        x = np.concatenate([[0.0], recall])
        y = np.concatenate([precision[:1], precision])
        axes.plot(x, y, color=SERIES[1], linewidth=1.8, clip_on=False, drawstyle="steps-pre")
        return f"Precision and recall of {name}, area {areas[name]}; chance is {chance:.2f}"

    return pictures(axes, curves, draw)


def reliability(points: Calibration) -> Markup:
    """Draw the share of right answers against confidence, with intervals.

    A calibrated model lies on the diagonal.
    """
    figure, axes = _half("confidence of the model", "share of right answers")
    axes.plot([0, 1], [0, 1], color=FAINT, linewidth=0.8)
    for confidence, share in points:
        axes.plot([confidence] * 2, [share.low, share.high], color=SERIES[0], linewidth=1.4)
    confidences = [confidence for confidence, _ in points]
    shares = [share.value for _, share in points]
    axes.plot(confidences, shares, "o-", color=SERIES[0], markersize=4)
    return svg(figure, f"Share of right answers by confidence: {_as_text(points)}")


def reliabilities(points: Mapping[str, Calibration]) -> dict[str, Markup]:
    """Draw the share of images that show a class against its probability, with intervals."""
    axes = _square()
    axes.plot([0, 1], [0, 1], color=FAINT, linewidth=0.8)

    def draw(name: str) -> str:
        style: dict[str, Any] = {"color": SERIES[0], "clip_on": False}
        for probability, share in points[name]:
            axes.plot([probability] * 2, [share.low, share.high], linewidth=1.2, **style)
        probabilities = [probability for probability, _ in points[name]]
        shares = [share.value for _, share in points[name]]
        axes.plot(probabilities, shares, "o-", markersize=3, linewidth=1, **style)
        return f"Share of images that show {name} by its probability: {_as_text(points[name])}"

    return pictures(axes, points, draw)


def _as_text(points: Calibration) -> str:
    return ", ".join(f"{probability:.2f}: {share.value:.2f}" for probability, share in points)


def referral(coverage: Values, right: Values) -> Markup:
    """Draw the share of right answers among images not referred, against the share referred."""
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
    description = (
        f"Share of right answers by share referred: {right[-1]:.2f} of all, {right[0]:.2f} of the "
        "surest"
    )
    return svg(figure, description)


def _square() -> Any:
    """Return small axes for shares."""
    _, axes = axes_of(1.9, 1.7, left=0.35, bottom=0.26)
    ticks = [0, 0.5, 1]
    axes.set_xlim(0, 1)
    axes.set_xticks(ticks)
    axes.set_ylim(0, 1)
    axes.set_yticks(ticks)
    return axes


def _half(across: str, up: str) -> tuple[Figure, Any]:
    """Return axes half as wide as the page, for shares."""
    figure, axes = axes_of(5.2, 3.4, left=0.6, bottom=0.48)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.02)
    return figure, axes

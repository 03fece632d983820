"""Numbers of one site: metrics of one model, and the choice of a round to report."""

from fedward.evaluation.intervals import Interval, mean_and_interval, paired_difference
from fedward.evaluation.metric_rows import Metric
from fedward.evaluation.one_label import classification_metrics
from fedward.evaluation.selection import (
    MetricRow,
    Selection,
    SiteChoice,
    best_global,
    best_per_site,
    last_round,
    last_rounds,
    mean_over_sites,
)

__all__ = [
    "Interval",
    "Metric",
    "MetricRow",
    "Selection",
    "SiteChoice",
    "best_global",
    "best_per_site",
    "classification_metrics",
    "last_round",
    "last_rounds",
    "mean_and_interval",
    "mean_over_sites",
    "paired_difference",
]

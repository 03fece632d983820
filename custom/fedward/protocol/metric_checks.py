"""The check of a site's metric rows.

Their names must be known, they must obey the small-count rule, and fit together.
"""

from collections.abc import Sequence
from typing import get_args

from fedward.evaluation.small_counts import SMALLEST_COUNT
from fedward.protocol.answer_rules import AnswerRules
from fedward.protocol.fields import refuse
from fedward.protocol.messages import MetricValue, Split
from fedward.terminal import shown

_CLASS_METRICS = ("auprc", "auroc", "f1", "support")
"""Metrics of single classes, which are reported as ``<metric>/<class>``."""
_ROUNDING = 1e-6
"""How far outside [0, 1] a mean of shares may be."""


def check_metrics(
    where: str, rows: Sequence[MetricValue], is_evaluated: bool, rules: AnswerRules
) -> None:
    """Raise RefusedError unless rows are possible metrics of one site's images.

    Args:
        where: beginning of the place that an error names.
        rows: of all splits.
        is_evaluated: whether the request asked for an evaluation.
        rules: what answers of the job may hold.
    """
    if rows and not is_evaluated:
        refuse(where, "none, as the model was not to be evaluated", f"{len(rows)} rows")
    classes = frozenset(rules.classes)
    for row in rows:
        _check_metric(where, row, classes, rules)
    if len({(row.split, row.name) for row in rows}) < len(rows):
        refuse(where, "one row for each split and name", "two for one of them")
    for split in get_args(Split):
        rows_of_split = [row for row in rows if row.split == split]
        _check_split(f"{where}, {split}", rows_of_split, rules)


def _check_split(where: str, rows: Sequence[MetricValue], rules: AnswerRules) -> None:
    """Refuse rows of one split that are not of the same images."""
    if not rows:
        return
    if len({(row.n, *row.classes) for row in rows}) > 1:
        refuse(where, "one number of images and one list of classes", "several")
    image_count = rows[0].n
    support = sum(row.value or 0 for row in rows if row.name.startswith("support/"))
    if rules.exclusive and support > image_count:
        expected = "classes with no more images together than all"
        refuse(where, expected, f"{support} of {image_count}")


def _check_metric(
    where: str, row: MetricValue, classes: frozenset[str], rules: AnswerRules
) -> None:
    metric, _, class_name = row.name.partition("/")
    is_of_a_class = metric in _CLASS_METRICS and class_name in classes
    if row.name not in rules.metric_names and not is_of_a_class:
        expected = (
            f"one of {sorted(rules.metric_names)}, or of {list(_CLASS_METRICS)} "
            "and a class of the job"
        )
        refuse(f"{where}, name", expected, shown(row.name))
    if not classes.issuperset(row.classes) or len(set(row.classes)) < len(row.classes):
        refuse(f"{where}, classes", "classes of the job, each once", shown(row.classes))
    if row.value is None:
        return
    if metric == "support":
        _check_support(f"{where}, {row.name}", row.value, row.n, rules.fewest_others)
    elif not -_ROUNDING <= row.value <= 1 + _ROUNDING:
        refuse(f"{where}, {row.name}", "a number from 0 to 1, or nothing", f"{row.value}")


def _check_support(where: str, support: float, image_count: int, fewest_others: int) -> None:
    """Refuse a number of images of a class that the small-count rule forbids."""
    is_allowed = SMALLEST_COUNT <= support <= image_count - fewest_others
    if support != int(support) or not is_allowed:
        less = f" less {fewest_others}" if fewest_others else ""
        expected = f"a count from {SMALLEST_COUNT} to the images{less}, or nothing"
        refuse(where, expected, f"{support} of {image_count}")

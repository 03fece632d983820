"""Names of the metrics that describe a model on all images of a split; imports nothing, so that all may use it."""

from typing import Literal, TypeAlias, get_args

KeyMetric: TypeAlias = Literal[
    "accuracy",
    "balanced_accuracy",
    "f1_weighted",
    "f1_macro",
    "precision_weighted",
    "recall_weighted",
    "auroc_macro",
    "auprc_macro",
]
"""A metric that may choose the best round."""

OVERALL: tuple[KeyMetric, ...] = get_args(KeyMetric)
"""All of them, in the order of the rows."""

"""What an image of a job may show: exactly one of the classes, or any number of them.

All that follows from this choice is decided by the two classes here: the loss, probabilities,
metrics, counts, and how a label is written and said.
"""

from fedward.label_kinds.kind import LabelKind, LabelShape
from fedward.label_kinds.one_label import OneLabel
from fedward.label_kinds.several_labels import SeveralLabels

__all__ = [
    "ONE_LABEL",
    "SEVERAL_LABELS",
    "LabelKind",
    "LabelShape",
    "OneLabel",
    "SeveralLabels",
    "kind_of_field",
    "kind_of_labels",
]

ONE_LABEL: LabelKind = OneLabel()
"""Classes exclude each other: an image shows exactly one of them."""
SEVERAL_LABELS: LabelKind = SeveralLabels()
"""An image may show any number of the classes, or none of them."""


def kind_of_field(multi_label: bool) -> LabelKind:
    """Return the kind that a job, a site's ``data.json`` or a queue names by ``multi_label``."""
    return SEVERAL_LABELS if multi_label else ONE_LABEL


def kind_of_labels(labels: LabelShape) -> LabelKind:
    """Return the kind of N labels by their shape: (N,) class indices, or (N, K) of 0 and 1."""
    return SEVERAL_LABELS if labels.ndim == 2 else ONE_LABEL

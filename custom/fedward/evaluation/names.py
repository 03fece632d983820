"""Names of the metrics that describe a model on all images of a split; imports nothing, so that all
may use it.
"""

OVERALL = (
    "accuracy",
    "balanced_accuracy",
    "f1_weighted",
    "f1_macro",
    "precision_weighted",
    "recall_weighted",
    "auroc_macro",
    "auprc_macro",
)
"""In the order of the rows; each may choose the best round."""

MULTI_LABEL = ("auroc_macro", "auprc_macro", "f1_macro", "hamming_accuracy", "exact_match")
"""The same of a multi-label job."""


SCORES = frozenset((*OVERALL, *MULTI_LABEL))
"""All of these, each between 0 and 1."""

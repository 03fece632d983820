"""Names of the metrics that describe a model on all images of a split.

This module imports nothing, so that every other one may use it.
"""

OF_ANSWERS = (
    "accuracy",
    "balanced_accuracy",
    "f1_weighted",
    "f1_macro",
    "precision_weighted",
    "precision_macro",
)
"""Names that follow from a model's answers alone, without its confidences."""

OVERALL = (*OF_ANSWERS, "recall_weighted", "auroc_macro", "auprc_macro")
"""Names where an image has one label, in the order of the rows. Each may choose the best round."""

ERRORS = ("ece_adaptive", "mce_adaptive", "aurc")
"""Names of errors where an image has one label. Lower is better, and none chooses a round."""

MULTI_LABEL = (
    "auroc_macro",
    "auprc_macro",
    "f1_macro",
    "hamming_accuracy",
    "exact_match",
)
"""Names where an image may have several labels."""

SCORES = frozenset((*OVERALL, *ERRORS, *MULTI_LABEL))
"""All of these metrics. Each is between 0 and 1."""

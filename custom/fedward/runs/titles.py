"""Names of metrics as people read them in tables, sentences and figures."""

METRIC_TITLES = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "f1_weighted": "weighted F1",
    "f1_macro": "macro F1",
    "precision_weighted": "weighted precision",
    "precision_macro": "macro precision",
    "recall_weighted": "weighted recall",
    "auroc_macro": "macro AUROC",
    "auprc_macro": "macro AUPRC",
    "ece_adaptive": "ECE, adaptive bins",
    "mce_adaptive": "MCE, adaptive bins",
    "aurc": "area under risk-coverage",
    "hamming_accuracy": "Hamming accuracy",
    "exact_match": "exact match",
}
"""Name in ``metrics.jsonl`` -> title, for the metrics that describe a whole model."""


def title_of(metric: str) -> str:
    """Return a metric's title; a name without one is shown with spaces for underscores."""
    return METRIC_TITLES.get(metric, metric.replace("_", " "))

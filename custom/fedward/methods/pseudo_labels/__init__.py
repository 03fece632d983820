"""Ways to make pseudo-labels, one of which a job chooses by name."""

from fedward.methods.pseudo_labels.labeller import Labeller, PseudoLabels
from fedward.methods.pseudo_labels.per_class import PerClass
from fedward.methods.pseudo_labels.settings import FixMatchSettings, LabellerName
from fedward.methods.pseudo_labels.soft import Soft
from fedward.methods.pseudo_labels.threshold import Fixed

__all__ = ["Labeller", "LabellerName", "PerClass", "PseudoLabels", "labeller_of"]


def labeller_of(settings: FixMatchSettings) -> Labeller:
    """Return the labeller that the settings name."""
    if settings.pseudo_labels == "fixed":
        return Fixed(settings.threshold)
    return Soft(settings.threshold, settings.temperature)

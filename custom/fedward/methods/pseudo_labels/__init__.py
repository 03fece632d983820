"""Ways to make pseudo-labels, one of which a job chooses by name."""

from fedward.methods.pseudo_labels.aligned import Aligned
from fedward.methods.pseudo_labels.balanced import Balanced
from fedward.methods.pseudo_labels.freematch import FreeMatch
from fedward.methods.pseudo_labels.labeller import Labeller, PseudoLabels, Statistics
from fedward.methods.pseudo_labels.per_class import PerClass
from fedward.methods.pseudo_labels.settings import FixMatchSettings, LabellerName
from fedward.methods.pseudo_labels.soft import Soft
from fedward.methods.pseudo_labels.threshold import Fixed

__all__ = ["Labeller", "LabellerName", "PerClass", "PseudoLabels", "Statistics", "labeller_of"]


def labeller_of(settings: FixMatchSettings) -> Labeller:
    """Return the labeller that the settings name; FreeMatch does not use their threshold τ."""
    if settings.pseudo_labels == "fixed":
        return Fixed(settings.threshold)
    if settings.pseudo_labels == "freematch":
        return FreeMatch()
    if settings.pseudo_labels == "aligned":
        return Aligned(settings.threshold)
    if settings.pseudo_labels == "soft":
        return Soft(settings.threshold, settings.temperature)
    return Balanced(settings.threshold)

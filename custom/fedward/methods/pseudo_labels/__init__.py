"""Ways to make pseudo-labels, one of which a job chooses by name."""

from fedward.methods.pseudo_labels.labeller import Labeller
from fedward.methods.pseudo_labels.settings import FixMatchSettings
from fedward.methods.pseudo_labels.soft import Soft
from fedward.methods.pseudo_labels.threshold import Fixed


def labeller_of(settings: FixMatchSettings) -> Labeller:
    """Return the labeller that the settings name."""
    if settings.pseudo_labels == "fixed":
        return Fixed(settings.threshold)
    return Soft(settings.threshold, settings.temperature)

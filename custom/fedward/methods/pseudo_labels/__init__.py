"""Ways to make pseudo-labels, one of which a job chooses by name."""

from fedward.methods.pseudo_labels.aligned import Aligned
from fedward.methods.pseudo_labels.balanced import Balanced
from fedward.methods.pseudo_labels.freematch import FreeMatch
from fedward.methods.pseudo_labels.labeller import Fixed, Labeller, PseudoLabels, Statistics
from fedward.methods.pseudo_labels.per_class import PerClass
from fedward.methods.pseudo_labels.settings import LabellerName

__all__ = ["Labeller", "LabellerName", "PerClass", "PseudoLabels", "Statistics", "labeller_of"]


def labeller_of(name: LabellerName, threshold: float) -> Labeller:
    """Return the labeller of a name; ``threshold`` is τ, which FreeMatch does not use."""
    if name == "fixed":
        return Fixed(threshold)
    if name == "freematch":
        return FreeMatch()
    if name == "aligned":
        return Aligned(threshold)
    return Balanced(threshold)

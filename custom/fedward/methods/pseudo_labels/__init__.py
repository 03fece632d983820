"""Ways to make pseudo-labels, one of which a job chooses by name."""

from collections.abc import Callable

from fedward.methods.pseudo_labels.aligned import Aligned
from fedward.methods.pseudo_labels.balanced import Balanced
from fedward.methods.pseudo_labels.corrected import Corrected
from fedward.methods.pseudo_labels.freematch import FreeMatch
from fedward.methods.pseudo_labels.labeller import Fixed, Labeller, PseudoLabels, Statistics
from fedward.methods.pseudo_labels.per_class import PerClass
from fedward.methods.pseudo_labels.settings import Labelling

__all__ = ["Labeller", "Labelling", "PerClass", "PseudoLabels", "Statistics", "labeller_of"]


def labeller_of(name: Labelling, threshold: float, fairness_weight: float = 0.0) -> Labeller:
    """Return the labeller of a name, with the settings that concern it."""
    makers: dict[Labelling, Callable[[], Labeller]] = {
        "fixed": lambda: Fixed(threshold),
        "freematch": lambda: FreeMatch(fairness_weight),
        "aligned": lambda: Aligned(threshold),
        "balanced": lambda: Balanced(threshold),
        "corrected": lambda: Corrected(threshold),
    }
    return makers[name]()

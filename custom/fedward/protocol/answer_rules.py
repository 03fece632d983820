"""What answers to the requests of one job may hold, beyond what every answer may hold."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class AnswerRules:
    """The limits of a job's answers, by its settings and by what its method declares."""

    classes: tuple[str, ...]
    """The job's classes."""
    metric_names: tuple[str, ...]
    """Metrics over all classes that a site may report."""
    training_numbers: frozenset[str]
    """Numbers that a site may report of its training, such as mean losses."""
    withheld: Callable[[str], tuple[str, ...]]
    """From a task to the prefixes of tensors that do not go up after it."""
    card: bool = False
    """Whether answers may carry the site's card."""
    subgroups: bool = False
    """Whether counts may be by subgroup too."""
    clusters: bool = False
    """Whether counts may say what images of patients are worth in intervals."""
    distributions: tuple[str, ...] = ()
    """Names of tensors (R, K) whose rows, after a site's training, are distributions, or 0."""
    moments: str = ""
    """Name of the module whose tensors are moments of features; empty where none are sent."""
    exclusive: bool = True
    """Whether an image shows exactly one class; else it may show any number of them."""
    fewest_others: int = 0
    """How many images without a class a split needs before the class's support may be reported."""

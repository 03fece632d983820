"""What a site says of itself, checked against the job and against what it said before in the run.

Nobody can count a hospital's images from outside. But its steps follow from its images and the
job's settings, and its counts stay what they were: a site cannot gain weight in the middle of a
run.
"""

from collections.abc import Mapping
from typing import Any

from fedward.methods.algorithm import Algorithm
from fedward.methods.steps import most_steps
from fedward.protocol.fields import RefusedError
from fedward.protocol.messages import Answer
from fedward.protocol.wire import UNTRAINED

_DRIFT = 0.1
"""Share of a site's images by which its counts may change in a run: files become unreadable, or
readable again.
"""


class Claims:
    """The counts each site reported first, as long as this process lives; a run that is resumed
    begins anew.
    """

    def __init__(self, algorithm: Algorithm[Any]) -> None:
        self._algorithm = algorithm
        self._images: dict[str, int] = {}
        self._labels: dict[str, int] = {}
        """Labels of each site that no query brought."""

    def check(self, answer: Answer, request: Mapping[str, Any]) -> None:
        """Raise RefusedError unless the counts of an answer are possible.

        ====================  ==============================================================================
        steps                 at most those of the task's phases, by the job's settings and the site's images
        images                within a tenth of what the site said first
        labels                without those that queries brought: the same; with them: at most what queries ask
                              for
        label counts          no more than there are images
        ====================  ==============================================================================

        ``answer`` has passed the checks of the wire list; ``request`` is the meta of what it
        answers.
        """
        site = answer.site
        labelled = answer.labelled
        unlabelled = answer.unlabelled
        total = labelled + unlabelled
        counts = answer.label_counts
        task = request["task"]
        round_ = request["round"]
        phases = [] if task in UNTRAINED else self._algorithm.phases(task, round_, labelled)
        most = [
            most_steps(phase.objective.uses, self._algorithm.settings, labelled, unlabelled)
            for phase in phases
        ]
        _at_most(f"steps of {site}", sum(most), answer.steps)
        for name in ("asked", "bought", "waiting", "cannot_tell") if counts else ():
            most_labels = labelled if name == "bought" else total
            _at_most(f"label counts of {site}, {name}", most_labels, getattr(counts, name))
        _unchanged(f"images of {site}", self._images.setdefault(site, total), total, _DRIFT * total)
        if self._algorithm.active is None:
            _unchanged(
                f"labelled images of {site}",
                self._labels.setdefault(site, labelled),
                labelled,
                _DRIFT * total,
            )
        elif counts:
            own = labelled - counts.bought
            _unchanged(
                f"labelled images of {site}",
                self._labels.setdefault(site, own),
                own,
                _DRIFT * total,
            )
            _at_most(
                f"labelled images of {site}",
                self._algorithm.active.most_labelled(round_, total, own),
                labelled,
            )


def _at_most(where: str, most: int, found: int) -> None:
    if found > most:
        remedy = (
            "The answer is not used: the job's settings and the site's own counts allow no more."
        )
        raise RefusedError(where, expected=f"at most {most}", found=f"{found}", remedy=remedy)


def _unchanged(where: str, first: int, now: int, slack: float) -> None:
    if abs(now - first) > slack:
        remedy = "The answer is not used. If the site's data rightly changed, resume the run: counts begin anew."
        raise RefusedError(
            where, expected=f"about {first}, as in its first answer", found=f"{now}", remedy=remedy
        )

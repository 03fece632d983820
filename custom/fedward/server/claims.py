"""A site's claims about itself, checked against the job and against its earlier claims.

Nobody can count a hospital's images from outside. But its steps follow from its images and the
job's settings, and its counts must stay about the same: a site cannot gain weight in the middle of
a run.
"""

from collections.abc import Mapping
from typing import Any

from fedward.methods.abilities import LabelPurchases
from fedward.methods.algorithm import Algorithm
from fedward.methods.steps import most_steps
from fedward.protocol.fields import RefusedError
from fedward.protocol.messages import Answer, LabelCounts
from fedward.protocol.wire import UNTRAINED

_DRIFT = 0.1
"""Share of a site's first number of images by which its counts may change in a run.

Files become unreadable, or readable again.
"""


class Claims:
    """The first counts that each site reported, and the checks of later ones.

    The counts live in this process only: in a resumed run, the next answers count as the first.
    """

    def __init__(self, algorithm: Algorithm[Any]) -> None:
        self._algorithm = algorithm
        self._first_images: dict[str, int] = {}
        """Site -> number of its images."""
        self._first_labels: dict[str, int] = {}
        """Site -> number of its labels that no query brought."""

    def check(self, answer: Answer, request: Mapping[str, Any]) -> None:
        """Raise RefusedError unless the counts of an answer are possible.

        - Steps: at most those of the task's phases, by the job's settings and the site's images.
        - Images: as many as in the site's first answer, give or take a tenth.
        - Labels that no query brought: as many as in its first answer, give or take a tenth of the
          images in that answer. All labels together: at most those and what queries ask for.
        - Label counts: there for each task of a job that buys labels, and nowhere else. Bought
          labels are at most as many as labels. Images asked about, those that wait, and those that
          nobody could tell are each at most as many as images.

        Args:
            answer: an answer that has passed the checks of the wire list.
            request: the meta of the request that it answers.
        """
        site = answer.site
        images = answer.labelled + answer.unlabelled
        self._check_steps(answer, request)
        first_images = self._first_images.setdefault(site, images)
        _unchanged(f"images of {site}", first_images, images, _DRIFT * first_images)
        active = self._algorithm.active
        counts = answer.label_counts
        if active is not None and request["task"] not in UNTRAINED:
            if counts is None:
                # Nobody could tell own labels from bought ones, and own labels give weight.
                raise _counts_refused(site, "those of a job that buys labels", "none")
            self._check_label_counts(answer, counts, active, request["round"])
            return
        if counts is not None:
            raise _counts_refused(site, "none: no label is bought for this request", "some")
        if active is None:
            self._check_own_labels(site, answer.labelled)

    def _check_steps(self, answer: Answer, request: Mapping[str, Any]) -> None:
        """Check the steps of an answer against the most that the task's phases can take."""
        most = 0
        if request["task"] not in UNTRAINED:
            phases = self._algorithm.phases(request["task"], request["round"], answer.labelled)
            for phase in phases:
                most += most_steps(
                    phase.objective.uses,
                    self._algorithm.settings,
                    answer.labelled,
                    answer.unlabelled,
                )
        _at_most(f"steps of {answer.site}", most, answer.steps)

    def _check_label_counts(
        self, answer: Answer, counts: LabelCounts, active: LabelPurchases, round_: int
    ) -> None:
        """Check the labels of a site that buys some, against what queries ask for."""
        site = answer.site
        images = answer.labelled + answer.unlabelled
        _at_most(f"label counts of {site}, bought", answer.labelled, counts.bought)
        for name in ("asked", "waiting", "cannot_tell"):
            _at_most(f"label counts of {site}, {name}", images, getattr(counts, name))
        own_labels = answer.labelled - counts.bought
        self._check_own_labels(site, own_labels)
        most_labels = active.most_labelled(round_, images, own_labels)
        _at_most(f"labelled images of {site}", most_labels, answer.labelled)

    def _check_own_labels(self, site: str, labels: int) -> None:
        """Check the number of a site's labels that no query brought."""
        first_labels = self._first_labels.setdefault(site, labels)
        slack = _DRIFT * self._first_images[site]
        _unchanged(f"labelled images of {site}", first_labels, labels, slack)


def _at_most(where: str, most: int, found: int) -> None:
    """Raise RefusedError for a count above the largest that is possible."""
    if found > most:
        raise RefusedError(
            where,
            "The answer is not used: the job's settings and the site's own counts allow no more.",
            expected=f"at most {most}",
            found=f"{found}",
        )


def _counts_refused(site: str, expected: str, found: str) -> RefusedError:
    """Return the error for an answer that lacks label counts, or has some that nobody wants."""
    remedy = "The answer is not used: label counts belong to the tasks of a job that buys labels."
    return RefusedError(f"label counts of {site}", remedy, expected=expected, found=found)


def _unchanged(where: str, first: int, now: int, slack: float) -> None:
    """Raise RefusedError for a count that differs from the first one by more than ``slack``."""
    if abs(now - first) > slack:
        raise RefusedError(
            where,
            "The answer is not used. If the site's data changed on purpose, resume the run: "
            "the next answers count as the first.",
            expected=f"about {first}, as in its first answer",
            found=f"{now}",
        )

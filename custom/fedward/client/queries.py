"""Active learning at a site: which images it asks about, and what it reports of that."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from fedward.client.admission import Admission
from fedward.client.labels import SiteLabels, annotators_of, labels_in
from fedward.client.site_data import DataSource
from fedward.methods.fedal import QUERY, ActiveLearning
from fedward.methods.samplers import Pool, Sampler, ScoreSampler, counts_in_fives, sampler_of, score_counts
from fedward.methods.workflow import SCORE, State
from fedward.protocol import wire_checks
from fedward.protocol.requests import TaskRequest
from fedward.seeds import torch_generator
from fedward.sites import Images, SiteData
from fedward.training.learner import Aborted, Learner
from fedward.training.pool import observe
from fedward.views import VIEWS

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Queries:
    """Carries out a site's queries for labels; ``given`` are its data as the source gives them."""

    method: ActiveLearning
    source: DataSource
    given: SiteData
    admission: Admission

    def carry_out(
        self, request: TaskRequest, learner: Learner, model: State, known: Mapping[str, State], aborted: Aborted
    ) -> tuple[Learner, dict[str, Any]]:
        """Ask for labels where the task says so, and take those that were given.

        ``model`` is the global one. ``known``: models that the site keeps, by role; ``local`` is its own after the last
        training. ``aborted`` is asked while waiting for answers.

        Returns:
            The learner with the labels that may be used now, and fields of the answer.

        Raises:
            PolicyError: the site's policy allows fewer questions.
            WorkError: aborted.
        """
        method, task, round_, part = self.method, request.task, request.round, request.part
        labels = self._labels(request.run)
        learner = self._with_labels(learner, labels.before(round_, part))
        if task == "idle":
            return learner, {}
        look, pool = partial(_pool, learner, model, known, round_), len(labels.annotators.pool)
        first, taken = max(method.first(pool), len(labels.annotators.known)), labels.taken_before(round_, part)
        due = method.wanted(round_, pool, first) - taken if taken >= first else 0
        if task == SCORE:
            ids = labels.free(round_, part) if taken >= first else []  # a site without its first labels takes no part
            assert isinstance(method.sampler, ScoreSampler), "a job's settings refuse others"
            counts = score_counts(method.sampler, look(method.sampler, ids), len(self.given.classes))
            return learner, {"scores": counts_in_fives(counts), "due": due}
        if taken < first:
            wanted, sampler = first, sampler_of("random")
        else:
            free = len(labels.free(round_, part)) if method.settings.budget == "by_score" else 0
            asked = wire_checks.labels_asked(request.labels, free)
            wanted, sampler = taken + (due if asked is None else asked) if task == QUERY else 0, method.sampler
        self.admission.check_questions(max(wanted, method.wanted(method.settings.rounds, pool, first)))

        def choose(ids: Sequence[str], number: int) -> Sequence[str]:
            generator = torch_generator(learner.experiment.seed, learner.name, "query", round_)
            return sampler.choose(look(sampler, ids), number, generator)

        use, counted = labels.renew(round_, part, wanted, sampler.name, choose, aborted)
        cost, reported = self.given.minutes_per_label, dict[str, Any](label_counts=counted)
        if cost is not None:
            reported["minutes"] = cost * (counted["bought"] + counted["cannot_tell"])
        return self._with_labels(learner, use), reported

    def _labels(self, run: str) -> SiteLabels:
        # An answer that comes late does not count, so a round waits half of its time at most.
        wait = min(self.given.wait_for_labels, self.source.experiment.timeout / 2)
        annotators = annotators_of(self.given, self.source.file)
        return SiteLabels(self.source.site, annotators, self.source.folder / "memory", run, wait)

    def _with_labels(self, learner: Learner, labels: Mapping[str, int]) -> Learner:
        """Return the learner with these labels of training images (id -> class index) and no others."""
        if labels == labels_in(learner.images.data):
            return learner
        return replace(learner, images=learner.images.relabelled(self.given.with_labels(labels)))


def _pool(
    learner: Learner, model: State, known: Mapping[str, State], round_: int, sampler: Sampler, ids: Sequence[str]
) -> Pool:
    """Return what a sampler looks at of the images of these ids."""
    data, names = learner.images.data, set(ids)
    if sampler.uses.own_model and "local" not in known:
        _log.warning("site %s, round %d: no own model yet, the global one stands for it", learner.name, round_)
    models = {"global": model, "local": known.get("local", model)}

    def taken() -> Iterator[Images]:
        """Yield the images that have labels, then those that wait for one. They are read only when looked at."""
        yield data.labelled
        yield data.unlabelled.named([name for name in data.unlabelled.ids if name not in names])

    return observe(
        learner.name,
        data.unlabelled.named(ids),
        taken(),
        sampler.uses,
        lambda name: learner.networks.load(models[name]),
        learner.images.of,
        VIEWS[learner.experiment.data.views].weak,
        lambda net: learner.networks.on_images,  # with the weights that ``net`` was loaded with
    )

"""Active learning at a site: which images it asks about, and what it reports of that."""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from fedward.client.admission import Admission
from fedward.client.askable import unfamiliar_images
from fedward.client.labels import SiteLabels, annotators_of, labels_in, warn_of_nobody
from fedward.client.memory import LOCAL
from fedward.client.site_data import DataSource
from fedward.disk import PRIVATE, make_folder, save_json
from fedward.labels import Label
from fedward.methods.abilities import LabelPurchases
from fedward.methods.fedal.out_of_distribution import USES as FILTER_USES
from fedward.methods.samplers import sampler_of
from fedward.methods.samplers.pool import Pool, PoolUses
from fedward.methods.workflow import QUERY
from fedward.model_state import State
from fedward.protocol.requests import TaskRequest
from fedward.sites import Images, SiteData
from fedward.training.learner import Aborted, Learner
from fedward.training.pool import observe
from fedward.views import VIEWS

_log = logging.getLogger(__name__)

_Look = Callable[[PoolUses, Sequence[str]], Pool]
"""Returns what a sampler uses of the images with these ids."""


@dataclass(frozen=True)
class Queries:
    """Carries out a site's queries for labels."""

    method: LabelPurchases
    """When sites ask, and for which images."""
    source: DataSource
    """Where the site's data come from."""
    given: SiteData
    """The data as the run began with them, before a query has brought labels."""
    admission: Admission
    """Knows how many questions the site's policy allows."""

    def carry_out(
        self,
        request: TaskRequest,
        learner: Learner,
        model: State,
        kept_models: Mapping[str, State],
        aborted: Aborted,
    ) -> tuple[Learner, dict[str, Any]]:
        """Ask for labels where the task says so, and take those that were given.

        Args:
            request: says which exchange it is.
            learner: the site's.
            model: the global model.
            kept_models: models that the site keeps, by role.
            aborted: asked while waiting for answers.

        Returns:
            The learner with the labels that may be used now, and fields of the answer.

        Raises:
            PolicyError: the site's policy allows fewer questions.
            WorkError: aborted.
        """
        method = self.method
        round_ = request.round
        part = request.part
        labels = self._labels(request.run)
        refused = labels.refused_before(round_, part)
        learner = self._with_labels(learner, labels.before(round_, part), refused)
        if request.task == "idle":
            return learner, {}
        if labels.is_first(round_, part):
            warn_of_nobody(self.given)
        pool = len(labels.annotators.pool)
        labels_at_start = len(labels.annotators.labels_at_start)
        first = max(method.initial_labels(pool), labels_at_start)
        wanted = 0
        sampler = method.sampler
        if labels.taken_before(round_, part) < first:
            # The first labels are drawn by chance: no model has learned from any yet.
            wanted = first
            sampler = sampler_of("random")
        elif request.task == QUERY:
            wanted = method.labels_wanted(round_, pool, first)
        wanted_in_the_run = max(wanted, method.labels_wanted(method.rounds, pool, first))
        self.admission.check_questions(wanted_in_the_run - labels_at_start)

        askable = set(labels.askable_before(round_, part))
        look = partial(_pool, learner, model, kept_models, round_, askable)

        def choose(ids: Sequence[str], number: int) -> Sequence[str]:
            generator = learner.draws.torch_generator(learner.name, "query", round_)
            candidates = self._familiar(learner, look, request, ids)
            return sampler.choose(look(sampler.uses, candidates), number, generator)

        renewed = labels.renew(round_, part, wanted, sampler.name, choose, aborted)
        fields: dict[str, Any] = {"label_counts": renewed.counts}
        cost = self.given.minutes_per_label
        if cost is not None:
            fields["minutes"] = cost * renewed.answers
        return self._with_labels(learner, renewed.labels, renewed.refused), fields

    def _labels(self, run: str) -> SiteLabels:
        # An answer that comes late does not count, so a round waits half of its time at most.
        wait = min(self.given.wait_for_labels, self.source.experiment.timeout / 2)
        annotators = annotators_of(self.given, self.source.file)
        folder = self.source.folder / "memory"
        grant = self.admission.grant_questions
        return SiteLabels(self.source.site, annotators, folder, run, wait, grant)

    def _familiar(
        self, learner: Learner, look: _Look, request: TaskRequest, ids: Sequence[str]
    ) -> Sequence[str]:
        """Return the ids without the images that look like no labelled one.

        Those are logged and listed in a file.
        """
        labelled_images = len(learner.images.data.labelled)
        unfamiliar = unfamiliar_images(self.method, labelled_images, lambda: look(FILTER_USES, ids))
        if unfamiliar:
            folder = self.source.folder / "memory" / request.run / "out_of_distribution"
            make_folder(folder, PRIVATE)
            path = folder / f"{request.round:05d}.json"
            save_json(path, unfamiliar)
            _log.warning(
                "site %s, round %d: %d of %d images look like no labelled one and are not asked "
                "about: %s lists them",
                learner.name,
                request.round,
                len(unfamiliar),
                len(ids),
                path,
            )
        return [name for name in ids if name not in unfamiliar]

    def _with_labels(
        self, learner: Learner, labels: Mapping[str, Label], refused: Sequence[str]
    ) -> Learner:
        """Return the learner with these labels of training images, and no others.

        Args:
            learner: the site's.
            labels: by id.
            refused: images that it does not train on. They stay among the unlabelled ones, so that
                counts are what they were.
        """
        current = learner.images.data
        all_refused = self.given.refused | frozenset(refused)
        if labels == labels_in(current) and current.refused == all_refused:
            return learner
        data = replace(self.given.with_labels(labels), refused=all_refused)
        return replace(learner, images=learner.images.relabelled(data))


def _pool(
    learner: Learner,
    model: State,
    kept_models: Mapping[str, State],
    round_: int,
    askable: Collection[str],
    uses: PoolUses,
    ids: Sequence[str],
) -> Pool:
    """Return what a sampler uses of the images with these ids.

    Args:
        learner: the site's.
        model: the global model.
        kept_models: models that the site keeps, by role.
        round_: the round, for the log.
        askable: ids of all images that have neither a label nor a question.
        uses: what the sampler uses.
        ids: the images that may be chosen.
    """
    data = learner.images.data
    if uses.own_model and LOCAL not in kept_models:
        _log.warning(
            "site %s, round %d: no own model yet, the global one is used in its place",
            learner.name,
            round_,
        )
    models = {"global": model, LOCAL: kept_models.get(LOCAL, model)}

    def taken() -> Iterator[Images]:
        """Yield the images that have labels, then those that wait for one.

        They are read only when a sampler uses them.
        """
        yield data.labelled
        # The filter compares with labelled images alone: of others, nobody may be able to tell.
        if uses is not FILTER_USES:
            waiting = []
            for name in data.unlabelled.ids:
                if name not in askable and name not in data.refused:
                    waiting.append(name)
            yield data.unlabelled.named(waiting)

    return observe(
        learner.name,
        data.unlabelled.named(ids),
        taken(),
        uses,
        learner.networks,
        models,
        learner.images.to_samples,
        VIEWS[learner.experiment.data.views].weak,
    )

"""How good a simulated site's pseudo-labels are, by the labels that its experiment hides.

Benchmarks ask for it in experiments where an image has one label. The numbers stay in the site's
own folder; :mod:`fedward.runs.pseudo_labels` reads them. No objective sees a hidden label: what it
has decided is compared with them afterwards.
"""

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from fedward.client.site_data import DataSource
from fedward.disk import PRIVATE, append, make_folder
from fedward.lab.noted_answers import note_answers
from fedward.methods.local import Batch, Losses, Measurement, Objective, RoundInputs
from fedward.model_state import State
from fedward.runs.pseudo_labels import PSEUDO_LABELS_FOLDER
from fedward.sites import SiteData
from fedward.storage.rows import PseudoLabelRow, written
from fedward.training.learner import Aborted, Evaluation, Learner, LocalUpdate, PhaseRequest

if TYPE_CHECKING:
    from fedward.training.trainer import Trained

C = TypeVar("C")


class Counts(NamedTuple):
    """Numbers of pseudo-labels. An image counts as often as it was labelled."""

    kept_by_class: list[int]
    """Those that are used, by class."""
    kept_right: int
    """How many of the used ones are right."""
    labelled: int
    right: int


class Tally:
    """Counts pseudo-labels by class, use and correctness on the device that trains.

    Nothing is copied to the host before :meth:`counts`, so that no training step waits for it.

    Args:
        truth: (N,) int64, the class of each unlabelled image; images with -1, whose class is
            unknown, are not counted.
        classes: number of classes.
    """

    def __init__(self, truth: Tensor, classes: int) -> None:
        self._truth = truth
        self._counts = torch.zeros(2, 2, classes, dtype=torch.int64, device=truth.device)
        """By use, correctness and class of the pseudo-label."""

    def add(self, which: Tensor, labels: Tensor, keep: Tensor) -> None:
        """Count (B,) pseudo-labels of the images ``which``, and whether each is used."""
        truth = self._truth[which]
        classes = self._counts.shape[-1]
        cell = (2 * keep.long() + (labels == truth).long()) * classes + labels
        self._counts.view(-1).index_add_(0, cell, (truth >= 0).long())

    def counts(self) -> Counts:
        """Return the numbers so far."""
        counts = self._counts.cpu()
        right = counts[:, 1].sum(dim=1)
        return Counts(
            kept_by_class=counts[1].sum(dim=0).tolist(),
            kept_right=int(right[1]),
            labelled=int(counts.sum()),
            right=int(right.sum()),
        )


class Watched(Objective[C]):
    """An objective whose pseudo-labels (``labels`` and ``keep`` of its losses) are counted."""

    def __init__(self, inner: Objective[C], tally: Tally) -> None:
        self._inner = inner
        self._tally = tally
        self.uses = inner.uses

    def init(self, net: nn.Module, inputs: RoundInputs) -> C:
        """Return the state of the objective."""
        return self._inner.init(net, inputs)

    def losses(self, net: nn.Module, batch: Batch, inputs: RoundInputs, state: C) -> Losses:
        """Return the losses of the objective, and count its pseudo-labels."""
        losses = self._inner.losses(net, batch, inputs, state)
        if batch.which is not None and "keep" in losses.carried:
            self._tally.add(batch.which, losses.carried["labels"], losses.carried["keep"])
        return losses

    def after_step(self, net: nn.Module, batch: Batch, losses: Losses, state: C) -> C:
        """Return the state of the objective."""
        return self._inner.after_step(net, batch, losses, state)

    def remember(self, state: C) -> Mapping[str, Mapping[str, Tensor]]:
        """Return the memory of the objective."""
        return self._inner.remember(state)


class PseudoLabelObserver:
    """Notes how good a site's pseudo-labels and its answers about test images are.

    A :class:`~fedward.client.client.TrainingObserver`.
    """

    def __init__(self, source: DataSource) -> None:
        self._source = source

    @cached_property
    def hidden_labels(self) -> dict[str, int]:
        """Sample id -> class index of every labelled training image, hidden labels included."""
        labelled = self._source.whole().labelled
        return dict(zip(labelled.ids, map(int, labelled.labels), strict=True))

    def observed(self, learner: Learner, run: str) -> "ObservedTraining":
        """Return what trains as the learner does, and adds a note of the run to the site's own."""
        return ObservedTraining(learner, run, self._source.folder, self.hidden_labels)

    def evaluated(self, data: SiteData, run: str, round_: int, evaluation: Evaluation) -> None:
        """Note a model's answers about the site's test images in the site's own folder."""
        if evaluation.test_answers is not None:
            note_answers(self._source, data, run, round_, evaluation.test_answers)


@dataclass(frozen=True)
class ObservedTraining:
    """Trains as a learner does and notes how good the pseudo-labels are, if there are any."""

    learner: Learner
    run: str
    site_folder: Path
    hidden_labels: Mapping[str, int]
    """Sample id -> class index."""

    def train(
        self,
        model: State,
        peers: Sequence[State],
        round_: int,
        *,
        task: str = "train",
        part: int = 0,
        memory: MutableMapping[str, State] | None = None,
        aborted: Aborted = lambda: False,
    ) -> LocalUpdate:
        """Train as :meth:`fedward.training.learner.Learner.train` does."""
        learner = self.learner
        data = learner.images.data
        used_ids = [name for name in data.unlabelled.ids if name not in data.refused]
        truth = torch.tensor([self.hidden_labels.get(name, -1) for name in used_ids])
        tally = Tally(truth.to(learner.networks.device), len(data.classes))

        def run_phase(request: PhaseRequest) -> "Trained":
            objective = request.phase.objective
            if isinstance(objective, Measurement):
                # A phase that measures makes no pseudo-labels.
                return learner.run_phase(request)
            watched = replace(request.phase, objective=Watched(objective, tally))
            return learner.run_phase(replace(request, phase=watched))

        watched_learner = replace(learner, run_phase=run_phase)
        update = watched_learner.train(
            model, peers, round_, task=task, part=part, memory=memory, aborted=aborted
        )
        counts = tally.counts()
        if counts.labelled:
            row = _row(data.classes, truth, counts, round_=round_, part=part)
            note(self.site_folder, self.run, row)
        return update


def note(site_folder: Path, run: str, row: PseudoLabelRow) -> None:
    """Add a row to a site's notes of a run, which lie in the site's own folder."""
    path = site_folder / PSEUDO_LABELS_FOLDER / f"{run}.jsonl"
    make_folder(path.parent, PRIVATE)
    append(path, written(row).encode())


def _row(
    class_names: Sequence[str], truth: Tensor, counts: Counts, *, round_: int, part: int
) -> PseudoLabelRow:
    """Return the note of one training."""
    known = truth >= 0
    hidden = torch.bincount(truth[known], minlength=len(class_names)).tolist()
    return PseudoLabelRow(
        round=round_,
        part=part,
        kept=dict(zip(class_names, counts.kept_by_class, strict=True)),
        kept_right=counts.kept_right,
        labelled=counts.labelled,
        right=counts.right,
        hidden=dict(zip(class_names, hidden, strict=True)),
    )

"""How good a site's pseudo-labels are, where its data hold the labels that an experiment hides.

Benchmarks ask for it, where an image has one label. The numbers stay in the site's own folder, and
no objective sees a hidden label: what it has decided anyway is compared with them afterwards.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from fedward.client.site_data import DataSource
from fedward.lab.pseudo_labels.rows import note
from fedward.methods.local import Batch, Losses, Measurement, Objective, Phase, RoundInputs
from fedward.methods.workflow import State
from fedward.storage.rows import PseudoLabelRow
from fedward.training.evaluation import predict
from fedward.training.learner import Learner, LocalUpdate

if TYPE_CHECKING:
    from fedward.training.trainer import Trained

C = TypeVar("C")


class Tally:
    """Counts pseudo-labels by class, whether they are kept, and whether they are right. No step
    waits for it.

    Args:
        truth: (N,) int64 on the device that trains, the class of each unlabelled image; -1: not
            known, not counted.
        classes: K.
    """

    def __init__(self, truth: Tensor, classes: int) -> None:
        self._truth = truth
        self._counts = torch.zeros(2, 2, classes, dtype=torch.int64, device=truth.device)

    def add(self, which: Tensor, labels: Tensor, keep: Tensor) -> None:
        """Count (B,) pseudo-labels of the images ``which``, and whether each is kept."""
        truth = self._truth[which]
        classes = self._counts.shape[-1]
        place = (2 * keep.long() + (labels == truth).long()) * classes + labels
        self._counts.view(-1).index_add_(0, place, (truth >= 0).long())

    @property
    def labelled(self) -> int:
        """How many pseudo-labels were counted."""
        return int(self._counts.sum())

    def counts(self) -> tuple[list[int], int, int, int]:
        """Return how many are kept, by class; how many of the kept are right; how many there are;
        how many are right.

        An image is counted as often as it was labelled.
        """
        counts = self._counts.cpu()
        right = counts[:, 1].sum(dim=1)
        return counts[1].sum(dim=0).tolist(), int(right[1]), int(counts.sum()), int(right.sum())


class Watched(Objective[C]):
    """An objective whose pseudo-labels, those it says it has ``found``, are counted; else it is the
    one it wraps.
    """

    def __init__(self, inner: Objective[C], tally: Tally) -> None:
        self._inner = inner
        self._tally = tally
        self.uses = inner.uses

    def init(self, net: nn.Module, inputs: RoundInputs) -> C:
        """Return the state of the objective."""
        return self._inner.init(net, inputs)

    def losses(self, net: nn.Module, batch: Batch, inputs: RoundInputs, state: C) -> Losses:
        """Return the losses of the objective, and count what it has labelled."""
        losses = self._inner.losses(net, batch, inputs, state)
        if batch.which is not None and "keep" in losses.found:
            self._tally.add(batch.which, losses.found["labels"], losses.found["keep"])
        return losses

    def after_batch(self, losses: Losses, state: C) -> C:
        """Return the state of the objective."""
        return self._inner.after_batch(losses, state)

    def after_step(self, net: nn.Module, batch: Batch, losses: Losses, state: C) -> C:
        """Return the state of the objective."""
        return self._inner.after_step(net, batch, losses, state)

    def remember(self, state: C) -> Mapping[str, Mapping[str, Tensor]]:
        """Return the memory of the objective."""
        return self._inner.remember(state)


class Quality:
    """Trains as a learner does, and notes how good a site's pseudo-labels and its own model are."""

    def __init__(self, source: DataSource) -> None:
        self._source = source

    @cached_property
    def _hidden(self) -> dict[str, int]:
        return self._source.all_labels()

    def train(
        self,
        learner: Learner,
        run: str,
        model: State,
        peers: Sequence[State],
        round_: int,
        *,
        part: int,
        **options: Any,
    ) -> LocalUpdate:
        """Train as :meth:`Learner.train` does; where it labelled images, add a row to what is noted
        of the run.
        """
        data = learner.images.data
        trained = [name for name in data.unlabelled.ids if name not in data.refused]
        truth = torch.tensor([self._hidden.get(name, -1) for name in trained])
        tally = Tally(truth.to(learner.networks.device), len(data.classes))

        def run_phase(
            net: nn.Module, batches: Any, phase: Phase, *arguments: Any, **more: Any
        ) -> "Trained":
            assert not isinstance(phase.objective, Measurement)  # it labels nothing
            watched = replace(phase, objective=Watched(phase.objective, tally))
            return learner.run_phase(net, batches, watched, *arguments, **more)

        update = replace(learner, run_phase=run_phase).train(
            model, peers, round_, part=part, **options
        )
        if tally.labelled:
            note(
                self._source.folder,
                run,
                self._row(learner, update.model, (round_, part), truth, tally),
            )
        return update

    @staticmethod
    def _row(
        learner: Learner, model: State, exchange: tuple[int, int], truth: Tensor, tally: Tally
    ) -> PseudoLabelRow:
        names = learner.images.data.classes
        known = truth >= 0
        said = predict(learner.networks.load(model), learner.images["unlabelled"]).argmax(dim=1)
        hidden = torch.bincount(truth[known], minlength=len(names)).tolist()
        kept, kept_right, labelled, right = tally.counts()
        return PseudoLabelRow(
            round=exchange[0],
            part=exchange[1],
            kept=dict(zip(names, kept, strict=True)),
            kept_right=kept_right,
            labelled=labelled,
            right=right,
            hidden=dict(zip(names, hidden, strict=True)),
            accuracy=float((said == truth)[known].double().mean()),
        )

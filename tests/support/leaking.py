"""How much the update of one round reveals of single images.

It is what an attacker with all candidate images would measure.

The attacker here knows more than any lead: the very views of the images that a site trained on, the
model before and after the round, and each image's own gradient at both. An update *explains* an
image or a pair if its direction is that of the image's gradient, or of the best mixture of the two.
Images that the site did not train on, of the same classes, explain an update too, as gradients of
one class are alike. What counts is how much better the best of its own are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from asking import requests
from clients import new_client
from fedward.client.admission import Admission
from fedward.config import Experiment, SyntheticData
from fedward.methods import method_of
from fedward.methods.local import Batch, Measurement, Phase, RoundInputs
from fedward.methods.workflow import ClientTask, Exchange
from fedward.nets.trainable import HEAD
from fedward.protocol.wire import Message
from fedward.security.policy import OPEN, Policy
from fedward.sites.sampling import virtual_client
from fedward.training.batches import RoundBatches
from fedward.training.learner import PhaseRequest, train_phase
from fedward.views import Views
from hospital import HERE
from starting import initial_model
from tiny import tiny

IMAGES = 400
"""Of the site; a round of the smallest size that policies allow takes 34 of its labelled ones."""


def attacked(method: str = "fedavg", **changes: Any) -> Experiment:
    """Return a job within the default policy except for the changes, for half of the labels."""
    options = {
        "participants": None,
        "images_per_round": None,
        "images_at_most": 34,
        **changes.pop("options", {}),
    }
    labelled = 0.0 if changes.pop("unlabelled_site", False) else 0.5
    fields = {"net": "small_cnn_gn", "minimum_replies": 3, **changes}
    return tiny(
        method, synthetic=SyntheticData(images=IMAGES, labelled=labelled), **fields, options=options
    )


@dataclass(frozen=True)
class Explained:
    """How well images explain an update: cosines in [-1, 1]."""

    own: float
    """By the best image or pair that the site trained on."""
    others: float
    """By the best of as many other images, of the same classes."""

    @property
    def excess(self) -> float:
        """Return the share that own images explain of what others leave unexplained; 1: all."""
        return (self.own - self.others) / (1 - self.others)


class RefusedError(Exception):
    """The site has refused the job or the round."""


@dataclass(frozen=True)
class _Seen:
    """One phase of a round: its network, what is minimised, and all its batches."""

    net: nn.Module
    phase: Phase
    inputs: RoundInputs
    batches: list[Batch]
    others: list[Batch]
    """As many images as there are in the batches, one each, of the same classes and with views of
    the same kinds.
    """


def explained(
    experiment: Experiment,
    folder: Path,
    policy: Policy = OPEN,
    round_: int = 1,
    task: str = "train",
) -> Explained:
    """Let one site answer one request, and return how well images explain its update.

    Raises RefusedError: with the site's words.
    """
    algorithm = method_of(experiment)
    seen = list[_Seen]()
    admission = Admission(HERE, experiment, algorithm, folder, lambda: policy)
    site = new_client(HERE, experiment, folder, admission=admission)

    def watched(request: PhaseRequest) -> Any:
        phase = request.phase
        assert not isinstance(phase.objective, Measurement)
        batches = request.batches
        unused = {kind: _unused(batches, kind) for kind in ("labelled", "unlabelled")}
        kept = list(batches)
        others = _alike(
            site, batches, unused, [image for batch in kept for image in _singles(batch)]
        )
        seen.append(_Seen(request.net, phase, request.inputs, kept, others))
        return train_phase(replace(request, batches=kept))

    first = initial_model(experiment)
    model = first.state
    sent = requests(experiment, Exchange(1, model, {HERE: ClientTask(task)}))[HERE]
    facts = {"members": 3, "round": round_, **({} if first.base is None else {"base": first.base})}
    site._learner = replace(site.learner, run_phase=watched)
    answer = site.handle(Message({**sent.meta, **facts}, sent.arrays))
    if "error" in answer.meta:
        raise RefusedError(answer.meta["error"])
    if not answer.arrays:
        raise RefusedError("no step was taken")
    update = {
        name.removeprefix("diff/"): torch.tensor(array) for name, array in answer.arrays.items()
    }
    own, others = _gradients(seen, dict(model), update)
    return Explained(_best(own), _best(others))


def _gradients(
    seen: Sequence[_Seen], model: dict[str, Tensor], update: dict[str, Tensor]
) -> tuple[list[tuple[Tensor, Tensor]], list[tuple[Tensor, Tensor]]]:
    """Return pairs of (release, gradients (N, D)) of the site's images and of others, by reading.

    Released are the update and, where each step shrinks all weights, the model itself.
    """
    own = list[tuple[Tensor, Tensor]]()
    others = list[tuple[Tensor, Tensor]]()
    after = {
        name: value + update[name].to(value.dtype) if name in update else value
        for name, value in model.items()
    }
    for one in seen:
        parameters = [name for name, _ in one.net.named_parameters() if name in update]
        released = [
            -torch.cat([state[name].flatten() for name in parameters]).float()
            for state in (update, after)
        ]
        ours = [image for batch in one.batches for image in _singles(batch)]
        for state in (model, after):
            one.net.load_state_dict(state, strict=False)
            for found, images in ((own, ours), (others, one.others)):
                rows = torch.stack([_gradient(one, parameters, image) for image in images])
                for what in released:
                    found += [(what, rows), (what.sign(), rows.sign())]  # the latter as Adam steps
    return own, others


def _singles(batch: Batch) -> list[Batch]:
    """Return each image of a batch as a batch of its own."""
    images = list[Batch]()
    if batch.labelled is not None and batch.labels is not None:
        images += [
            Batch(labelled=batch.labelled[i : i + 1], labels=batch.labels[i : i + 1])
            for i in range(len(batch.labels))
        ]
    if batch.weak is not None:
        names = [name for name in ("weak", "strong", "which") if getattr(batch, name) is not None]
        images += [
            Batch(**{name: getattr(batch, name)[i : i + 1] for name in names})
            for i in range(len(batch.weak))
        ]
    return images


def _unused(batches: RoundBatches, kind: str) -> Tensor:
    """Return the site's images of a kind that the batches, not yet drawn, will leave out."""
    pixels = batches._labelled if kind == "labelled" else batches._unlabelled
    if not pixels:
        return torch.empty(0, dtype=torch.int64)
    same = torch.Generator()
    same.set_state(batches._generators[kind].get_state())
    taken = virtual_client(len(pixels), batches.images, same)
    left = torch.ones(len(pixels), dtype=torch.bool)
    left[taken] = False
    return left.nonzero().flatten()


def _alike(
    site: Any, batches: RoundBatches, unused: dict[str, Tensor], images: Sequence[Batch]
) -> list[Batch]:
    """Return for each image one that the round left out, of the same class and kinds of views.

    Where there is none of a class, one that the site holds back for tests stands for it.
    """
    draw = torch.Generator().manual_seed(0)
    found = list[Batch]()
    held_out = [site.learner.images["val"], site.learner.images["test"]]
    for image in images:
        known = image.labels is not None
        pool = batches._labelled if known else batches._unlabelled
        index = unused["labelled" if known else "unlabelled"]
        assert pool is not None
        if known:
            index = index[(pool.labels[index] == image.labels).flatten()]
        views = batches._views
        if not len(index):
            pool = type(held_out[0]).together(held_out)
            index = (
                (pool.labels == image.labels).nonzero().flatten()
                if known
                else torch.arange(len(pool))
            )
            if site.experiment.trainable == HEAD:  # they have no views there
                views = Views(lambda rows, _: rows, lambda rows, _: rows)
        index = index[torch.randint(len(index), (1,), generator=draw)]
        originals = pool.originals(index) if views is batches._views else pool.take(index)
        if known:
            found.append(replace(image, labelled=views.weak(originals, draw)))
        else:
            strong = None if image.strong is None else views.strong(originals, draw)
            found.append(replace(image, weak=views.weak(originals, draw), strong=strong))
    return found


def _gradient(one: _Seen, parameters: Sequence[str], image: Batch) -> Tensor:
    """Return the gradient (D,) of the phase's losses on one image, without the proximal term."""
    objective = one.phase.objective
    assert not isinstance(objective, Measurement)
    one.net.zero_grad(set_to_none=True)
    terms = objective.losses(one.net, image, one.inputs, objective.init(one.net, one.inputs)).terms
    if terms:
        sum(terms.values()).backward()  # type: ignore[union-attr]
    named = dict(one.net.named_parameters())
    parts = [
        named[name].grad if named[name].grad is not None else torch.zeros_like(named[name])
        for name in parameters
    ]
    return torch.cat([part.flatten() for part in parts]).float()


def _best(found: Sequence[tuple[Tensor, Tensor]]) -> float:
    return max(best_cosine(update, gradients) for update, gradients in found)


def best_cosine(update: Tensor, gradients: Tensor) -> float:
    """Return the largest cosine of an update (D,) with one of the gradients (N, D) or a pair's mix.

    A mixture has weights >= 0. A gradient of 0 explains nothing.
    """
    lengths = gradients.norm(dim=1)
    if not float(update.norm()) or not float(lengths.max()):
        return 0.0
    unit = (gradients[lengths > 0] / lengths[lengths > 0].unsqueeze(1)).double()
    fit = unit @ (update / update.norm()).double()
    alike = unit @ unit.T
    # cos² with the plane of two unit vectors; the mixture of least squares must have no negative
    # weight.
    first = fit.unsqueeze(1)
    second = fit.unsqueeze(0)
    rest = (1 - alike.square()).clamp_min(1e-9)
    inside = (first > alike * second) & (second > alike * first) & (alike.abs() < 1 - 1e-6)
    square = (first.square() + second.square() - 2 * alike * first * second) / rest
    return max(
        float(fit.max()),
        float(square[inside].clamp(0, 1).max().sqrt()) if bool(inside.any()) else -1.0,
    )

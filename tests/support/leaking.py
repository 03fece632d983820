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
"""Number of the site's images.

A round of the smallest size that policies allow takes 34 of the labelled ones."""


def attacked(method: str = "fedavg", **changes: Any) -> Experiment:
    """Return a job within the default policy except for the changes, for half of the labels."""
    options = {
        "participants": None,
        "images_per_round": None,
        "images_at_most": 34,
        **changes.pop("options", {}),
    }
    labelled = 0.0 if changes.pop("unlabelled_site", False) else 0.5
    synthetic = SyntheticData(images=IMAGES, labelled=labelled)
    fields = {"net": "small_cnn_gn", "minimum_replies": 3, **changes}
    return tiny(method, synthetic=synthetic, **fields, options=options)


@dataclass(frozen=True)
class Explained:
    """How well images explain an update: cosines in [-1, 1]."""

    own: float
    """The best of the images, or pairs of them, that the site trained on."""
    others: float
    """The best of the same number of other images, of the same classes."""

    @property
    def excess(self) -> float:
        """Return the share that own images explain of what others leave unexplained; 1: all."""
        return (self.own - self.others) / (1 - self.others)


class RefusedError(Exception):
    """The site has refused the job or the round."""


@dataclass(frozen=True)
class _WatchedPhase:
    """One phase of a round: its network, what is minimised, and all its batches."""

    net: nn.Module
    phase: Phase
    inputs: RoundInputs
    batches: list[Batch]
    others: list[Batch]
    """For each image of the batches another one, of the same class and the same kinds of views."""


def explained(
    experiment: Experiment,
    folder: Path,
    policy: Policy = OPEN,
    round_: int = 1,
    task: str = "train",
) -> Explained:
    """Let one site answer one request, and return how well images explain its update.

    Args:
        experiment: the job.
        folder: the site's own.
        policy: the site's.
        round_: number of the round that is asked for.
        task: what the site is asked to do.

    Raises:
        RefusedError: the site refuses; with the site's words.
    """
    algorithm = method_of(experiment)
    watched_phases: list[_WatchedPhase] = []
    admission = Admission(HERE, experiment, algorithm, folder, lambda: policy)
    site = new_client(HERE, experiment, folder, admission=admission)

    def watched(request: PhaseRequest) -> Any:
        phase = request.phase
        assert not isinstance(phase.objective, Measurement)
        batches = request.batches
        unused = {kind: _unused(batches, kind) for kind in ("labelled", "unlabelled")}
        all_batches = list(batches)
        images = [image for batch in all_batches for image in _singles(batch)]
        others = _alike(site, batches, unused, images)
        watched_phases.append(
            _WatchedPhase(request.net, phase, request.inputs, all_batches, others)
        )
        return train_phase(replace(request, batches=all_batches))

    first = initial_model(experiment)
    model = first.state
    request = requests(experiment, Exchange(1, model, {HERE: ClientTask(task)}))[HERE]
    meta = {**request.meta, "members": 3, "round": round_}
    if first.base is not None:
        meta["base"] = first.base
    site._learner = replace(site.learner, run_phase=watched)
    answer = site.handle(Message(meta, request.arrays))
    if "error" in answer.meta:
        raise RefusedError(answer.meta["error"])
    if not answer.arrays:
        raise RefusedError("no step was taken")
    update = {
        name.removeprefix("diff/"): torch.tensor(array) for name, array in answer.arrays.items()
    }
    own, others = _gradients(watched_phases, dict(model), update)
    return Explained(_best(own), _best(others))


def _gradients(
    watched_phases: Sequence[_WatchedPhase], model: dict[str, Tensor], update: dict[str, Tensor]
) -> tuple[list[tuple[Tensor, Tensor]], list[tuple[Tensor, Tensor]]]:
    """Return pairs of (release, gradients (N, D)) of the site's images and of others, by reading.

    Released are the update and, where each step shrinks all weights, the model itself.
    """
    own: list[tuple[Tensor, Tensor]] = []
    others: list[tuple[Tensor, Tensor]] = []
    trained_model = dict(model)
    for name, difference in update.items():
        trained_model[name] = model[name] + difference.to(model[name].dtype)
    for watched in watched_phases:
        parameters = [name for name, _ in watched.net.named_parameters() if name in update]
        releases = [
            -torch.cat([state[name].flatten() for name in parameters]).float()
            for state in (update, trained_model)
        ]
        own_images = [image for batch in watched.batches for image in _singles(batch)]
        for state in (model, trained_model):
            watched.net.load_state_dict(state, strict=False)
            for pairs, images in ((own, own_images), (others, watched.others)):
                rows = torch.stack([_gradient(watched, parameters, image) for image in images])
                for release in releases:
                    pairs.append((release, rows))
                    # Adam's first steps are signs of the gradient.
                    pairs.append((release.sign(), rows.sign()))
    return own, others


def _singles(batch: Batch) -> list[Batch]:
    """Return each image of a batch as a batch of its own."""
    images: list[Batch] = []
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
    generator = batches._draws.torch_generator(*batches._stream, kind)
    taken = virtual_client(len(pixels), batches.images, generator)
    is_unused = torch.ones(len(pixels), dtype=torch.bool)
    is_unused[taken] = False
    return is_unused.nonzero().flatten()


def _alike(
    site: Any, batches: RoundBatches, unused: dict[str, Tensor], images: Sequence[Batch]
) -> list[Batch]:
    """Return for each image one that the round left out, of the same class and kinds of views.

    If there is no such image, one that the site holds out for evaluation is taken.
    """
    generator = torch.Generator().manual_seed(0)
    other_images: list[Batch] = []
    held_out = [site.learner.images["val"], site.learner.images["test"]]
    for image in images:
        is_labelled = image.labels is not None
        pool = batches._labelled if is_labelled else batches._unlabelled
        index = unused["labelled" if is_labelled else "unlabelled"]
        assert pool is not None
        if is_labelled:
            index = index[(pool.labels[index] == image.labels).flatten()]
        views = batches._views
        if not len(index):
            pool = type(held_out[0]).together(held_out)
            index = torch.arange(len(pool))
            if is_labelled:
                index = (pool.labels == image.labels).nonzero().flatten()
            if site.experiment.trainable == HEAD:  # Images have no views there.
                views = Views(lambda rows, _: rows, lambda rows, _: rows)
        index = index[torch.randint(len(index), (1,), generator=generator)]
        originals = pool.originals(index) if views is batches._views else pool.take(index)
        if is_labelled:
            other_images.append(replace(image, labelled=views.weak(originals, generator)))
        else:
            strong = None if image.strong is None else views.strong(originals, generator)
            weak = views.weak(originals, generator)
            other_images.append(replace(image, weak=weak, strong=strong))
    return other_images


def _gradient(watched: _WatchedPhase, parameters: Sequence[str], image: Batch) -> Tensor:
    """Return the gradient (D,) of the phase's losses on one image, without the proximal term."""
    net = watched.net
    objective = watched.phase.objective
    assert not isinstance(objective, Measurement)
    net.zero_grad(set_to_none=True)
    state = objective.init(net, watched.inputs)
    terms = objective.losses(net, image, watched.inputs, state).terms
    if terms:
        sum(terms.values()).backward()  # type: ignore[union-attr]
    named = dict(net.named_parameters())
    parts = []
    for name in parameters:
        gradient = named[name].grad
        parts.append(torch.zeros_like(named[name]) if gradient is None else gradient)
    return torch.cat([part.flatten() for part in parts]).float()


def _best(pairs: Sequence[tuple[Tensor, Tensor]]) -> float:
    return max(best_cosine(release, gradients) for release, gradients in pairs)


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
    best_single = float(fit.max())
    if not bool(inside.any()):
        return best_single
    best_pair = float(square[inside].clamp(0, 1).max().sqrt())
    return max(best_single, best_pair)

"""What a sampler sees of a site's unlabelled images; only what it looks at is computed."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from fedward.label_kinds import kind_of_labels
from fedward.methods.auxiliary import heads_of
from fedward.methods.local import logits_and_features
from fedward.methods.samplers.pool import Pool, PoolUses
from fedward.methods.samplers.suggestive import principal_axes
from fedward.model_state import State
from fedward.seeds import torch_generator
from fedward.sites import Images
from fedward.training.batches import FORWARD_BATCH, Pixels, Samples
from fedward.training.evaluation import predict
from fedward.training.networks import Networks
from fedward.views import View, alike
from fedward.views.colour import LUMA


def observe(
    site: str,
    images: Images,
    taken: Iterable[Images],
    uses: PoolUses,
    networks: Networks,
    models: Mapping[str, State],
    to_samples: Callable[[Images], Samples],
    view: View,
) -> Pool:
    """Return the pool of a site's images with what a sampler uses of them.

    Args:
        site: the site's name, for errors.
        images: those that may be chosen. Without any, nothing is computed.
        taken: images that have a label, and images that wait for one.
        uses: what the sampler looks at.
        networks: the site's, into which the models are loaded one after the other.
        models: the site's own model, ``local``, and the global one, ``global``.
        to_samples: turns images into what the networks take.
        view: how a picture is varied, as in training, where the sampler looks at views.
    """
    pool = Pool(site, images.ids, outputs=kind_of_labels(images.labels).outputs)
    if not len(images):
        return pool
    if uses.models:
        if uses.views:
            members = _varied(images, uses, networks, models, view)
        else:
            members = _members(to_samples(images), uses, networks, models)
        pool = replace(pool, probabilities=torch.cat(list(members)))
    if uses.features == "image":
        return replace(pool, features=principal_axes(_grey(images)))
    if uses.features in ("local", "global"):
        net = networks.load(models[uses.features])
        features = _features(net, to_samples(images))
        of_taken = [_features(net, to_samples(part)) for part in taken if len(part)]
        labelled = torch.cat(of_taken) if of_taken else torch.empty(0, 0)
        return replace(pool, features=features, labelled=labelled)
    return pool


def _members(
    samples: Samples, uses: PoolUses, networks: Networks, models: Mapping[str, State]
) -> Iterator[Tensor]:
    """Yield probabilities (T, N, K) of the members, in the order that ``uses`` names them."""
    for name in uses.models:
        net = networks.load(models[name])
        if not uses.heads:
            yield predict(net, samples).unsqueeze(0)
            continue
        batches = []
        for logits, features in _batches(net, samples):
            batches.append(torch.stack([logits, *heads_of(net)(features)]))
        yield torch.cat(batches, dim=1).float().softmax(dim=2).cpu()


def _varied(
    images: Images, uses: PoolUses, networks: Networks, models: Mapping[str, State], view: View
) -> Iterator[Tensor]:
    """Yield, for each model, probabilities (T, N, K) of T views of the images."""

    def varied(pictures: Tensor, number: int) -> Tensor:
        # One draw for all pictures and every query, so that scores can be compared.
        return alike(view, pictures, torch_generator(number, "view"))

    for name in uses.models:
        networks.load(models[name])
        # Views are made of images, also where a head alone trains, which takes features.
        net = networks.on_images
        pixels = Pixels.of(images, next(net.parameters()).device)
        views = [predict(net, pixels, view=partial(varied, number=n)) for n in range(uses.views)]
        yield torch.stack(views)


def _features(net: nn.Module, samples: Samples) -> Tensor:
    """Return what a network's classifier receives (N, D), N >= 1, on the CPU."""
    return torch.cat([features for _, features in _batches(net, samples)]).cpu()


@torch.no_grad()
def _batches(net: nn.Module, samples: Samples) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield logits (B, K) of a network in evaluation mode, and what its classifier receives."""
    net.eval()
    for part in torch.arange(len(samples)).split(FORWARD_BATCH[samples.labels.device.type]):
        yield logits_and_features(net, samples.take(part))


def _grey(images: Images) -> Tensor:
    """Return (N, H, W) float32 in [0, 255]."""
    pixels = torch.tensor(images.pixels).float()
    if pixels.shape[-1] == len(LUMA):
        return pixels @ torch.tensor(LUMA)
    return pixels[..., 0]

"""What a sampler sees of a site's unlabelled images: only what it looks at is computed."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from fedward.label_kinds import kind_of_labels
from fedward.methods.auxiliary import heads_of
from fedward.methods.local import logits_and_features
from fedward.methods.samplers import Pool, Uses
from fedward.methods.samplers.suggestive import principal_axes
from fedward.seeds import torch_generator
from fedward.sites import Images
from fedward.training.batches import FORWARD_BATCH, Pixels, Samples
from fedward.training.evaluation import predict
from fedward.views import View, alike
from fedward.views.colour import LUMA


def observe(
    site: str,
    images: Images,
    taken: Iterable[Images],
    uses: Uses,
    nets: Callable[[str], nn.Module],
    of: Callable[[Images], Samples],
    view: View,
    on_images: Callable[[nn.Module], nn.Module] = lambda net: net,
) -> Pool:
    """Return the pool of a site's images with what a sampler uses of them.

    Args:
        site: its name, for errors.
        images: those that may be chosen; without any, nothing is computed.
        taken: those that have labels, and those that wait for one.
        uses: what is looked at.
        nets: ``local`` or ``global`` -> the network with these weights; it may be one that is
            loaded anew each time.
        of: gives images as the networks take them.
        view: how a picture is varied, where the sampler looks at views: that of training.
        on_images: a network of ``nets`` as one that takes images.
    """
    pool = Pool(site, images.ids, outputs=kind_of_labels(images.labels).outputs)
    if not len(images):
        return pool
    outputs = dict[str, tuple[Tensor, Tensor]]()
    if uses.outputs == "logits":
        outputs = {name: _outputs(nets(name), of(images)) for name in uses.models}
        pool = replace(pool, logits=torch.stack([logits for logits, _ in outputs.values()]))
    elif uses.models:
        members = (
            _varied(images, uses, lambda name: on_images(nets(name)), view)
            if uses.views
            else (_members(of(images), uses, nets))
        )
        pool = replace(pool, probabilities=torch.cat(list(members)))
    if uses.features == "image":
        pool = replace(pool, features=principal_axes(_grey(images)))
    if uses.features in ("local", "global"):
        net = nets(uses.features)
        _, features = outputs.get(uses.features) or _outputs(net, of(images))
        centres = (
            [_outputs(net, of(each))[1] for each in taken if len(each)] if uses.labelled else []
        )
        pool = replace(
            pool, features=features, labelled=torch.cat(centres) if centres else torch.empty(0, 0)
        )
    return pool


def _members(samples: Samples, uses: Uses, nets: Callable[[str], nn.Module]) -> Iterator[Tensor]:
    """Yield probabilities (T, N, K), the members in the order that Uses names."""
    for name in uses.models:
        net = nets(name)
        if uses.heads:
            outputs = [
                torch.stack([logits, *heads_of(net)(features)])
                for logits, features in _batches(net, samples)
            ]
            yield torch.cat(outputs, dim=1).float().softmax(dim=2).cpu()
        else:
            yield predict(net, samples).unsqueeze(0)


def _varied(
    images: Images, uses: Uses, nets: Callable[[str], nn.Module], view: View
) -> Iterator[Tensor]:
    """Yield probabilities (T, N, K) of views of the images, for each model those by number."""

    def varied(pictures: Tensor, number: int) -> Tensor:
        return alike(
            view, pictures, torch_generator(number, "view")
        )  # the same for all pictures in every query

    for name in uses.models:
        net = nets(name)
        pixels = Pixels.of(images, next(net.parameters()).device)
        yield torch.stack(
            [predict(net, pixels, view=partial(varied, number=n)) for n in range(uses.views)]
        )


def _outputs(net: nn.Module, samples: Samples) -> tuple[Tensor, Tensor]:
    """Return logits (N, K) and what the classifier receives (N, D), N >= 1, on the CPU."""
    logits, features = zip(*_batches(net, samples), strict=True)
    return torch.cat(logits).cpu(), torch.cat(features).cpu()


@torch.no_grad()
def _batches(net: nn.Module, samples: Samples) -> Iterator[tuple[Tensor, Tensor]]:
    net.eval()
    for part in torch.arange(len(samples)).split(FORWARD_BATCH[samples.labels.device.type]):
        yield logits_and_features(net, samples.take(part))


def _grey(images: Images) -> Tensor:
    """Return (N, H, W) float32 in [0, 255]."""
    pixels = torch.tensor(images.pixels).float()
    return pixels @ torch.tensor(LUMA) if pixels.shape[-1] == len(LUMA) else pixels[..., 0]

"""What a sampler sees of a site's images: only what it uses, of the right network."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from fedward.methods.auxiliary import add_heads, heads_of
from fedward.methods.samplers import sampler_of
from fedward.methods.samplers.pool import PoolUses
from fedward.nets import build
from fedward.seeds import torch_generator
from fedward.sites import Images
from fedward.training.batches import Pixels
from fedward.training.evaluation import predict
from fedward.training.pool import observe
from fedward.views import weak
from loading import MODELS, Loading

CPU = torch.device("cpu")
CLASSES = 3


def images(count: int, seed: int = 0, channels: int = 3) -> Images:
    pixels = np.random.default_rng(seed).integers(0, 256, (count, 16, 16, channels), np.uint8)
    return Images(
        tuple(f"s{seed}-{index}" for index in range(count)), pixels, np.zeros(count, np.int64)
    )


def net(seed: int, heads: bool = False) -> nn.Module:
    return build("small_cnn", CLASSES, seed=seed, extend=add_heads if heads else lambda net: None)


NETS = {"local": net(1, heads=True), "global": net(2, heads=True)}


def pixels(some: Images) -> Pixels:
    return Pixels.of(some, CPU)


def look(
    uses: PoolUses,
    free: Images,
    known: Images | None = None,
    nets: Callable[[str], nn.Module] = NETS.__getitem__,
):
    return observe(
        "north",
        free,
        [images(2, 9) if known is None else known],
        uses,
        Loading(nets),
        MODELS,
        pixels,
        weak,
    )


def never(name: str) -> nn.Module:
    raise AssertionError(f"no need of the {name} network")


def test_members_come_in_the_order_named() -> None:
    free = images(5)
    pool = look(PoolUses(models=("local", "global")), free)
    pixels = Pixels.of(free, CPU)
    assert pool.ids == free.ids
    assert torch.equal(
        pool.probabilities,
        torch.stack([predict(NETS["local"], pixels), predict(NETS["global"], pixels)]),
    )


def test_one_network_may_be_loaded_anew_for_each_member() -> None:
    shared = net(0, heads=True)

    def loaded(name: str) -> nn.Module:
        shared.load_state_dict(NETS[name].state_dict())
        return shared

    uses = PoolUses(models=("local", "global"))
    free = images(4)
    assert torch.equal(look(uses, free, nets=loaded).probabilities, look(uses, free).probabilities)


def test_views_are_the_same_for_all_images_and_in_every_query() -> None:
    """Equal images in a pool get equal predictions, and so does a pool of one of them."""
    free = images(3)
    twin = Images(("a", "b", "c"), free.pixels[[0, 1, 0]], free.labels)
    uses = sampler_of("aift").uses
    p = look(uses, twin).probabilities
    assert p.shape == (8, 3, CLASSES)
    torch.testing.assert_close(p[:, 0], p[:, 2], rtol=0, atol=1e-7)
    alone = look(uses, Images(("a",), free.pixels[:1], free.labels[:1])).probabilities
    torch.testing.assert_close(alone[:, 0], p[:, 0], rtol=0, atol=1e-6)
    assert len({tuple(view.tolist()) for view in p[:, 0]}) == 8, "eight different views"
    first = weak(Pixels.of(twin, CPU).take(torch.tensor([1])), torch_generator(0, "view"))
    with torch.no_grad():
        torch.testing.assert_close(p[0, 1], NETS["local"].eval()(first).softmax(1)[0])


def test_heads_follow_the_network_whose_they_are() -> None:
    free = images(4)
    pool = look(PoolUses(models=("global",), heads=True), free)
    with torch.no_grad():
        inputs = Pixels.of(free, CPU).take(torch.arange(4))
        features = NETS["global"].projection(NETS["global"].features(2 * inputs - 1))
        expected = [NETS["global"].classifier(features), *heads_of(NETS["global"])(features)]
    torch.testing.assert_close(pool.probabilities, torch.stack(expected).softmax(2))


def test_features_are_the_own_networks_of_both_kinds_of_images() -> None:
    free = images(300)
    labelled = images(2, 9)
    pool = look(PoolUses(features="local"), free, labelled)
    assert (pool.features.shape, pool.labelled.shape) == ((300, 256), (2, 256))
    with torch.no_grad():
        logits = NETS["local"].classifier(pool.labelled)
    torch.testing.assert_close(logits.softmax(1), predict(NETS["local"], Pixels.of(labelled, CPU)))
    assert not pool.probabilities.numel()


def test_waiting_images_are_compared_like_labelled_ones() -> None:
    free = images(5)
    labelled = images(2, 9)
    waiting = images(3, 8)
    pool = observe(
        "north",
        free,
        [labelled, images(0), waiting],
        PoolUses(features="local"),
        Loading(NETS.__getitem__),
        MODELS,
        pixels,
        weak,
    )
    apart = [look(PoolUses(features="local"), free, each).labelled for each in (labelled, waiting)]
    assert torch.equal(pool.labelled, torch.cat(apart))


@pytest.mark.parametrize("channels", [1, 3])
def test_features_of_the_picture_need_no_network(channels: int) -> None:
    pool = look(PoolUses(features="image"), images(4, channels=channels), nets=never)
    assert pool.features.shape == (4, 16)
    torch.testing.assert_close(pool.features.norm(dim=1), torch.ones(4))


@pytest.mark.parametrize("name", ["random", "aift", "mcdal", "core_set", "sa", "fedal"])
def test_nothing_is_computed_for_nobody(name: str) -> None:
    pool = look(sampler_of(name).uses, images(0), nets=never)
    assert sampler_of(name).choose(pool, 3, torch_generator(0)) == []


def test_without_labelled_images_the_core_set_begins_with_any() -> None:
    pool = look(PoolUses(features="local"), images(5), images(0, 9))
    assert len(sampler_of("core_set").choose(pool, 3, torch_generator(0))) == 3

"""One round's batches: which images, which views, which predictions, and nothing that depends on anything else."""

from collections import Counter
from dataclasses import fields
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedward.methods.local import Batch
from fedward.methods.settings import Settings
from fedward.sites import Images
from fedward.training.batches import Pixels, predictions, round_batches
from tiny import batch_norm_net

SEED = (3, "site-1", 2)
CLASSES = 8
CPU = torch.device("cpu")


def plain(count: int, first: int = 0) -> Pixels:
    """Images of one grey each, which every weak view keeps: grey and label both are the image's number."""
    numbers = torch.arange(first, first + count)
    return Pixels(numbers.to(torch.uint8).view(-1, 1, 1, 1).expand(-1, 3, 16, 16).contiguous(), numbers)


def pictures(count: int, seed: int = 0) -> Pixels:
    draw = torch.Generator().manual_seed(seed)
    pixels = torch.randint(256, (count, 3, 16, 16), generator=draw, dtype=torch.uint8)
    return Pixels(pixels, torch.randint(CLASSES, (count,), generator=draw))


def numbers(views: Tensor) -> list[int]:
    """Read the images' numbers off their weak views."""
    return (255 * views.mean(dim=(1, 2, 3))).round().long().tolist()


def make(
    labelled: Pixels,
    unlabelled: Pixels | None,
    settings: Settings,
    peers: tuple[nn.Module, ...] = (),
    seed: tuple[int, str, int] = SEED,
) -> list[Batch]:
    return list(round_batches(labelled, unlabelled, peers, settings, seed))


def same(a: list[Batch], b: list[Batch], *names: str) -> bool:
    """Whether two rounds have bitwise equal parts."""
    chosen = names or tuple(field.name for field in fields(Batch))
    pairs = [(getattr(x, name), getattr(y, name)) for x, y in zip(a, b, strict=True) for name in chosen]
    return all((x is None and y is None) or (x is not None and y is not None and torch.equal(x, y)) for x, y in pairs)


def peer_nets() -> tuple[nn.Module, ...]:
    return tuple(batch_norm_net(seed, CLASSES).eval() for seed in (1, 2))


# --- Pixels


def test_pixels_are_the_sites_images_channels_first_and_scaled() -> None:
    raw = np.random.default_rng(0).integers(0, 256, (5, 16, 16, 3), np.uint8)
    images = Images(tuple("abcde"), raw, np.array([3, 1, -1, 0, 2]))
    pixels = Pixels.of(images, CPU)
    assert len(pixels) == 5
    assert pixels.labels.tolist() == [3, 1, -1, 0, 2]
    taken = pixels.take(torch.tensor([4, 0, 4]))
    assert taken.dtype == torch.float32
    torch.testing.assert_close(taken, torch.tensor(raw[[4, 0, 4]] / 255).float().permute(0, 3, 1, 2))
    assert torch.equal(pixels.pixels.permute(0, 2, 3, 1), torch.tensor(raw)), "taking must not scale the cache"


# --- how many, and which


@pytest.mark.parametrize(
    ("images", "batch", "steps"), [(16, 16, 1), (48, 16, 3), (272, 16, 17), (6, 1, 6), (300, 300, 1)]
)
def test_a_round_has_as_many_batches_as_the_settings_say(images: int, batch: int, steps: int) -> None:
    settings = Settings(images_per_round=images, batch=batch)
    found = make(plain(7), plain(9), settings)
    assert len(found) == settings.steps == steps
    for step in found:
        assert step.labelled.shape == step.weak.shape == step.strong.shape == (batch, 3, 16, 16)
        assert step.labels.shape == (batch,)
        for part in (step.labelled, step.weak, step.strong):
            assert part.dtype == torch.float32
            assert 0 <= part.min() <= part.max() <= 1


@pytest.mark.parametrize("pool", [1, 5, 23, 31, 32, 33, 100])
def test_fedvc_uses_every_image_equally_often_give_or_take_one(pool: int) -> None:
    """32 of a pool: without replacement while it lasts, in passes otherwise; for both kinds of images."""
    found = make(plain(pool), plain(pool, first=120), Settings(images_per_round=32, batch=8))
    for seen, first in (
        ([n for step in found for n in numbers(step.labelled)], 0),
        ([n for step in found for n in numbers(step.weak)], 120),
    ):
        counts = Counter(seen)
        assert sum(counts.values()) == 32
        assert set(counts) <= set(range(first, first + pool))
        assert len(counts) == min(pool, 32)
        assert max(counts.values()) - min(counts.values()) <= (0 if pool >= 32 else 1)


def test_labels_stay_with_their_images_also_beyond_one_chunk() -> None:
    """272 images are made in two goes."""
    for step in make(plain(200), None, Settings(images_per_round=272, batch=16)):
        assert step.labels.tolist() == numbers(step.labelled)


def test_every_step_has_views_of_its_own() -> None:
    """One image, seen 16 times: no two weak and no two strong views are alike."""
    (step,) = make(pictures(1), pictures(1), Settings(images_per_round=16, batch=16))
    for views in (step.labelled, step.weak, step.strong):
        assert len({view.numpy().tobytes() for view in views}) > 12
    assert not torch.equal(step.weak, step.strong)


def test_weak_and_strong_are_views_of_the_same_images() -> None:
    """White images stay whiter than black ones whatever the strong view does, on average."""
    black_and_white = Pixels(
        torch.tensor([20, 235], dtype=torch.uint8).view(2, 1, 1, 1).expand(2, 3, 16, 16), torch.zeros(2)
    )
    steps = make(plain(1), black_and_white, Settings(images_per_round=256, batch=64))
    weak = torch.cat([step.weak for step in steps]).mean(dim=(1, 2, 3))
    strong = torch.cat([step.strong for step in steps]).mean(dim=(1, 2, 3))
    assert strong[weak > 0.5].mean() > strong[weak < 0.5].mean() + 0.2


# --- what they depend on


def test_equal_seeds_give_equal_rounds_whatever_the_global_generators_do() -> None:
    settings = Settings(images_per_round=32, batch=8)
    rounds = []
    for state in (1, 2):
        torch.manual_seed(state)
        np.random.seed(state)
        chance = torch.get_rng_state()
        rounds.append(make(pictures(20), pictures(30, 1), settings, peer_nets()))
        assert torch.equal(torch.get_rng_state(), chance), "the global generator was used"
    assert same(*rounds)


@pytest.mark.parametrize("seed", [(4, "site-1", 2), (3, "site-2", 2), (3, "site-1", 3)])
def test_seed_site_and_round_each_change_the_round(seed: tuple[int, str, int]) -> None:
    settings = Settings(images_per_round=16, batch=8)
    one, other = (make(pictures(20), pictures(30, 1), settings, seed=each) for each in (SEED, seed))
    for name in ("labelled", "weak", "strong"):
        assert not same(one, other, name), name


def test_one_kind_of_images_does_not_depend_on_the_other() -> None:
    settings = Settings(images_per_round=32, batch=8)
    both = make(pictures(20), pictures(30, 1), settings, peer_nets())
    assert same(both, make(pictures(20), None, settings), "labelled", "labels")
    assert same(both, make(pictures(3, 5), pictures(30, 1), settings), "weak", "strong")


def test_a_longer_round_begins_like_a_shorter_one() -> None:
    """By whole goes of 256 images, whose views are drawn together."""
    short, long = (make(plain(200), plain(200), Settings(images_per_round=n, batch=16)) for n in (256, 512))
    assert same(short, long[:16], "labelled", "labels", "weak", "strong")


def test_hidden_labels_cannot_matter() -> None:
    settings = Settings(images_per_round=32, batch=8)
    unlabelled = pictures(30, 1)
    for labels in (torch.full((30,), -1), torch.arange(30)):
        other = Pixels(unlabelled.pixels, labels)
        assert same(
            make(pictures(20), unlabelled, settings, peer_nets()), make(pictures(20), other, settings, peer_nets())
        )


def test_the_sites_pixels_are_left_alone() -> None:
    labelled, unlabelled = pictures(20), pictures(30, 1)
    make(labelled, unlabelled, Settings(images_per_round=32, batch=8), peer_nets())
    for pixels, original in ((labelled, pictures(20)), (unlabelled, pictures(30, 1))):
        assert torch.equal(pixels.pixels, original.pixels)
        assert torch.equal(pixels.labels, original.labels)


# --- peers


def test_predictions_in_one_go_equal_those_of_every_step() -> None:
    """17 steps of 16, made in two goes: the same numbers as one forward pass a step, and frozen peers."""
    nets = peer_nets()
    before = [[buffer.clone() for buffer in net.buffers()] for net in nets]
    steps = make(pictures(20), pictures(30, 1), Settings(images_per_round=272, batch=16), nets)
    for step in steps:
        assert step.peers.shape == (2, 16, CLASSES)
        assert not step.peers.requires_grad
        with torch.no_grad():
            each = torch.stack([torch.softmax(net(step.weak), dim=1) for net in nets])
        torch.testing.assert_close(step.peers, each, rtol=0, atol=1e-6)
    assert all(not torch.equal(a.peers[0], a.peers[1]) for a in steps)
    assert all(not torch.equal(a.peers, b.peers) for a, b in pairwise(steps))
    for net, old in zip(nets, before, strict=True):
        assert not net.training
        assert all(torch.equal(a, b) for a, b in zip(net.buffers(), old, strict=True))


def test_predictions_are_softmax_outputs_by_net() -> None:
    nets, images = peer_nets(), torch.rand(5, 3, 16, 16)
    found = predictions(nets, images)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.sum(dim=2), torch.ones(2, 5))
    torch.testing.assert_close(found[1], torch.softmax(nets[1](images), dim=1).detach())
    assert torch.equal(predictions(nets[::-1], images), found.flip(0))


def test_without_peers_there_are_no_predictions() -> None:
    assert all(step.peers is None for step in make(pictures(20), pictures(30), Settings(images_per_round=32, batch=8)))


# --- sites that lack something


@pytest.mark.parametrize("unlabelled", [None, plain(0)])
def test_a_site_without_unlabelled_images(unlabelled: Pixels | None) -> None:
    steps = make(pictures(20), unlabelled, Settings(images_per_round=32, batch=8), peer_nets())
    assert len(steps) == 4
    assert all(step.weak is step.strong is step.peers is None for step in steps)
    assert all(step.labelled is not None and step.labels is not None for step in steps)


def test_a_site_without_labelled_images() -> None:
    steps = make(plain(0), pictures(20), Settings(images_per_round=32, batch=8), peer_nets())
    assert len(steps) == 4
    assert all(step.labelled is step.labels is None for step in steps)
    assert all(step.weak is not None and step.strong is not None and step.peers is not None for step in steps)

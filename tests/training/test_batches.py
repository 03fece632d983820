"""The batches of one round: which images, which views, and which predictions."""

from collections import Counter
from dataclasses import fields
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedward.methods.local import Batch, Uses
from fedward.methods.settings import Settings
from fedward.seeds import Draws
from fedward.sites import Images
from fedward.training.batches import Pixels, RoundBatches, predictions
from fedward.views import VIEWS, Views
from tiny import batch_norm_net

SEED = (3, "site-1", 2)
CLASSES = 8
CPU = torch.device("cpu")


def plain(count: int, first: int = 0) -> Pixels:
    """Images of one colour each, which every weak view keeps.

    Colour and label are both the image's number.
    """
    numbers = torch.arange(first, first + count)
    colours = torch.stack([numbers % 256, numbers // 256, torch.zeros_like(numbers)], dim=1).to(
        torch.uint8
    )
    return Pixels(colours.view(-1, 3, 1, 1).expand(-1, 3, 16, 16).contiguous(), numbers)


def pictures(count: int, seed: int = 0) -> Pixels:
    draw = torch.Generator().manual_seed(seed)
    pixels = torch.randint(256, (count, 3, 16, 16), generator=draw, dtype=torch.uint8)
    return Pixels(pixels, torch.randint(CLASSES, (count,), generator=draw))


def numbers(views: Tensor) -> list[int]:
    """Read the images' numbers off their weak views."""
    low, high, _ = (255 * views.mean(dim=(2, 3))).round().long().unbind(1)
    return (256 * high + low).tolist()


def stream(
    labelled: Pixels | None,
    unlabelled: Pixels | None,
    settings: Settings,
    peers: tuple[nn.Module, ...] = (),
    seed: tuple[int | str, ...] = SEED,
    **options: Any,
) -> RoundBatches:
    experiment, *purpose = seed
    assert isinstance(experiment, int)
    return RoundBatches(
        labelled, unlabelled, peers, settings, Draws(experiment), tuple(purpose), **options
    )


def make(*args: Any, **options: Any) -> list[Batch]:
    return list(stream(*args, **options))


def once(**settings: Any) -> Settings:
    """Settings under which a site passes through its images."""
    return Settings.model_validate({"images_per_round": None, "batch": 8, **settings})


def same(a: list[Batch], b: list[Batch], *names: str) -> bool:
    """Whether two rounds have bitwise equal parts."""
    chosen = names or tuple(field.name for field in fields(Batch))
    pairs = [
        (getattr(x, name), getattr(y, name)) for x, y in zip(a, b, strict=True) for name in chosen
    ]
    return all(
        (x is None and y is None) or (x is not None and y is not None and torch.equal(x, y))
        for x, y in pairs
    )


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
    torch.testing.assert_close(
        taken, torch.tensor(raw[[4, 0, 4]] / 255).float().permute(0, 3, 1, 2)
    )
    assert torch.equal(pixels.pixels.permute(0, 2, 3, 1), torch.tensor(raw)), (
        "taking must not scale the cache"
    )


def test_together_keeps_order_and_labels() -> None:
    one = pictures(3)
    other = pictures(2, 1)
    both = Pixels.together([one, plain(0), other])
    assert len(both) == 5
    assert torch.equal(both.pixels, torch.cat([one.pixels, other.pixels]))
    assert torch.equal(both.labels, torch.cat([one.labels, other.labels]))


def test_together_copies_nothing_for_a_single_part() -> None:
    one = pictures(3)
    for parts in ([one], [plain(0), one], [one, plain(0)]):
        assert Pixels.together(parts) is one


def test_together_of_nothing_is_empty() -> None:
    none = Pixels.together([plain(0), plain(0)])
    assert len(none) == 0
    assert none.take(torch.zeros(0, dtype=torch.long)).shape == (0, 3, 16, 16)


# --- how many, and which


@pytest.mark.parametrize(
    ("images", "batch", "steps"),
    [(16, 16, 1), (48, 16, 3), (272, 16, 17), (6, 1, 6), (300, 300, 1)],
)
def test_a_round_has_as_many_batches_as_the_settings_say(
    images: int, batch: int, steps: int
) -> None:
    settings = Settings(images_per_round=images, batch=batch)
    batches = make(plain(7), plain(9), settings)
    assert len(batches) == len(stream(plain(7), plain(9), settings)) == steps
    for step in batches:
        assert step.labelled.shape == step.weak.shape == step.strong.shape == (batch, 3, 16, 16)
        assert step.labels.shape == (batch,)
        for part in (step.labelled, step.weak, step.strong):
            assert part.dtype == torch.float32
            assert 0 <= part.min() <= part.max() <= 1


@pytest.mark.parametrize("pool", [1, 5, 23, 31, 32, 33, 100])
def test_fedvc_uses_every_image_equally_often_give_or_take_one(pool: int) -> None:
    """32 images are drawn from a pool of either kind.

    They are drawn without replacement while the pool lasts, otherwise in passes.
    """
    batches = make(plain(pool), plain(pool, first=120), Settings(images_per_round=32, batch=8))
    for seen, first in (
        ([n for step in batches for n in numbers(step.labelled)], 0),
        ([n for step in batches for n in numbers(step.weak)], 120),
    ):
        counts = Counter(seen)
        assert sum(counts.values()) == 32
        assert set(counts) <= set(range(first, first + pool))
        assert len(counts) == min(pool, 32)
        assert max(counts.values()) - min(counts.values()) <= (0 if pool >= 32 else 1)


@pytest.mark.parametrize(
    ("pool", "kind"),
    [
        (1, "labelled"),
        (7, "weak"),
        (8, "labelled"),
        (9, "labelled"),
        (9, "weak"),
        (255, "weak"),
        (300, "labelled"),
    ],
)
def test_without_a_fixed_number_every_image_is_seen_once(pool: int, kind: str) -> None:
    """Batches share what is left over; 300 images are made in two goes."""
    parts = (plain(pool), None) if kind == "labelled" else (None, plain(pool))
    batches = stream(*parts, once())
    found = list(batches)
    sizes = [len(getattr(step, kind)) for step in found]
    assert (
        sizes
        == {1: [1], 7: [7], 8: [8], 9: [9], 255: [9] * 7 + [8] * 24, 300: [9] * 4 + [8] * 33}[pool]
    )
    assert len(batches) == len(found)
    assert batches.images == pool
    seen = [number for step in found for number in numbers(getattr(step, kind))]
    assert sorted(seen) == list(range(pool))
    if kind == "labelled":
        assert [label for step in found for label in step.labels.tolist()] == seen


def test_a_pass_has_a_fresh_order_in_every_round() -> None:
    orders = []
    for round_ in (1, 2):
        steps = make(plain(50), None, once(), seed=(3, "site-1", round_))
        orders.append([number for step in steps for number in numbers(step.labelled)])
    assert orders[0] != orders[1] != list(range(50)) != orders[0]


@pytest.mark.parametrize(
    ("labelled", "unlabelled"), [(5, 20), (20, 5), (7, 20), (20, 19), (12, 12), (3, 300)]
)
def test_the_smaller_of_two_kinds_is_repeated(labelled: int, unlabelled: int) -> None:
    batches = make(plain(labelled), plain(unlabelled, first=400), once())
    steps = max(labelled, unlabelled) // 8
    images = max(labelled, unlabelled)
    assert len(batches) == len(stream(plain(labelled), plain(unlabelled), once())) == steps
    assert all(
        len(step.labelled) == len(step.labels) == len(step.weak) == len(step.strong)
        for step in batches
    )
    for seen, pool, first in (
        ([n for step in batches for n in numbers(step.labelled)], labelled, 0),
        ([n for step in batches for n in numbers(step.weak)], unlabelled, 400),
    ):
        counts = Counter(seen)
        assert set(counts) == set(range(first, first + pool))
        assert sum(counts.values()) == images
        assert set(counts.values()) <= {images // pool, -(-images // pool)}


@pytest.mark.parametrize(("most", "images"), [(1, 1), (12, 12), (16, 16), (30, 30), (99, 30)])
def test_a_pass_stops_after_so_many_images(most: int, images: int) -> None:
    batches = stream(plain(20), plain(30, first=120), once(images_at_most=most))
    found = list(batches)
    assert len(found) == len(batches) == max(1, images // 8)
    assert batches.images == images
    for seen, pool in (
        ([n for step in found for n in numbers(step.labelled)], 20),
        ([n for step in found for n in numbers(step.weak)], 30),
    ):
        assert len(seen) == images
        assert len(set(seen)) == min(images, pool)


def test_other_images_are_seen_in_another_round() -> None:
    settings = once(images_at_most=10)
    seen = set()
    for round_ in range(1, 13):
        (step,) = make(plain(20), None, settings, seed=(3, "site-1", round_))
        assert len(step.labelled) == 10
        seen |= set(numbers(step.labelled))
    assert seen == set(range(20))


def test_the_limit_of_a_pass_does_not_touch_a_fixed_number() -> None:
    plainly, limited = (
        Settings(images_per_round=32, batch=8, images_at_most=most) for most in (None, 9)
    )
    assert same(make(plain(20), plain(30), plainly), make(plain(20), plain(30), limited))


@pytest.mark.parametrize(("images", "batch", "steps"), [(272, 16, 17), (300, 300, 1)])
def test_labels_stay_with_their_images_also_beyond_one_chunk(
    images: int, batch: int, steps: int
) -> None:
    """272 images are made in two goes of whole batches; a larger batch is a go by itself."""
    found = make(plain(200), None, Settings(images_per_round=images, batch=batch))
    assert len(found) == steps
    for step in found:
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
        torch.tensor([20, 235], dtype=torch.uint8).view(2, 1, 1, 1).expand(2, 3, 16, 16),
        torch.zeros(2),
    )
    steps = make(plain(1), black_and_white, Settings(images_per_round=256, batch=64))
    weak = torch.cat([step.weak for step in steps]).mean(dim=(1, 2, 3))
    strong = torch.cat([step.strong for step in steps]).mean(dim=(1, 2, 3))
    assert strong[weak > 0.5].mean() > strong[weak < 0.5].mean() + 0.2


# --- what they depend on


def test_a_round_is_the_same_however_often_it_is_gone_through() -> None:
    batches = stream(pictures(20), pictures(30, 1), Settings(images_per_round=32, batch=8))
    assert same(list(batches), list(batches))


def test_rounds_depend_on_the_seed_not_on_global_generators() -> None:
    settings = Settings(images_per_round=32, batch=8)
    rounds = []
    for state in (1, 2):
        torch.manual_seed(state)
        np.random.seed(state)
        chance = torch.get_rng_state()
        rounds.append(make(pictures(20), pictures(30, 1), settings, peer_nets()))
        assert torch.equal(torch.get_rng_state(), chance), "the global generator was used"
    assert same(*rounds)


@pytest.mark.parametrize(
    "seed",
    [
        (4, "site-1", 2),
        (3, "site-2", 2),
        (3, "site-1", 3),
        (3, "site-1", 2, 1),
        (3, "site-1", 2, "adaptation"),
    ],
)
def test_seed_site_round_part_and_phase_each_change_the_round(seed: tuple[int | str, ...]) -> None:
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
    short, long = (
        make(plain(200), plain(200), Settings(images_per_round=n, batch=16)) for n in (256, 512)
    )
    assert same(short, long[:16], "labelled", "labels", "weak", "strong")


@pytest.mark.parametrize(
    "settings", [Settings(images_per_round=32, batch=8), once(), once(images_at_most=13)]
)
def test_strong_views_are_made_on_demand_and_change_no_draw(settings: Settings) -> None:
    both = make(pictures(20), pictures(30, 1), settings, peer_nets())
    without = make(pictures(20), pictures(30, 1), settings, peer_nets(), uses=Uses())
    assert all(step.strong is not None for step in both)
    assert all(step.strong is None for step in without)
    assert same(both, without, "labelled", "labels", "weak", "peers")


def test_equal_streams_give_equal_passes() -> None:
    settings = once(images_at_most=21)
    one, other = (make(pictures(20), pictures(30, 1), settings, peer_nets()) for _ in range(2))
    assert same(one, other)


def test_views_are_those_of_the_recipe() -> None:
    """Labelled images, weak views and strong views have a generator each."""
    used: dict[str, list[torch.Generator]] = {"weak": [], "strong": []}

    def weak(images: Tensor, generator: torch.Generator) -> Tensor:
        used["weak"].append(generator)
        return 1 - images

    def strong(images: Tensor, generator: torch.Generator) -> Tensor:
        used["strong"].append(generator)
        return images / 2

    labelled = plain(20)
    unlabelled = pictures(30, 1)
    for step in make(labelled, unlabelled, once(), views=Views(weak, strong)):
        assert torch.equal(step.labelled, 1 - labelled.take(step.labels))
        torch.testing.assert_close(step.weak, 1 - 2 * step.strong)
    assert (len(used["weak"]), len(used["strong"])) == (2, 1)
    assert len({id(generator) for generators in used.values() for generator in generators}) == 3


def test_recipes_differ_and_rotation_invariant_is_the_default() -> None:
    settings = once()
    found = {
        name: make(pictures(20), pictures(30, 1), settings, views=recipe)
        for name, recipe in VIEWS.items()
    }
    assert same(make(pictures(20), pictures(30, 1), settings), found["rotation_invariant"])
    filtered = found.pop("filtered")
    assert same(filtered, found["rotation_invariant"], "strong"), "its weak view alone differs"
    assert not same(filtered, found["rotation_invariant"], "weak")
    assert not same(filtered, found["rotation_invariant"], "labelled")
    for one, other in pairwise([*found.values(), found["rotation_invariant"]]):
        assert not any(same(one, other, name) for name in ("labelled", "weak", "strong"))
        assert same(one, other, "labels")


def test_hidden_labels_cannot_matter() -> None:
    settings = Settings(images_per_round=32, batch=8)
    unlabelled = pictures(30, 1)
    for labels in (torch.full((30,), -1), torch.arange(30)):
        other = Pixels(unlabelled.pixels, labels)
        assert same(
            make(pictures(20), unlabelled, settings, peer_nets()),
            make(pictures(20), other, settings, peer_nets()),
        )


def test_the_sites_pixels_are_left_alone() -> None:
    labelled = pictures(20)
    unlabelled = pictures(30, 1)
    make(labelled, unlabelled, Settings(images_per_round=32, batch=8), peer_nets())
    for pixels, original in ((labelled, pictures(20)), (unlabelled, pictures(30, 1))):
        assert torch.equal(pixels.pixels, original.pixels)
        assert torch.equal(pixels.labels, original.labels)


# --- peers


def test_predictions_in_one_go_equal_those_of_every_step() -> None:
    """17 steps of 16 images in two goes have the numbers of one forward pass for each step."""
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
    nets = peer_nets()
    images = torch.rand(5, 3, 16, 16)
    found = predictions(nets, images)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.sum(dim=2), torch.ones(2, 5))
    torch.testing.assert_close(found[1], torch.softmax(nets[1](images), dim=1).detach())
    assert torch.equal(predictions(nets[::-1], images), found.flip(0))


def test_peers_answer_each_finding_by_itself() -> None:
    """In a multi-label job, whose unlabelled images have a row of labels each."""
    nets = peer_nets()
    findings = Pixels(pictures(16).pixels, torch.full((16, CLASSES), -1))
    (step,) = make(None, findings, Settings(images_per_round=16, batch=16), nets)
    with torch.no_grad():
        each = torch.stack([torch.sigmoid(net(step.weak)) for net in nets])
    torch.testing.assert_close(step.peers, each, rtol=0, atol=1e-6)


def test_without_peers_there_are_no_predictions() -> None:
    assert all(
        step.peers is None
        for step in make(pictures(20), pictures(30), Settings(images_per_round=32, batch=8))
    )


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
    assert all(
        step.weak is not None and step.strong is not None and step.peers is not None
        for step in steps
    )


@pytest.mark.parametrize(
    "settings", [Settings(images_per_round=32, batch=8), once(), once(images_at_most=5)]
)
def test_a_site_without_images_has_no_batch(settings: Settings) -> None:
    for parts in ((None, None), (plain(0), None), (None, plain(0)), (plain(0), plain(0))):
        batches = stream(*parts, settings, peer_nets())
        assert len(batches) == batches.images == 0
        assert list(batches) == []


@pytest.mark.parametrize("empty", [None, plain(0)])
def test_a_pass_of_a_site_with_one_kind_of_images(empty: Pixels | None) -> None:
    """What is absent is not repeated, and does not change the rest."""
    labelled = make(pictures(20), empty, once())
    hidden = make(empty, pictures(20), once(), peer_nets())
    assert len(labelled) == len(hidden) == 2
    assert all(step.weak is step.strong is step.peers is None for step in labelled)
    assert all(step.labelled is step.labels is None for step in hidden)
    both = make(pictures(20), pictures(20), once(), peer_nets())
    assert same(both, labelled, "labelled", "labels")
    assert same(both, hidden, "weak", "strong", "peers")

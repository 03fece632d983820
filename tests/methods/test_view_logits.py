"""One pass for all views of a batch gives what a pass for each view gives."""

import pytest
import torch
from torch import Tensor, nn

from fedward.methods.local import Batch
from fedward.methods.settings import Settings
from fedward.methods.view_logits import view_logits
from fedward.nets.build import build
from fedward.nets.trainable import Head, TrainablePart

VIEW = (5, 3, 28, 28)
CLASSES = 4


def network(name: str) -> nn.Module:
    """Return a network that says that it treats images alone."""
    if name == "head":
        part = build("small_cnn", CLASSES, trainable="head")
        assert isinstance(part, TrainablePart)
        return nn.Sequential(nn.Flatten(), nn.Linear(3 * 28 * 28, 256), Head(part))
    return build(name, CLASSES)


def batch() -> Batch:
    draw = torch.Generator().manual_seed(0)
    labelled, weak, strong = (torch.rand(VIEW, generator=draw) for _ in range(3))
    # One labelled image less, so that no split by equal parts would pass.
    return Batch(labelled[1:], torch.arange(4), weak, strong)


def gradients(net: nn.Module, logits: list[Tensor]) -> list[Tensor]:
    """Return the gradients of a loss in which each view's logits have a weight of their own."""
    loss = sum(weight * part.square().sum() for weight, part in enumerate(logits, start=1))
    return list(torch.autograd.grad(loss, list(net.parameters())))


@pytest.mark.parametrize("learns_from_weak", [False, True])
@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize("name", ["small_cnn", "small_cnn_gn", "head"])
def test_one_pass_gives_the_logits_and_gradients_of_three(
    name: str, labelled: bool, learns_from_weak: bool
) -> None:
    net = network(name).train()
    images = batch()
    if not labelled:
        images = Batch(weak=images.weak, strong=images.strong)
    results = {}
    for alone in (True, False):
        net.treats_images_alone = alone  # type: ignore[assignment]
        logits = view_logits(net, images, Settings(), learns_from_weak)
        assert (logits.labelled is not None) == labelled
        assert logits.weak is not None
        assert logits.weak.requires_grad == learns_from_weak
        with_gradient = [
            part
            for part in (logits.labelled, logits.strong, logits.weak)
            if part is not None and part.requires_grad
        ]
        results[alone] = [logits.weak, *with_gradient, *gradients(net, with_gradient)]
    for together, apart in zip(results[True], results[False], strict=True):
        torch.testing.assert_close(together, apart, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["small_cnn", "small_cnn_gn"])
def test_networks_that_say_so_treat_images_alone(name: str) -> None:
    net = build(name, CLASSES)
    assert net.treats_images_alone
    images = batch().strong
    assert images is not None
    together = net.train()(images)
    alone = torch.cat([net.eval()(image[None]) for image in images])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)


def test_a_head_says_so_only_if_it_is_linear() -> None:
    part = build("small_cnn", CLASSES, trainable="head")
    assert isinstance(part, TrainablePart)
    assert Head(part).treats_images_alone
    part.classifier = nn.Sequential(nn.Linear(256, 8), nn.BatchNorm1d(8), nn.Linear(8, CLASSES))
    assert not Head(part).treats_images_alone


def test_without_unlabelled_images_only_labelled_ones_are_looked_at() -> None:
    images = batch()
    logits = view_logits(
        network("small_cnn"), Batch(images.labelled, images.labels), Settings(), True
    )
    assert logits.labelled is not None
    assert (logits.strong, logits.weak) == (None, None)

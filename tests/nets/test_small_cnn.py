"""The small CNN against the layer sizes of its source."""

import subprocess
import sys

import pytest
import torch
from torch.nn import functional as F

from fedward.nets import SmallCNN, build


@pytest.mark.parametrize(
    ("classes", "channels", "expected"),
    [
        # conv (3*25+1)*6 + (6*25+1)*16, linear 257*120 + 121*84 + 85*84 + 85*256, classifier 257*8
        (8, 3, 456 + 2416 + 30840 + 10164 + 7140 + 21760 + 2056),
        (2, 1, 156 + 2416 + 30840 + 10164 + 7140 + 21760 + 514),
    ],
)
def test_number_of_parameters(classes: int, channels: int, expected: int) -> None:
    net = build("small_cnn", classes, channels)
    assert sum(parameter.numel() for parameter in net.parameters()) == expected
    assert not list(net.buffers())


def test_at_28_pixels_it_is_the_papers_network() -> None:
    """Written out with functions: no pooling besides the two 2x2 ones."""
    net = SmallCNN(8)
    weights = [parameter for _, parameter in net.named_parameters()]
    pairs = list(zip(weights[::2], weights[1::2], strict=True))
    images = torch.rand(2, 3, 28, 28, generator=torch.Generator().manual_seed(0))
    x = 2 * images - 1
    for weight, bias in pairs[:2]:
        x = F.max_pool2d(F.relu(F.conv2d(x, weight, bias)), 2)
    x = x.flatten(1)
    assert x.shape == (2, 256)
    for index, (weight, bias) in enumerate(pairs[2:]):
        x = F.linear(x, weight, bias)
        if index in (
            0,
            1,
            2,
        ):  # 120, 84 and the projection's first; its second and the classifier are linear
            x = F.relu(x)
    torch.testing.assert_close(net(images), x)


@pytest.mark.parametrize(("side", "channels"), [(16, 1), (28, 3), (64, 1)])
def test_other_sizes(side: int, channels: int) -> None:
    logits = build("small_cnn", 5, channels)(torch.rand(3, channels, side, side))
    assert logits.shape == (3, 5)
    assert bool(logits.isfinite().all())


def test_an_empty_batch() -> None:
    assert build("small_cnn", 5)(torch.rand(0, 3, 28, 28)).shape == (0, 5)


def test_timm_stays_out() -> None:
    code = (
        "import sys; from fedward.nets import build; build('small_cnn', 8);"
        "assert not {'timm', 'torchvision'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_network_of_the_synthetic_images_answers_by_maxima() -> None:
    """A small mark anywhere in the map counts in full, and copies of it do not count more."""
    net = build("small_cnn_gn", 8)
    maps = net.features[:4](
        2 * torch.rand(5, 3, 32, 32, generator=torch.Generator().manual_seed(0)) - 1
    )
    spot = torch.zeros_like(maps)
    spot[:, :, 1, 2] = maps.amax(dim=(2, 3))
    net.features = net.features[4:]
    answers = [
        net((picture + 1) / 2)
        for picture in (maps, spot, spot.flip(2), torch.cat([spot, spot], dim=3))
    ]
    for logits in answers[1:]:
        torch.testing.assert_close(logits, answers[0])


def test_it_has_the_parameters_of_four_blocks_and_a_classifier() -> None:
    net = build("small_cnn_gn", 8)
    expected = 27 * 16 + 144 * 32 + 288 * 64 + 576 * 128 + 2 * (16 + 32 + 64 + 128) + 129 * 8
    assert sum(parameter.numel() for parameter in net.parameters()) == expected
    assert net(torch.rand(0, 3, 16, 16)).shape == (0, 8)

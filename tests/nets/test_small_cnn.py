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
        if index in (0, 1, 2):  # 120, 84 and the projection's first; its second and the classifier are linear
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

"""Predictions of one model on one site's images."""

import pytest
import torch

from fedward.nets import build
from fedward.training.batches import FORWARD_BATCH, Pixels
from fedward.training.evaluation import predict
from tiny import batch_norm_net

CLASSES = 8


def pictures(count: int, size: int = 16) -> Pixels:
    pixels = torch.randint(
        256, (count, 3, size, size), generator=torch.Generator().manual_seed(0), dtype=torch.uint8
    )
    return Pixels(pixels, torch.zeros(count, dtype=torch.long))


@pytest.mark.parametrize("count", [1, FORWARD_BATCH["cpu"], FORWARD_BATCH["cpu"] + 1])
def test_predictions_are_softmax_in_evaluation_mode(count: int) -> None:
    """The last pass may be short, and neither weights nor BatchNorm's statistics change."""
    net = batch_norm_net(5, CLASSES).train()
    pixels = pictures(count)
    before = {key: value.clone() for key, value in net.state_dict().items()}
    probabilities = predict(net, pixels)
    assert probabilities.dtype == torch.float32
    assert not probabilities.requires_grad
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())
    with torch.no_grad():
        expected = torch.softmax(
            batch_norm_net(5, CLASSES).eval()(pixels.pixels.float() / 255), dim=1
        )
    torch.testing.assert_close(probabilities, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["small_cnn", "small_cnn_gn", "mobilevit_xxs"])
def test_predictions_of_no_images(name: str) -> None:
    """Attention reshapes by a size to be inferred, which no images do not tell."""
    net = build(name, CLASSES)
    before = {key: value.clone() for key, value in net.state_dict().items()}
    assert predict(net, pictures(0, size=32)).shape == (0, CLASSES)
    assert predict(net, pictures(0, size=32), view=lambda images: images.flip(-1)).shape == (
        0,
        CLASSES,
    )
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())

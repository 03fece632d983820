"""MONAI's classifiers by name, and networks that are none: both are told before round 1."""

import pytest
import torch
from torch import nn

from fedward.errors import ConfigError
from fedward.methods.local import logits_and_features
from fedward.nets import build, require_logits
from fedward.registry import NETWORKS
from starting import initial_model
from tiny import tiny


@pytest.mark.parametrize(("name", "channels"), [("monai:DenseNet121", 1), ("monai:SEResNet50", 3)])
def test_monais_classifiers_by_name(name, channels):
    net = build(name, 4, channels, seed=3)
    require_logits(net, name, 4, channels, 32)
    assert net.training
    logits, features = logits_and_features(net.eval(), torch.rand(2, channels, 32, 32))
    assert logits.shape == (2, 4)
    torch.testing.assert_close(net.classifier(features), logits)
    again = build(name, 4, channels, seed=3).state_dict()
    assert all(torch.equal(tensor, again[key]) for key, tensor in net.state_dict().items())


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("monai:DenseNet1000", "the name of a network's class"),
        ("monai:resnet18", "the name of a network's class"),  # a function
        ("monai:Activation", "the name of a network's class"),
        ("monai:__builtins__", "the name of a network's class"),
        ("monai:densenet", "the name of a network's class"),  # a module
        ("monai:ResNet", "needs no arguments but"),
        ("monai:BasicUNet", "a last linear layer with 4 outputs"),
    ],
)
def test_what_is_no_classifier_of_monai_is_refused(name, told):
    with pytest.raises(ConfigError, match=f"net {name}: .*{told}"):
        build(name, 4)


def test_monai_has_no_weights():
    with pytest.raises(ConfigError, match="pretrained = false"):
        build("monai:DenseNet121", 4, pretrained=True)


class Wrong(nn.Module):
    def __init__(self, classes: int, output) -> None:
        super().__init__()
        self.classifier = nn.Linear(1, classes)
        self._output = output

    def forward(self, images):
        return self._output(self.classifier(images.mean((1, 2, 3))[:, None]))


@pytest.mark.parametrize(
    ("output", "told"),
    [
        (lambda logits: (logits, None), "found a tuple"),
        (lambda logits: logits[:, :1], r"found \(2, 1\)"),
        (lambda logits: logits / 0, "found NaN or infinity"),
        (lambda logits: logits.view(7, 7), "RuntimeError"),
    ],
)
def test_a_network_without_logits_ends_before_round_1(monkeypatch, output, told):
    monkeypatch.setitem(
        NETWORKS.registered, "wrong", lambda classes, channels: Wrong(classes, output)
    )
    with pytest.raises(
        ConfigError,
        match=rf"net wrong: expected .*logits \(2, 8\) of images \(2, 3, 16, 16\).*{told}",
    ):
        initial_model(tiny("fedavg", net="wrong"))


def test_a_network_that_hides_its_classifier_is_refused(monkeypatch):
    monkeypatch.setitem(
        NETWORKS.registered, "bare", lambda classes, channels: nn.Linear(1, classes)
    )
    with pytest.raises(ConfigError, match="net bare has no attribute classifier"):
        initial_model(tiny("fedavg", net="bare"))

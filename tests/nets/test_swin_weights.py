"""timm's Swin-T in the encoder has the same features, or is clearly refused.

Random weights take the place of ImageNet's.
"""

from collections.abc import Callable
from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn

from fedward.errors import ConfigError
from fedward.methods.selffed.objectives import add_projection
from fedward.nets import build
from fedward.nets.swin_weights import TIMM

MEAN = torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1)
STD = torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1)
create_model = timm.create_model


@pytest.fixture(scope="module")
def theirs() -> nn.Module:
    """timm's network, whose biases and norms are random too, as a trained one's."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(7)
        net = create_model(TIMM, pretrained=False, num_classes=0).eval()
        for parameter in net.parameters():
            if parameter.dim() == 1:
                nn.init.normal_(parameter, std=0.3)
    return net


@pytest.fixture
def asked(theirs: nn.Module, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Puts that network in the place of a download; the list is what it was asked for."""
    requests: list[dict[str, Any]] = []

    def create(name: str, **options: Any) -> nn.Module:
        requests.append({"name": name, **options})
        torch.rand(3)
        return theirs

    monkeypatch.setattr("timm.create_model", create)
    return requests


def pictures(channels: int) -> Tensor:
    return torch.rand(1, channels, 224, 224, generator=torch.Generator().manual_seed(1))


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "channels"), [("swin_224", 3), ("swin_224", 1), ("masked_swin_224", 3)]
)
def test_features_are_timms(
    asked: list[dict[str, Any]], theirs: nn.Module, name: str, channels: int
) -> None:
    net = build(name, 5, channels, pretrained=True).eval()
    images = pictures(channels)
    expected = theirs.forward_features((images.expand(-1, 3, -1, -1) - MEAN) / STD).permute(
        0, 3, 1, 2
    )
    torch.testing.assert_close(net.encoder(images), expected, rtol=1e-5, atol=1e-5)
    assert asked == [{"name": TIMM, "pretrained": True, "num_classes": 0, "in_chans": 3}]


def test_all_but_the_encoder_is_as_without_them(asked: list[dict[str, Any]]) -> None:
    plain, net = (
        build(
            "masked_swin_224", 5, seed=3, pretrained=pretrained, extend=add_projection
        ).state_dict()
        for pretrained in (False, True)
    )
    assert list(plain) == list(net)
    same = {name for name in net if torch.equal(net[name], plain[name])}
    assert same == {name for name in net if not name.startswith("encoder.")}


def _dropped(net: nn.Module) -> nn.Module:
    del net.norm
    return net


def _wider(net: nn.Module) -> nn.Module:
    net.further = nn.Linear(2, 2)
    return net


@pytest.mark.parametrize(
    ("change", "named"), [(_dropped, "norm.weight"), (_wider, "further.weight")]
)
def test_another_set_of_tensors_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[nn.Module], nn.Module], named: str
) -> None:
    monkeypatch.setattr(
        "timm.create_model", lambda name, **_: change(create_model(TIMM, num_classes=0))
    )
    with pytest.raises(ConfigError, match=rf"net swin_224.*{named}"):
        build("swin_224", 5, pretrained=True)


def test_without_weights_at_hand_it_is_a_config_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(name: str, **options: Any) -> nn.Module:
        raise OSError("no connection")

    monkeypatch.setattr("timm.create_model", offline)
    with pytest.raises(
        ConfigError, match=rf"net swin_224.*no connection.*weights of {TIMM} into timm's cache"
    ):
        build("swin_224", 5, pretrained=True)


@pytest.mark.parametrize("name", ["small_cnn", "swin_28", "masked_swin_64"])
def test_networks_without_weights_name_those_that_have_some(name: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"net {name}.*swin_224, masked_swin_224 and tf_efficientnet_lite0"
    ):
        build(name, 5, pretrained=True)

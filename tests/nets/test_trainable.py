"""Parts of networks that train, and bases that do not move."""

import copy
from collections.abc import Callable

import pytest
import timm
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedward.errors import ConfigError
from fedward.methods.auxiliary import add_heads, heads_of
from fedward.methods.local import logits_and_features
from fedward.nets import build
from fedward.nets.adapters import RANK, AdaptedLinear
from fedward.nets.trainable import Head, TrainablePart, trainable_part

LITE0 = "tf_efficientnet_lite0"
VIT = "vit_tiny_patch16_224"


def part(name: str, trainable: str, **options: object) -> TrainablePart:
    net = build(name, 5, seed=3, trainable=trainable, **options)  # type: ignore[arg-type]
    assert isinstance(net, TrainablePart)
    return net


def base_of(net: TrainablePart) -> dict[str, Tensor]:
    trained = net.state_dict()
    return {
        name: tensor.clone()
        for name, tensor in net.whole.state_dict().items()
        if name not in trained
    }


def step(
    net: nn.Module, images: Tensor, make: Callable[..., torch.optim.Optimizer] = torch.optim.Adam
) -> None:
    optimizer = make(net.parameters(), lr=0.1, weight_decay=0.1)
    F.cross_entropy(net(images), torch.arange(len(images)) % 5).backward()
    optimizer.step()


@pytest.mark.parametrize(
    ("name", "trainable", "expected"),
    [
        ("small_cnn", "head", {"classifier"}),
        ("small_cnn", "last:1", {"classifier", "projection.2"}),
        ("small_cnn", "last:3", {"classifier", "projection", "features.10"}),
        ("small_cnn_gn", "last:2", {"classifier", "features.2", "features.3"}),
        (LITE0, "head", {"net.classifier"}),
        (LITE0, "last:1", {"net.classifier", "net.blocks.6", "net.conv_head", "net.bn2"}),
        (
            LITE0,
            "last:2",
            {"net.classifier", "net.blocks.5.3", "net.blocks.6", "net.conv_head", "net.bn2"},
        ),
        ("resnet18", "last:1", {"net.fc", "net.layer4.1"}),
        (VIT, "last:1", {"net.head", "net.norm", "net.blocks.11"}),
        ("swin_28", "last:1", {"classifier", "encoder.norm", "encoder.layers.1.blocks.3"}),
        (
            "swin_28",
            "last:5",
            {"classifier", "encoder.norm", "encoder.layers.1", "encoder.layers.0.blocks.1"},
        ),
        ("masked_swin_28", "last:1", {"classifier", "encoder.norm", "encoder.layers.1.blocks.3"}),
        ("monai:DenseNet121", "head", {"net.class_layers.out"}),
    ],
)
def test_names_say_what_trains(name: str, trainable: str, expected: set[str]) -> None:
    net = part(name, trainable)
    assert set(net.paths) == expected
    names = set(net.state_dict())
    assert names == {
        name_
        for name_ in net.whole.state_dict()
        if any(name_.startswith(f"{path}.") for path in expected)
    }
    assert {name for name, _ in net.named_parameters()} <= names


@pytest.mark.parametrize("trainable", ["head", "last:1", "last:3"])
def test_all_else_is_bit_equal_after_training(trainable: str) -> None:
    net = part(LITE0, trainable)
    before = base_of(net)
    digest = net.base
    trained = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    for _ in range(2):
        step(net.train(), torch.rand(4, 3, 32, 32))
    after = base_of(net)
    assert list(before) == list(after)
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert net.base == digest
    assert all(not torch.equal(tensor, trained[name]) for name, tensor in net.state_dict().items())
    assert not any(
        parameter.grad is not None
        for parameter in net.whole.parameters()
        if not parameter.requires_grad
    )


def test_a_base_is_in_evaluation_mode_whatever_is_said() -> None:
    net = part(LITE0, "last:1").train()
    modes = {name: module.training for name, module in net.whole.named_modules()}
    assert {name for name, training in modes.items() if training} == {
        name
        for name in modes
        if name.startswith(("net.classifier", "net.blocks.6", "net.conv_head", "net.bn2"))
    }
    net.eval()
    assert not any(module.training for module in net.whole.modules())


def test_no_graph_reaches_into_a_base() -> None:
    """What a frozen prefix computes needs no gradient, so that none of it is kept."""
    net = part("small_cnn_gn", "last:1")
    seen = dict[int, bool]()
    for number in range(4):
        net.whole.features[number].register_forward_hook(
            lambda module, inputs, output, number=number: seen.update(
                {number: output.requires_grad}
            )
        )
    net(torch.rand(2, 3, 16, 16))
    assert seen == {0: False, 1: False, 2: False, 3: True}


def test_a_part_answers_and_learns_as_its_network() -> None:
    """Identity: one step equals that of the network in which all else is fixed by hand."""
    images = torch.rand(4, 3, 16, 16)
    net = part("small_cnn_gn", "head")
    plain = build("small_cnn_gn", 5, seed=3)
    assert torch.equal(net(images), plain(images))
    for name, parameter in plain.named_parameters():
        parameter.requires_grad_(name.startswith("classifier"))
    step(net, images, torch.optim.SGD)
    optimizer = torch.optim.SGD(plain.classifier.parameters(), lr=0.1, weight_decay=0.1)  # type: ignore[union-attr]
    F.cross_entropy(plain(images), torch.arange(4) % 5).backward()
    optimizer.step()
    assert all(
        torch.equal(tensor, plain.state_dict()[name]) for name, tensor in net.state_dict().items()
    )


def test_a_copy_is_whole_and_its_own() -> None:
    net = part("small_cnn_gn", "last:1").eval()
    images = torch.rand(2, 3, 16, 16)
    other = copy.deepcopy(net)
    assert torch.equal(net(images), other(images))
    step(other.train(), images)
    assert not torch.equal(net(images), other.eval()(images))
    assert other.base == net.base


def test_equal_seeds_give_equal_bases_and_others_do_not() -> None:
    base = part("small_cnn", "head").base
    assert base == part("small_cnn", "head").base
    other = build("small_cnn", 5, seed=4, trainable="head")
    assert isinstance(other, TrainablePart)
    assert base != other.base
    net = part("small_cnn", "head")
    with torch.no_grad():
        net.classifier.weight.add_(1)
        assert net.base == base, "what trains is no part of it"
        net.whole.features[0].bias[0] += 1e-7
    assert net.base != base


def test_statistics_of_batch_norm_belong_to_a_base() -> None:
    net = part(LITE0, "head")
    base = net.base
    net.whole.net.bn1.running_mean += 1
    assert net.base != base


def test_weights_do_not_depend_on_what_trains() -> None:
    whole = build(VIT, 5, seed=3).state_dict()
    for trainable in ("head", "last:2", "adapters"):
        weights = part(VIT, trainable).whole.state_dict()
        assert all(torch.equal(weights[name], whole[name]) for name in whole)


def test_a_head_shares_its_tensors_with_the_part() -> None:
    net = part("small_cnn", "head")
    images = torch.rand(3, 3, 16, 16)
    head = Head(net)
    assert list(head.state_dict()) == list(net.state_dict())
    logits, features = logits_and_features(net, images)
    assert torch.equal(head(features), logits)
    step(head, features.detach())
    assert torch.equal(head(features), net(images))
    assert not torch.equal(net(images), logits)
    twice, received = logits_and_features(head, features)
    assert torch.equal(received, features)
    assert torch.equal(twice, head(features))


def test_what_a_method_adds_trains_too() -> None:
    net = part("small_cnn", "head", extend=add_heads)
    assert set(net.paths) == {"classifier", "auxiliary"}
    assert heads_of(net) is heads_of(net.whole)
    assert heads_of(Head(net)) is heads_of(net.whole)


# --- adapters


def test_an_adapted_layer_by_hand() -> None:
    layer = nn.Linear(2, 1)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 2.0]]))
        layer.bias.fill_(0.5)
    adapted = AdaptedLinear(layer)
    assert (adapted.down.shape, adapted.up.weight.shape) == ((1, 2), (1, 1)), (
        "no rank above a layer's own"
    )
    x = torch.tensor([[3.0, -1.0]])
    assert adapted(x).item() == pytest.approx(3 - 2 + 0.5), "B begins at zero"
    adapted.down.copy_(torch.tensor([[0.5, 0.25]]))
    with torch.no_grad():
        adapted.up.weight.fill_(4)
    assert adapted(x).item() == pytest.approx(1.5 + 4 * (1.5 - 0.25))


class _ReadsItsWeight(nn.Module):
    """As the attention of timm's BEiT, EVA and Swin v2: the layer itself is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(4, 6)
        self.classifier = nn.Linear(6, 2)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.classifier(
            F.linear(images.flatten(1), self.qkv.weight, self.qkv.bias)
        )
        return logits


def test_a_layer_whose_weight_is_read_is_adapted_too() -> None:
    net = _ReadsItsWeight()
    images = torch.rand(3, 1, 2, 2)
    before = net(images)
    adapted = trainable_part(net, "reader", "adapters", [])
    assert list(adapted.state_dict()) == ["qkv.up.weight", "classifier.weight", "classifier.bias"]
    assert torch.equal(adapted(images), before)
    adapted(images).sum().backward()
    up = adapted.get_parameter("qkv.up.weight")
    assert up.grad is not None
    assert bool(up.grad.any())
    with torch.no_grad():
        up.fill_(0.5)
        changed = net.qkv(images.flatten(1))
    torch.testing.assert_close(adapted(images), net.classifier(changed))
    assert not torch.allclose(adapted(images), before)


@pytest.mark.parametrize(("name", "layers"), [(VIT, 48), ("swin_28", 25), ("small_cnn", 4)])
def test_linear_layers_are_adapted_and_nothing_changes_at_first(name: str, layers: int) -> None:
    images = None
    size = {VIT: 224, "swin_28": 28}.get(name, 16)
    images = torch.rand(1, 3, size, size)
    net = part(name, "adapters")
    assert torch.equal(net.eval()(images), build(name, 5, seed=3).eval()(images))
    state = net.state_dict()
    assert sum(key.endswith(".up.weight") for key in state) == layers
    assert all(key.endswith(".up.weight") or "classifier" in key or "head" in key for key in state)
    step(net.train(), images)
    assert all(tensor.any() for tensor in net.state_dict().values()), "each has a gradient"


def test_the_mean_of_changes_is_the_change_by_the_mean() -> None:
    """mean(B_i) A = mean(B_i A): averaging what travels is averaging what the layers do."""
    torch.manual_seed(5)
    first = part("swin_28", "adapters").eval()
    images = torch.rand(2, 3, 28, 28)
    second = copy.deepcopy(first)
    layer, other = (net.whole.encoder.layers[0].blocks[0].mlp.fc1 for net in (first, second))
    assert torch.equal(layer.down, other.down)
    assert layer.down.shape[0] == RANK
    for net in (first, second):
        with torch.no_grad():
            for tensor in net.state_dict().values():
                tensor.add_(torch.randn_like(tensor))
    changes = [adapted.up.weight @ adapted.down for adapted in (layer, other)]
    mean = {
        name: (tensor + second.state_dict()[name]) / 2
        for name, tensor in first.state_dict().items()
    }
    first.load_state_dict(mean)
    torch.testing.assert_close(layer.up.weight @ layer.down, sum(changes) / 2)
    assert first(images).isfinite().all()


def test_products_of_trained_pairs_would_not_average() -> None:
    """Why A is frozen: with both trained, the product of the means is another matrix."""
    torch.manual_seed(5)
    ups = torch.randn(2, 4, 2)
    downs = torch.randn(2, 2, 4)
    product = ups.mean(dim=0) @ downs.mean(dim=0)
    mean = (ups @ downs).mean(dim=0)
    assert not torch.allclose(product, mean, atol=0.1)


# --- errors


@pytest.mark.parametrize(
    ("name", "trainable", "match"),
    [
        ("small_cnn_gn", "adapters", "linear layers before the classifier"),
        (LITE0, "adapters", "linear layers before the classifier"),
        ("small_cnn_gn", "last:4", "at most 3, of 4 blocks, found 4"),
        (LITE0, "last:99", "at most 16, of 17 blocks"),
        ("monai:DenseNet121", "last:1", "group_matcher"),
    ],
)
def test_networks_without_such_a_part_are_refused(name: str, trainable: str, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        part(name, trainable)


class Loose(nn.Module):
    """Its block has a scale that is no module."""

    def __init__(self, classes: int, channels: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, 4, 3)
        self.body = nn.Conv2d(4, 4, 3)
        self.scale = nn.Parameter(torch.ones(1))
        self.classifier = nn.Linear(4, classes)

    def group_matcher(self, coarse: bool = False) -> dict[str, str]:
        return {"stem": "^stem", "body": "^body|^scale"}

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.scale * self.body(self.stem(images)).mean(dim=(2, 3)))
        return logits


def test_a_block_with_loose_tensors_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedward.registry import NETWORKS

    monkeypatch.setitem(NETWORKS.registered, "loose", Loose)
    with pytest.raises(ConfigError, match="tensors beside them: scale"):
        part("loose", "last:1")
    assert set(part("loose", "head").paths) == {"classifier"}


def test_timm_groups_layers_as_expected() -> None:
    """The groups of our Swin are those of timm's, by the same rule."""
    swin = timm.create_model("swin_tiny_patch4_window7_224", num_classes=5)
    theirs = timm.models.group_parameters(swin, swin.group_matcher(coarse=False))
    ours = build("swin_224", 5)
    groups = timm.models.group_parameters(ours, ours.group_matcher())  # type: ignore[operator]
    assert [len(groups[number]) for number in groups] == [len(theirs[number]) for number in theirs]

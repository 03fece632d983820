"""The weights' gradient of depthwise convolutions: torch's own numbers, for every geometry."""

import copy

import pytest
import timm
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional as F

from fedward.nets import build
from fedward.nets.depthwise import DepthwiseConv2d, quicken, weight_gradient
from fedward.seeds import torch_generator

pairs = st.tuples(*[st.integers(1, 3)] * 2)


def depthwise(channels: int, kernel: int = 5, **options: object) -> nn.Conv2d:
    """Return one as it is after quickening."""
    conv = nn.Conv2d(channels, channels, kernel, groups=channels, **options)  # type: ignore[arg-type]
    quicken(conv)
    return conv


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch_generator(1, *shape), dtype=torch.float64)


def gradients(conv: nn.Module, maps: Tensor) -> list[Tensor]:
    leaf = maps.clone().requires_grad_()
    output = conv(leaf)
    return list(torch.autograd.grad(output.square().sum(), [leaf, *conv.parameters()]))


def test_one_weight_by_hand() -> None:
    """A kernel of 3 over a row 1 2: the output 1 2 is met by 0 1, 1 2 and 2 0."""
    maps = torch.tensor([[[[1.0, 2.0]]]])
    gradient = torch.tensor([[[[10.0, 100.0]]]])
    found = weight_gradient(maps, gradient, (1, 3), (1, 1), (0, 1), (1, 1))
    assert found.tolist() == [[[[100.0, 210.0, 20.0]]]]


@settings(max_examples=200, deadline=None)
@given(
    st.tuples(st.integers(1, 7), st.integers(1, 7)),
    st.tuples(st.integers(1, 5), st.integers(1, 5)),
    pairs,
    st.tuples(st.integers(0, 4), st.integers(0, 4)),
    pairs,
    st.integers(1, 3),
)
def test_it_is_torchs_for_every_geometry(
    side: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
    channels: int,
) -> None:
    assume(
        all(
            s + 2 * p > d * (k - 1)
            for s, k, p, d in zip(side, kernel, padding, dilation, strict=True)
        )
    )
    maps = random(2, channels, *side)
    weight = random(channels, 1, *kernel).requires_grad_()
    output = F.conv2d(maps, weight, None, stride, padding, dilation, channels)
    gradient = random(*output.shape)
    (expected,) = torch.autograd.grad(output, weight, gradient)
    torch.testing.assert_close(
        weight_gradient(maps, gradient, kernel, stride, padding, dilation), expected
    )


@pytest.mark.parametrize(
    "options", [{"padding": 2}, {"padding": 2, "stride": 2, "bias": False}, {"dilation": 2}]
)
def test_all_gradients_pass_gradcheck(
    options: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedward.nets.depthwise._FEWEST_PLANES", 1)
    conv = depthwise(2, 3 if "dilation" in options else 5, **options).double()
    size = 5 if "dilation" in options else 2
    maps = random(2, 2, size, size).to(memory_format=torch.channels_last).requires_grad_()
    assert "ShiftedProducts" in conv(maps).grad_fn.name()

    def output(maps: Tensor, *parameters: Tensor) -> Tensor:
        names = dict(zip(dict(conv.named_parameters()), parameters, strict=True))
        return torch.func.functional_call(conv, names, (maps,))

    assert gradcheck(output, (maps, *conv.parameters()))
    assert gradgradcheck(output, (maps, *conv.parameters()))


@pytest.mark.parametrize(("size", "taken"), [(1, True), (4, True), (5, False), (8, False)])
def test_only_maps_smaller_than_the_kernel_take_it(size: int, taken: bool) -> None:
    conv = depthwise(512, padding=2)
    maps = torch.randn(2, 512, size, size).to(memory_format=torch.channels_last)
    assert ("ShiftedProducts" in conv(maps).grad_fn.name()) is taken
    plain = copy.deepcopy(conv)
    plain.__class__ = nn.Conv2d
    assert torch.equal(conv(maps), plain(maps))
    for ours, theirs in zip(gradients(conv, maps), gradients(plain, maps), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-4)


def test_where_it_would_not_help_torch_computes() -> None:
    conv = depthwise(512, padding=2)
    maps = torch.randn(2, 512, 2, 2).to(memory_format=torch.channels_last)
    others = [
        depthwise(512, padding="same"),
        depthwise(512, kernel=3, padding=1, padding_mode="reflect"),
    ]
    outputs = [
        conv(maps),
        conv(maps[:1]),
        conv(maps.contiguous()),
        *(other(maps) for other in others),
    ]
    assert ["ShiftedProducts" in output.grad_fn.name() for output in outputs] == [
        True,
        *[False] * 4,
    ]
    with torch.autocast("cpu", torch.bfloat16):
        assert "ShiftedProducts" not in conv(maps).grad_fn.name()
    with torch.no_grad():
        assert conv(maps).grad_fn is None


def test_only_plain_depthwise_convolutions_are_changed() -> None:
    class Own(nn.Conv2d):
        """Of another package, which may compute otherwise."""

    layers = [
        nn.Conv2d(8, 8, 3),
        nn.Conv2d(8, 8, 3, groups=4),
        nn.Conv2d(8, 16, 3, groups=8),
        Own(8, 8, 3, groups=8),
    ]
    quicken(nn.Sequential(*layers))
    assert [type(layer) for layer in layers] == [nn.Conv2d, nn.Conv2d, nn.Conv2d, Own]
    assert type(depthwise(8)) is DepthwiseConv2d


def test_a_network_keeps_its_names_outputs_and_gradients() -> None:
    torch.manual_seed(0)
    plain = timm.create_model("tf_efficientnet_lite0", num_classes=8)
    torch.nn.init.normal_(plain.get_classifier().weight)
    quick = copy.deepcopy(plain)
    quicken(quick)
    images = torch.rand(16, 3, 48, 48)
    for net in (plain, quick):
        net.eval().to(memory_format=torch.channels_last)
    assert list(plain.state_dict()) == list(quick.state_dict())
    assert torch.equal(plain(images), quick(images))
    taken = {layer for layer in quick.modules() if isinstance(layer, DepthwiseConv2d)}
    assert len(taken) > 10
    for ours, theirs in zip(gradients(quick, images), gradients(plain, images), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5 * float(theirs.abs().max()))


def test_networks_are_built_with_it() -> None:
    kinds = {type(layer) for layer in build("tf_efficientnet_lite0", 8).modules()}
    assert DepthwiseConv2d in kinds

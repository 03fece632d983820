"""The masked Swin: its sizes, what is hidden, and that both of its tasks can be learned."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedward.errors import ConfigError
from fedward.nets.masked_swin import PRESETS, MaskedSwin, Preset, SwinClassifier, SwinEncoder

SMALL = ["swin_28", "swin_32", "swin_32_patch4", "swin_64"]
small = pytest.mark.parametrize("name", SMALL)
channels_too = pytest.mark.parametrize("channels", [1, 3])


def make(name: str, channels: int = 3, seed: int = 0) -> MaskedSwin:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return MaskedSwin(PRESETS[name], 5, channels)


def pictures(preset: Preset, images: int, channels: int = 3, seed: int = 0) -> Tensor:
    return torch.rand(
        images, channels, preset.image, preset.image, generator=torch.Generator().manual_seed(seed)
    )


def half_hidden(preset: Preset, images: int, seed: int = 1) -> Tensor:
    return (
        torch.rand(images, preset.grid, preset.grid, generator=torch.Generator().manual_seed(seed))
        < 0.5
    )


def pixels_of(mask: Tensor, preset: Preset) -> Tensor:
    """Return (N, 1, image, image), True where a pixel is hidden."""
    return F.interpolate(mask[:, None].float(), scale_factor=preset.unit).bool()


# --- sizes


@small
@channels_too
def test_shapes(name: str, channels: int) -> None:
    preset = PRESETS[name]
    net = make(name, channels)
    images = pictures(preset, 2, channels)
    side = preset.image // preset.stride
    assert net.training
    assert net(images).shape == (2, 5)
    assert net.encoder(images).shape == (2, preset.features, side, side)
    assert net.encoder.embed(images).shape == (
        2,
        preset.image // preset.patch,
        preset.image // preset.patch,
        32,
    )
    assert net.reconstruct(images, half_hidden(preset, 2)).shape == images.shape


@pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)
def test_everything_divides(preset: Preset) -> None:
    """No window, no patch and no unit is padded or cut; a unit is hidden from whole patches."""
    assert (
        preset.image % preset.unit
        == preset.unit % preset.patch
        == preset.image % preset.stride
        == 0
    )
    assert len(preset.depths) == len(preset.heads)
    for stage, heads in enumerate(preset.heads):
        tokens = preset.image // preset.patch // 2**stage
        width = preset.width * 2**stage
        assert tokens % preset.window == 0
        assert width % heads == 0
    assert preset.unit <= preset.stride
    assert 49 <= preset.grid**2 <= 196


def plain_size(preset: Preset, channels: int) -> int:
    """Parameters of a Swin encoder, from the paper's layers.

    A block of width d: two norms 4d; query, key, value 3d² + 3d; output d² + d; MLP 8d² + 5d;
    position biases. Between
    stages: norm of 4d and a map 4d to 2d without bias. A patch: p² c d + d, and its norm.
    """
    width = preset.width
    total = preset.patch**2 * channels * width + 3 * width
    for stage, (depth, heads) in enumerate(zip(preset.depths, preset.heads, strict=True)):
        if stage:
            total += 8 * width + 8 * width**2
            width *= 2
        total += depth * (12 * width**2 + 13 * width + (2 * preset.window - 1) ** 2 * heads)
    return total + 2 * width


@pytest.mark.parametrize(
    ("name", "channels", "encoder", "decoder"),
    [
        ("swin_28", 1, 237_524, 1_040),
        ("swin_28", 3, 237_780, 3_120),
        ("swin_32", 1, 565_500, 8_256),
        ("swin_32", 3, 565_756, 24_768),
        ("swin_32_patch4", 3, 236_532, 12_480),
        ("swin_64", 1, 565_884, 33_024),
        ("swin_64", 3, 566_908, 99_072),
        (
            "swin_224",
            3,
            27_519_354,
            2_362_368,
        ),  # Swin-T of 28,288,354 without its classifier of 769,000
    ],
)
def test_number_of_parameters(name: str, channels: int, encoder: int, decoder: int) -> None:
    preset = PRESETS[name]
    with torch.device("meta"):
        net = MaskedSwin(preset, 8, channels)

    def count(module: nn.Module) -> int:
        return sum(parameter.numel() for parameter in module.parameters())

    assert count(net.encoder) == plain_size(preset, channels) == encoder
    assert count(net.decoder) == decoder
    assert count(net) == encoder + decoder + preset.width + (preset.features + 1) * 8


def test_only_weights_are_in_the_state() -> None:
    """Attention masks and indices of positions come from the preset and must not be averaged."""
    net = make("swin_32")
    assert set(net.state_dict()) == {name for name, _ in net.named_parameters()}
    assert {name.split(".")[0] for name in net.state_dict()} == {
        "encoder",
        "classifier",
        "mask_token",
        "decoder",
    }


def test_an_empty_batch() -> None:
    """Gradients are 0 and not absent, as a process may have no image of a shared batch."""
    net = make("swin_32")
    preset = PRESETS["swin_32"]
    assert net.reconstruct(pictures(preset, 0), half_hidden(preset, 0)).shape == (0, 3, 32, 32)
    logits = net(pictures(preset, 0))
    assert logits.shape == (0, 5)
    logits.sum().backward()
    for parameter in (*net.encoder.parameters(), *net.classifier.parameters()):
        assert parameter.grad is not None
        assert parameter.grad.eq(0).all()


def test_without_hidden_units_it_is_encoder_and_decoder() -> None:
    net = make("swin_28")
    preset = PRESETS["swin_28"]
    images = pictures(preset, 2)
    nothing = torch.zeros(2, preset.grid, preset.grid, dtype=torch.bool)
    assert torch.equal(net.reconstruct(images, nothing), net.decoder(net.encoder(images)))
    assert torch.equal(net(images), net.classifier(net.encoder(images).mean(dim=(2, 3))))


def test_the_encoder_is_timms() -> None:
    """With timm's own forward pass, on images moved to [-1, 1]."""
    from timm.models.swin_transformer import SwinTransformer

    preset = PRESETS["swin_32"]
    net = make("swin_32")
    swin = SwinTransformer(
        img_size=32,
        patch_size=2,
        embed_dim=32,
        depths=(2, 2, 2),
        num_heads=(2, 4, 8),
        window_size=4,
        num_classes=0,
    ).eval()
    swin.load_state_dict(net.encoder.state_dict())
    images = pictures(preset, 2)
    torch.testing.assert_close(
        net.encoder(images).permute(0, 2, 3, 1), swin.forward_features(2 * images - 1)
    )


# --- hiding


@small
@channels_too
def test_hidden_pixels_change_nothing(name: str, channels: int) -> None:
    preset = PRESETS[name]
    net = make(name, channels).eval()
    images = pictures(preset, 3, channels)
    mask = half_hidden(preset, 3)
    pixels = pixels_of(mask, preset)
    other = torch.where(pixels, pictures(preset, 3, channels, seed=9), images)
    assert not torch.equal(other, images)
    with torch.no_grad():
        predicted = net.reconstruct(images, mask)
        assert torch.equal(net.reconstruct(other, mask), predicted)
        seen = torch.where(pixels, images, pictures(preset, 3, channels, seed=9))
        assert not torch.allclose(net.reconstruct(seen, mask), predicted, atol=1e-4)


@small
def test_hidden_pixels_have_no_gradient_and_all_others_have_one(name: str) -> None:
    preset = PRESETS[name]
    net = make(name)
    images = pictures(preset, 2).requires_grad_()
    mask = half_hidden(preset, 2)
    net.reconstruct(images, mask).square().sum().backward()
    assert images.grad is not None
    hidden = pixels_of(mask, preset).expand_as(images)
    assert images.grad[hidden].eq(0).all()
    assert images.grad[~hidden].ne(0).all()
    assert net.mask_token.grad is not None
    assert net.mask_token.grad.ne(0).any()


def test_a_mask_is_of_its_own_image() -> None:
    preset = PRESETS["swin_28"]
    net = make("swin_28").eval()
    images = pictures(preset, 2)
    mask = half_hidden(preset, 2)
    with torch.no_grad():
        together = net.reconstruct(images, mask)
        alone = torch.cat([net.reconstruct(images[[n]], mask[[n]]) for n in range(2)])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)


def test_a_unit_is_hidden_where_the_mask_says() -> None:
    """Rows of a mask run down, columns to the right: one unit has pixels without gradient."""
    preset = PRESETS["swin_32"]
    net = make("swin_32")
    images = pictures(preset, 1).requires_grad_()
    mask = torch.zeros(1, 8, 8, dtype=torch.bool)
    mask[0, 1, 6] = True
    net.reconstruct(images, mask).square().sum().backward()
    assert images.grad is not None
    without = images.grad[0].eq(0).all(dim=0).nonzero()
    assert without.tolist() == [[row, column] for row in range(4, 8) for column in range(24, 28)]


# --- what carries over


@small
def test_the_classifier_has_the_same_names_and_first_weights(name: str) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(3)
        classifier = SwinClassifier(PRESETS[name], 5)
    state = make(name, seed=3).state_dict()
    further = {"mask_token", "decoder.0.weight", "decoder.0.bias"}
    assert set(state) == set(classifier.state_dict()) | further
    assert all(torch.equal(state[key], value) for key, value in classifier.state_dict().items())
    assert not torch.equal(make(name, seed=4).mask_token, state["mask_token"])


def test_a_pretrained_encoder_starts_a_classifier() -> None:
    preset = PRESETS["swin_28"]
    net = make("swin_28", seed=1)
    images = pictures(preset, 2)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    before = {key: value.clone() for key, value in net.state_dict().items()}
    net.reconstruct(images, half_hidden(preset, 2)).square().mean().backward()
    optimizer.step()
    changed = {
        key for key, value in net.state_dict().items() if not torch.equal(value, before[key])
    }
    assert changed == {key for key in before if not key.startswith("classifier.")}
    classifier = SwinClassifier(preset, 9)
    encoder = {key: value for key, value in net.state_dict().items() if key.startswith("encoder.")}
    missing, unexpected = classifier.load_state_dict(encoder, strict=False)
    assert set(missing) == {"classifier.weight", "classifier.bias"}
    assert not unexpected
    assert torch.equal(classifier.encoder(images), net.encoder(images))


def test_logits_train_neither_token_nor_decoder() -> None:
    net = make("swin_28")
    net(pictures(PRESETS["swin_28"], 2)).square().sum().backward()
    without = {name for name, parameter in net.named_parameters() if parameter.grad is None}
    assert without == {"mask_token", "decoder.0.weight", "decoder.0.bias"}


# --- training


def stripes(preset: Preset, images: int) -> tuple[Tensor, Tensor]:
    """Return images that get darker to the right or to the bottom, and which of the two it is."""
    draw = torch.Generator().manual_seed(2)
    colours = torch.rand(images, 3, 1, 1, generator=draw)
    ramp = torch.linspace(1, 0.5, preset.image)
    labels = torch.arange(images) % 2
    shades = torch.where(
        labels.view(-1, 1, 1, 1) > 0, ramp.view(1, 1, 1, -1), ramp.view(1, 1, -1, 1)
    )
    return colours * shades, labels


@small
def test_twenty_steps_halve_the_error_on_what_is_hidden(name: str) -> None:
    preset = PRESETS[name]
    net = make(name)
    images = stripes(preset, 4)[0]
    mask = half_hidden(preset, 4)
    hidden = pixels_of(mask, preset).expand_as(images)
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
    losses = []
    for _ in range(21):
        loss = (net.reconstruct(images, mask) - images)[hidden].square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[20] < losses[0] / 2


def test_twenty_steps_halve_the_error_of_the_labels() -> None:
    preset = PRESETS["swin_28"]
    net = make("swin_28")
    images, labels = stripes(preset, 8)
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
    losses = []
    for _ in range(21):
        loss = F.cross_entropy(net(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[20] < losses[0] / 2


def test_equal_steps_give_equal_weights() -> None:
    states = []
    for _ in range(2):
        net = make("swin_32")
        preset = PRESETS["swin_32"]
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
        for step in range(2):
            net.reconstruct(
                pictures(preset, 4, seed=step), half_hidden(preset, 4, seed=step)
            ).square().mean().backward()
            optimizer.step()
        states.append(net.state_dict())
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])


@small
def test_bfloat16_is_close_to_float32(name: str) -> None:
    preset = PRESETS[name]
    net = make(name)
    images = pictures(preset, 2)
    mask = half_hidden(preset, 2)
    pixels = net.reconstruct(images, mask)
    logits = net(images)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = net.reconstruct(images, mask)
        rounded_logits = net(images)
    assert rounded.dtype == rounded_logits.dtype == torch.bfloat16
    torch.testing.assert_close(rounded.float(), pixels, rtol=0.05, atol=0.05)
    torch.testing.assert_close(rounded_logits.float(), logits, rtol=0.05, atol=0.05)
    rounded.float().square().mean().backward()
    assert all(
        p.grad is not None and bool(p.grad.isfinite().all()) for p in net.encoder.parameters()
    )


def test_values_for_a_seed() -> None:
    """Golden: a changed initialisation would silently change every published run."""
    preset = PRESETS["swin_28"]
    net = make("swin_28", seed=1).eval()
    images = torch.linspace(0, 1, 3 * 28 * 28).view(1, 3, 28, 28)
    mask = torch.zeros(1, preset.grid, preset.grid, dtype=torch.bool)
    mask[:, ::2] = True
    logits = net(images)[0]
    pixels = net.reconstruct(images, mask)[0, :, 14, 14]
    assert logits.tolist() == pytest.approx(
        [0.829000, -0.590118, -0.504978, 1.370155, -1.541600], abs=1e-4
    )
    assert pixels.tolist() == pytest.approx([0.424542, 0.152239, 0.085420], abs=1e-4)


# --- refusals


@pytest.mark.parametrize(
    "shape", [(2, 3, 28, 28), (2, 1, 32, 32), (2, 3, 32, 16), (3, 32, 32), (2, 3, 64, 64)]
)
def test_images_of_another_size_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=r"\(3, 32, 32\)"):
        make("swin_32")(torch.zeros(shape))


@pytest.mark.parametrize(
    "mask",
    [
        torch.zeros(2, 16, 16, dtype=torch.bool),
        torch.zeros(1, 8, 8, dtype=torch.bool),
        torch.zeros(2, 64, dtype=torch.bool),
        torch.zeros(2, 8, 8),
    ],
)
def test_masks_of_another_grid_are_refused(mask: Tensor) -> None:
    with pytest.raises(ConfigError, match=r"\(2, 8, 8\) of bool"):
        make("swin_32").reconstruct(pictures(PRESETS["swin_32"], 2), mask)


def test_an_encoder_alone() -> None:
    encoder = SwinEncoder(PRESETS["swin_28"], 1)
    assert encoder(pictures(PRESETS["swin_28"], 1, 1)).shape == (1, 64, 7, 7)

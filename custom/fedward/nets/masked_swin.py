"""Swin encoders that can learn without labels, by filling in what was hidden from them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from fedward.errors import ConfigError


@dataclass(frozen=True)
class Preset:
    """A Swin for images of one size; windows and units divide it, so nothing is padded."""

    image: int
    """Height and width of an image in pixels."""
    patch: int
    """Pixels along a patch, the first token."""
    unit: int
    """Pixels along a unit of the mask, a multiple of ``patch``."""
    window: int
    """Tokens along a window of attention."""
    width: int
    """Channels of the first stage.

    Each later stage has twice as many channels, and half as many tokens along a side.
    """
    depths: Sequence[int]
    """Blocks of each stage."""
    heads: Sequence[int]
    """Attention heads of each stage."""

    @property
    def grid(self) -> int:
        """Units along a side of the image."""
        return self.image // self.unit

    @property
    def stride(self) -> int:
        """Pixels along one position of the encoder's output."""
        return int(self.patch * 2 ** (len(self.depths) - 1))

    @property
    def features(self) -> int:
        """Channels of the encoder's output."""
        return int(self.width * 2 ** (len(self.depths) - 1))


PRESETS = {
    "swin_28": Preset(image=28, patch=2, unit=4, window=7, width=32, depths=(2, 4), heads=(2, 4)),
    "swin_32": Preset(
        image=32, patch=2, unit=4, window=4, width=32, depths=(2, 2, 2), heads=(2, 4, 8)
    ),
    "swin_32_patch4": Preset(
        image=32, patch=4, unit=4, window=4, width=32, depths=(2, 4), heads=(2, 4)
    ),
    "swin_64": Preset(
        image=64, patch=4, unit=8, window=4, width=32, depths=(2, 2, 2), heads=(2, 4, 8)
    ),
    "swin_224": Preset(
        image=224, patch=4, unit=16, window=7, width=96, depths=(2, 2, 6, 2), heads=(3, 6, 12, 24)
    ),
}
"""Presets by name.

``swin_224`` is Swin-T with SelfFed's units of 16 pixels. The small ones train on a CPU. Like it,
they cut an image into 49 to 196 units, none larger than the encoder's stride. ``swin_32_patch4``
trains faster than ``swin_32``, because it has a quarter of the tokens.
"""


class SwinEncoder(nn.Module):
    """timm's Swin Transformer without its classifier, in two parts.

    Between the parts, tokens can be hidden. Tensors have timm's names. Positions enter only as the
    bias of relative positions. There is no dropout and no stochastic depth.

    Source: Liu et al., *Swin Transformer*, ICCV 2021.

    Shape: (N, channels, image, image) in [0, 1] to (N, features, image / stride, image / stride).
    """

    def __init__(self, preset: Preset, channels: int) -> None:
        # Imported here, because timm takes seconds to import.
        from timm.models.swin_transformer import SwinTransformer

        super().__init__()
        swin = SwinTransformer(
            img_size=preset.image,
            patch_size=preset.patch,
            in_chans=channels,
            num_classes=0,
            embed_dim=preset.width,
            depths=tuple(preset.depths),
            num_heads=tuple(preset.heads),
            window_size=preset.window,
            drop_path_rate=0.0,
        )
        self.patch_embed = swin.patch_embed
        self.layers = swin.layers
        self.norm = swin.norm
        self._shape = (channels, preset.image, preset.image)

    def forward(self, images: Tensor) -> Tensor:
        """Return the features (N, features, h, w)."""
        return self.encode(self.embed(images))

    def embed(self, images: Tensor) -> Tensor:
        """Return a token for each patch, (N, image / patch, image / patch, width).

        A token depends on the pixels of its patch alone.

        Raises:
            ConfigError: the images have another size or number of channels.
        """
        if images.shape[1:] != self._shape:
            raise ConfigError(
                "a Swin network",
                "Set image_size and channels of the data, or choose the network for that size.",
                expected=f"images of (channels, height, width) = {self._shape}",
                found=f"{tuple(images.shape[1:])}",
            )
        tokens: Tensor = self.patch_embed(2 * images - 1)
        return tokens

    def encode(self, tokens: Tensor) -> Tensor:
        """Return the features (N, features, h, w).

        Args:
            tokens: (N, image / patch, image / patch, width), as :meth:`embed` returns them.
        """
        if tokens.shape[0] == 0:
            # timm's attention takes no empty batch. With one row that is dropped afterwards, the
            # result still belongs to the graph of gradients.
            return self.encode(torch.cat([tokens, tokens.new_zeros(1, *tokens.shape[1:])]))[:0]
        features: Tensor = self.norm(self.layers(tokens))
        return features.permute(0, 3, 1, 2)


class SwinClassifier(nn.Module):
    """A Swin encoder and a linear classifier of the mean of its features.

    Shape: (N, channels, image, image) in [0, 1] to (N, classes).
    """

    def __init__(self, preset: Preset, classes: int, channels: int = 3) -> None:
        super().__init__()
        self.preset = preset
        self.encoder = SwinEncoder(preset, channels)
        self.classifier = nn.Linear(preset.features, classes)

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Return how layers are grouped into blocks, as timm groups a Swin's."""
        return {
            "stem": r"^encoder\.patch_embed|^mask_token",
            "blocks": [
                (r"^encoder\.layers\.(\d+)\.downsample", (0,)),
                (r"^encoder\.layers\.(\d+)\.blocks\.(\d+)", None),
                # timm's number for the block before.
                (r"^encoder\.norm", (99999,)),
            ],
        }

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits (N, classes)."""
        logits: Tensor = self.classifier(self.encoder(images).mean(dim=(2, 3)))
        return logits


class MaskedSwin(SwinClassifier):
    """A :class:`SwinClassifier` that can also predict the pixels of hidden units.

    Encoder and classifier have the names and shapes of a :class:`SwinClassifier`, and for equal
    seeds its initial weights. Logits do not depend on ``mask_token`` and ``decoder``, predicted
    pixels do not depend on the classifier.

    Source: Xie et al., *SimMIM*, CVPR 2022: a learnable token stands for what is hidden, and the
    decoder is a single 1x1 convolution and a pixel shuffle.

    Deviates: SelfFed's decoder is not described; the nearest public code (Swin-MAE) mirrors the
    encoder. MAE's own encoder sees visible units only, which shifted windows and merged patches do
    not allow.
    """

    def __init__(self, preset: Preset, classes: int, channels: int = 3) -> None:
        super().__init__(preset, classes, channels)
        self.mask_token = nn.Parameter(nn.init.trunc_normal_(torch.empty(preset.width), std=0.02))
        pixels = nn.Conv2d(preset.features, preset.stride**2 * channels, 1)
        self.decoder = nn.Sequential(pixels, nn.PixelShuffle(preset.stride))

    def reconstruct(self, images: Tensor, mask: Tensor) -> Tensor:
        """Return predicted pixels (N, channels, image, image).

        Their scale is that of the pixels which the network is trained to predict.

        Args:
            images: (N, channels, image, image) in [0, 1]. Hidden pixels have no influence on the
                result, and no gradient.
            mask: (N, grid, grid) bool on the images' device; True hides a unit.

        Raises:
            ConfigError: images or mask have another shape, or the mask is not bool.
        """
        shape = (len(images), self.preset.grid, self.preset.grid)
        if mask.shape != shape or mask.dtype != torch.bool:
            raise ConfigError(
                "a masked Swin",
                "Draw one for the network's grid of units.",
                expected=f"a mask {shape} of bool",
                found=f"{tuple(mask.shape)} of {mask.dtype}",
            )
        tokens = self.encoder.embed(images)
        patches = self.preset.unit // self.preset.patch  # along a side of a unit
        hidden = mask.repeat_interleave(patches, dim=1).repeat_interleave(patches, dim=2)
        tokens = torch.where(hidden.unsqueeze(3), self.mask_token, tokens)
        pixels: Tensor = self.decoder(self.encoder.encode(tokens))
        return pixels


swin_28 = partial(SwinClassifier, PRESETS["swin_28"])
swin_32 = partial(SwinClassifier, PRESETS["swin_32"])
swin_32_patch4 = partial(SwinClassifier, PRESETS["swin_32_patch4"])
swin_64 = partial(SwinClassifier, PRESETS["swin_64"])
swin_224 = partial(SwinClassifier, PRESETS["swin_224"])

masked_swin_28 = partial(MaskedSwin, PRESETS["swin_28"])
masked_swin_32 = partial(MaskedSwin, PRESETS["swin_32"])
masked_swin_32_patch4 = partial(MaskedSwin, PRESETS["swin_32_patch4"])
masked_swin_64 = partial(MaskedSwin, PRESETS["swin_64"])
masked_swin_224 = partial(MaskedSwin, PRESETS["swin_224"])

"""A small CNN with GroupNorm, for the built-in synthetic images."""

from itertools import pairwise

from torch import Tensor, nn


class SmallCNNGN(nn.Module):
    """Four 3x3 convolutions with GroupNorm and ReLU, halving the resolution; global maximum; linear
    classifier.

    About 99,000 parameters with 3 channels and 8 classes. It learns from scratch within ten rounds,
    which the CNN of IsoFed, without normalisation, does not; BatchNorm's statistics of other sites
    would not fit a site's images. What tells classes apart is small (a few dots, a white line) and
    would vanish in an average over the map: the maximum says whether it is there.

    Shape: (N, channels, H, W) in [0, 1], H and W at least 16, to (N, classes).
    """

    def __init__(self, classes: int, channels: int = 3) -> None:
        widths = (channels, 16, 32, 64, 128)
        blocks = [_block(*pair, pool=index < 3) for index, pair in enumerate(pairwise(widths))]
        super().__init__()
        self.features = nn.Sequential(*blocks, nn.AdaptiveMaxPool2d(1), nn.Flatten())
        self.classifier = nn.Linear(widths[-1], classes)

    def group_matcher(self, coarse: bool = False) -> dict[str, str]:
        """Return how layers are grouped into blocks, as timm's networks do: a convolution and its
        norm.
        """
        return {"blocks": r"^features\.(\d+)"}

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits (N, classes)."""
        logits: Tensor = self.classifier(self.features(2 * images - 1))
        return logits


def _block(inputs: int, outputs: int, pool: bool) -> nn.Sequential:
    layers = [
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.GroupNorm(8, outputs),
        nn.ReLU(),
    ]
    return nn.Sequential(*layers, *([nn.MaxPool2d(2)] if pool else []))

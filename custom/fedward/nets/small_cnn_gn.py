"""A small CNN with GroupNorm, for the built-in synthetic images."""

from torch import Tensor, nn


class SmallCNNGN(nn.Module):
    """Four 3x3 convolutions with GroupNorm and ReLU, a global maximum, and a linear classifier.

    The first three convolutions halve the resolution. It has about 99,000 parameters with 3
    channels and 8 classes. It learns from scratch within ten rounds, which IsoFed's CNN, without
    normalisation, does not. BatchNorm's statistics of other sites would not fit a site's images.
    What distinguishes classes is small (a few dots, a white line) and would vanish in an average
    over the map; the maximum says whether it is there.

    Shape: (N, channels, H, W) in [0, 1], H and W at least 16, to (N, classes).
    """

    treats_images_alone = True

    def __init__(self, classes: int, channels: int = 3) -> None:
        super().__init__()
        self.features = nn.Sequential(
            _block(channels, 16, pool=True),
            _block(16, 32, pool=True),
            _block(32, 64, pool=True),
            _block(64, 128, pool=False),
            nn.AdaptiveMaxPool2d(1),
            nn.Flatten(),
        )
        self.classifier = nn.Linear(128, classes)

    def group_matcher(self, coarse: bool = False) -> dict[str, str]:
        """Return how layers are grouped into blocks, as timm's networks do.

        A convolution and its norm are one block.
        """
        return {"blocks": r"^features\.(\d+)"}

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits (N, classes)."""
        logits: Tensor = self.classifier(self.features(2 * images - 1))
        return logits


def _block(inputs: int, outputs: int, pool: bool) -> nn.Sequential:
    block = nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.GroupNorm(8, outputs),
        nn.ReLU(),
    )
    if pool:
        block.append(nn.MaxPool2d(2))
    return block

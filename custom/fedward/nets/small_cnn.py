"""The small CNN of RSCFed and IsoFed."""

from torch import Tensor, nn


class SmallCNN(nn.Module):
    """Classifier of LeNet's size for images of about 28 pixels.

    It has 74,832 parameters with 3 channels and 8 classes.

    Two 5x5 convolutions (6 and 16 channels), each with ReLU and 2x2 max pooling; linear 120, 84; a
    projection 84, 256; linear classifier. No normalisation layers, no dropout.

    Source: Liang et al., CVPR 2022 (RSCFed), networks/models.py; Saha et al., MICCAI 2023 (IsoFed),
    Sec. 3.2.

    Shape: (N, channels, H, W) in [0, 1], H and W at least 16, to (N, classes).

    Deviates: the maps are averaged to 4x4 before the linear layers. This changes nothing at 28x28,
    and lets one set of weights take images of other sizes. Inputs are moved to [-1, 1] instead of
    being normalised by a data set's statistics, which no site should have to publish.
    """

    treats_images_alone = True

    def __init__(self, classes: int, channels: int = 3) -> None:
        super().__init__()
        self.features = nn.Sequential(
            # Pooling before ReLU gives the same numbers and rectifies a quarter of them.
            nn.Conv2d(channels, 6, 5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(6, 16, 5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
            nn.Linear(256, 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
        )
        self.projection = nn.Sequential(nn.Linear(84, 84), nn.ReLU(), nn.Linear(84, 256))
        self.classifier = nn.Linear(256, classes)

    def group_matcher(self, coarse: bool = False) -> dict[str, str]:
        """Return how layers are grouped into blocks, as timm's networks do: each layer is one."""
        return {"features": r"^features\.(\d+)", "projection": r"^projection\.(\d+)"}

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits (N, classes)."""
        logits: Tensor = self.classifier(self.projection(self.features(2 * images - 1)))
        return logits

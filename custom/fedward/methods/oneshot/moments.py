"""What a site sends of its features: class shares, sums and second moments.

They travel as tensors beside those of the network.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedward.errors import ConfigError
from fedward.methods.local import Batch, Measurement, Uses

NAME = "moments"
"""Name of the module that holds the moments."""


class Moments(nn.Module):
    """Sums over N images of what a classifier of K classes receives, x (D,), each divided by N.

    The mean of several sites' moments by their numbers of images is that of all images together. A
    new module has the moments of equally common classes and features of mean 0 and variance 1;
    updates are judged by its norm.
    """

    shares: Tensor
    """(K,) float32: ``N_c / N``."""
    sums: Tensor
    """(K, D) float32: ``Σ_{i in c} x_i / N``."""
    products: Tensor
    """(D (D + 1) / 2,) float32: the upper triangle of ``Σ_i x_i x_iᵀ / N``, row by row."""

    def __init__(self, classes: int, width: int) -> None:
        super().__init__()
        self.register_buffer("shares", torch.full((classes,), 1 / classes))
        self.register_buffer("sums", torch.zeros(classes, width))
        self.register_buffer("products", packed(torch.eye(width)))


def add_moments(net: nn.Module) -> None:
    """Give a network moments of its features. Its output does not change.

    Raises ConfigError: its classifier is not a linear layer with a bias.
    """
    classifier = getattr(net, "classifier", None)
    if not isinstance(classifier, nn.Linear) or classifier.bias is None:
        raise ConfigError(
            "oneshot, classifier",
            "Choose another network, or another method.",
            expected="a network whose classifier is a linear layer with a bias",
            found=type(classifier).__name__,
        )
    net.add_module(NAME, Moments(classifier.out_features, classifier.in_features))


class MeasuredMoments(Measurement):
    """The moments of a site's labelled images.

    Sums are taken in float64 on the CPU, so that they are equal on every device.
    """

    uses = Uses(labelled_view="none")

    def measure(self, net: nn.Module, batches: Iterable[Batch]) -> None:
        """Replace the network's moments by those of all batches: features (B, D), labels (B,)."""
        moments: Moments = net.get_submodule(NAME)  # type: ignore[assignment]
        classes, width = moments.sums.shape
        counts = torch.zeros(classes, dtype=torch.float64)
        sums = torch.zeros(classes, width, dtype=torch.float64)
        products = torch.zeros(width, width, dtype=torch.float64)
        for batch in batches:
            assert batch.labelled is not None
            assert batch.labels is not None
            features = batch.labelled.cpu().double()  # (B, D)
            members = F.one_hot(batch.labels.cpu(), classes).double()  # (B, K)
            counts += members.sum(dim=0)
            sums.addmm_(members.T, features)
            products.addmm_(features.T, features)
        images = counts.sum()
        moments.shares.copy_(counts / images)
        moments.sums.copy_(sums / images)
        moments.products.copy_(packed(products / images))


def packed(matrix: Tensor) -> Tensor:
    """Return the upper triangle (D (D + 1) / 2,) of a matrix (D, D), row by row."""
    rows, columns = torch.triu_indices(*matrix.shape)
    return matrix[rows, columns]


def unpacked(triangle: Tensor, width: int) -> Tensor:
    """Return the symmetric matrix (D, D) of which :func:`packed` returns ``triangle``."""
    rows, columns = torch.triu_indices(width, width)
    matrix = triangle.new_empty(width, width)
    matrix[rows, columns] = triangle
    matrix[columns, rows] = triangle
    return matrix

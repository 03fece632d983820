"""Descriptions of models, by which the server decides how similar two models are.

FedPerl compares moments of the tensors (Bdair et al., MELBA 2022, Sec. 2.3.1). FedMatch compares
the answers of the models to one image of noise.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, Protocol

import torch
from torch import Tensor

from fedward.errors import ConfigError
from fedward.methods.fedperl.similarity import finite_rows, layer_moments, similarity
from fedward.methods.workflow import ServerNetwork
from fedward.model_state import State
from fedward.seeds import torch_generator

Scale = Literal["minmax", "none"]

NOISE_MEAN = 125 / 255
"""Mean of the normal distribution, before truncation, from which the probe image is drawn."""
NOISE_DEVIATION = 125 / 255
"""Standard deviation of this distribution before it is truncated to [0, 1]."""


class Description(Protocol):
    """A way to describe models by features, and to compare these."""

    needs_network: ClassVar[bool]
    """Whether :meth:`of` takes the server's network."""

    def of(self, model: State, network: ServerNetwork | None, seed: int) -> Tensor:
        """Return the features (F,) float64 of a model.

        Args:
            model: a state_dict.
            network: the run's network at the server; None where it is not needed.
            seed: the run's seed.
        """
        ...

    def similarity(self, features: Tensor, rows: Sequence[int] | None = None) -> Tensor:
        """Return how similar models are to all models; larger values are more similar.

        Args:
            features: F (M, F) of M models.
            rows: R indices in [0, M) of the models that are compared with all M; by default all.

        Returns:
            (R, M) float64; 1 for equal models.
        """
        ...


class TensorMoments:
    """Moments of all tensors that sites send: the paper's description, made for whole networks."""

    needs_network: ClassVar[bool] = False

    def __init__(self, scale: Scale) -> None:
        self._scale = scale

    def of(self, model: State, network: ServerNetwork | None, seed: int) -> Tensor:
        """Return :func:`~fedward.methods.fedperl.similarity.layer_moments`."""
        return layer_moments(model)

    def similarity(self, features: Tensor, rows: Sequence[int] | None = None) -> Tensor:
        """Return the cosine similarity of scaled features."""
        return similarity(features, self._scale, rows)


class HeadRows:
    """Moments of each class's row of the classifier.

    With a frozen encoder only the classifier is trained, and the moments of its weight and bias are
    only four numbers. Here there are two for each class.
    """

    needs_network: ClassVar[bool] = True

    def __init__(self, scale: Scale) -> None:
        self._scale = scale

    def of(self, model: State, network: ServerNetwork | None, seed: int) -> Tensor:
        """Return :func:`row_moments` of the classifier."""
        assert network is not None, "the method's requirements name it"
        return row_moments({name: model[name] for name in network.class_rows})

    def similarity(self, features: Tensor, rows: Sequence[int] | None = None) -> Tensor:
        """Return the cosine similarity of scaled features."""
        return similarity(features, self._scale, rows)


class ProbeAnswers:
    """Logits for one image of noise; the nearest in Euclidean distance are the most similar.

    Source: Jeong et al., *Federated semi-supervised learning with inter-client consistency &
    disjoint learning*, ICLR 2021, as FedPerl's authors read it.
    """

    needs_network: ClassVar[bool] = True

    def of(self, model: State, network: ServerNetwork | None, seed: int) -> Tensor:
        """Return the logits (K,) of a model for :func:`probe_image`.

        Edge cases: a logit that is NaN or infinite counts as the largest float32, so that a broken
        model is far from all others and does not end the run.
        """
        assert network is not None, "the method's requirements name it"
        image = probe_image(network.image_shape, seed)
        logits = network.logits(model, image.unsqueeze(0))[0].to(torch.float64)
        largest = torch.finfo(torch.float32).max
        return logits.nan_to_num(nan=largest).clamp(-largest, largest)

    def similarity(self, features: Tensor, rows: Sequence[int] | None = None) -> Tensor:
        """Return :func:`nearness`."""
        return nearness(features, rows)


def row_moments(classifier: Mapping[str, Tensor]) -> Tensor:
    """Describe a classifier by mean and standard deviation of each class's row.

    ``F = (μ_1, σ_1, ..., μ_K, σ_K)``.

    Args:
        classifier: one or more tensors whose first axis are the K classes, such as a weight (K, D)
            and a bias (K,). Row c consists of the c-th entries of all of them.

    Returns:
        (2K,) float64: mean and biased standard deviation of each row, by class.

    Raises ConfigError: no tensor, or tensors of different numbers of rows.

    Edge cases: rows of one element have a standard deviation of 0.

    Deviates: the paper describes whole tensors only.
    """
    if len({len(tensor) for tensor in classifier.values()}) != 1:
        raise ConfigError(
            "fedperl.row_moments",
            "Choose a network whose classifier has a row for each class, or similarity=answers.",
            expected="tensors with one row for each class",
            found=f"shapes {[tuple(tensor.shape) for tensor in classifier.values()]}",
        )
    parts = []
    for name in sorted(classifier):
        tensor = classifier[name].detach().to(torch.float64)
        parts.append(tensor.reshape(len(tensor), -1))
    rows = torch.cat(parts, dim=1)  # (K, D + 1) with a bias
    deviations, means = torch.std_mean(rows, dim=1, correction=0)
    return torch.stack([means, deviations], dim=1).flatten()


def nearness(features: Tensor, rows: Sequence[int] | None = None) -> Tensor:
    """Return a similarity that falls with the Euclidean distance: ``1 / (1 + ‖F_m - F_k‖)``.

    The order is that of the distances, so that the same sites are nearest as in the released code's
    KD-tree.

    Source: Jeong et al., ICLR 2021. The function of the distance is this package's choice.

    Args:
        features: (M, F) finite, M and F >= 1.
        rows: R indices in [0, M); by default all.

    Returns:
        (R, M) float64 in (0, 1], 1 for equal features.

    Raises ConfigError: not two-dimensional, empty, NaN or infinite; the error names the row.
    """
    points = finite_rows(features)
    compared = range(len(points)) if rows is None else rows
    distances = [(points - points[row]).norm(dim=1) for row in compared]
    if not distances:
        return points.new_empty(0, len(points))
    return 1 / (1 + torch.stack(distances))


def probe_image(shape: Sequence[int], seed: int) -> Tensor:
    """Return one image of noise, the same for all models of a run.

    Each value is drawn from a normal distribution cut to [0, 1].

    Source: the released code of Jeong et al., ICLR 2021, where mean and standard deviation are 125
    for values in [0, 255].

    Args:
        shape: (C, H, W).
        seed: the run's seed.

    Returns:
        (C, H, W) float32 in [0, 1].

    Deviates: in the released code of FedPerl the mean is 0 and the standard deviation is 1 for
    values in [0, 255], which gives an almost black image.
    """
    # The inverse of the distribution function turns uniform into normal numbers. Uniform ones are
    # drawn only between its values at 0 and 1, so that the normal ones lie in [0, 1].
    generator = torch_generator(seed, "probe image")
    uniform = torch.rand(tuple(shape), generator=generator, dtype=torch.float64)
    lowest = torch.tensor((0 - NOISE_MEAN) / NOISE_DEVIATION, dtype=torch.float64)
    highest = torch.tensor((1 - NOISE_MEAN) / NOISE_DEVIATION, dtype=torch.float64)
    below = torch.special.ndtr(lowest)
    between = torch.special.ndtr(highest) - below
    normal = torch.special.ndtri(below + uniform * between)
    image: Tensor = (NOISE_MEAN + NOISE_DEVIATION * normal).clamp(0, 1).to(torch.float32)
    return image


def description_of(name: Literal["moments", "rows", "answers"], scale: Scale) -> Description:
    """Return the description that the settings ``similarity`` and ``similarity_scale`` name."""
    if name == "moments":
        return TensorMoments(scale)
    if name == "rows":
        return HeadRows(scale)
    return ProbeAnswers()

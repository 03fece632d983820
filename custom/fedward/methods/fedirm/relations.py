"""FedIRM's relation matrix: how it is measured, averaged and compared, and how it travels.

Row c of a relation matrix (K, K) is a distribution over the classes: the softened mean answer about
images of class c. A row of zeros says that class c takes no part.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedward.errors import ConfigError
from fedward.methods.local import Batch, Measurement, Uses, evaluation_mode
from fedward.model_state import State

NAME = "relation"
"""Name of the module that holds the matrix."""
ROWS = f"{NAME}.rows"
"""Name of the tensor of the matrix in a model."""
FEWEST_IMAGES = 5
"""Labelled images of a class that a site must have to send a row: the small-count rule's five."""
_SMALLEST_PROBABILITY = 1e-6
"""Probabilities are raised to at least this before a logarithm, which is infinite at 0."""

_SMALLEST_SUM = 1 / 2
"""Sum that a row must exceed: a distribution has 1 up to rounding, and a class left out has 0."""


class Relation(nn.Module):
    """The relation matrix of a model, beside its network. A new one has only rows of zeros."""

    rows: Tensor
    """(K, K) float32: distributions, or zeros."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(classes, classes))


class WithoutRelation(Mapping[str, Tensor]):
    """A model without its relation matrix, whose tensors are read from it one by one."""

    def __init__(self, model: State) -> None:
        self._model = model

    def __getitem__(self, name: str) -> Tensor:
        if name == ROWS:
            raise KeyError(name)
        return self._model[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._model if name != ROWS)

    def __len__(self) -> int:
        return len(self._model) - 1


def add_relation(net: nn.Module) -> None:
    """Give a network a relation matrix. Its output does not change.

    Raises ConfigError: its classifier is not a linear layer.
    """
    classifier = getattr(net, "classifier", None)
    if not isinstance(classifier, nn.Linear):
        raise ConfigError(
            "fedirm, classifier",
            "Choose another network, or another method.",
            expected="a network whose classifier is a linear layer",
            found=type(classifier).__name__,
        )
    net.add_module(NAME, Relation(classifier.out_features))


def relation_of(net: nn.Module) -> Relation:
    """Return the relation matrix that :func:`add_relation` added to a network."""
    relation: Relation = net.get_submodule(NAME)  # type: ignore[assignment]
    return relation


def class_relations(logits: Tensor, members: Tensor, temperature: float) -> Tensor:
    """Return the relation matrix of images whose classes are known or assumed.

    ``M_c = softmax(v_c / T)`` with ``v_c = (1 / N_c) Σ_{i in c} z_i``, and zeros where
    ``N_c = 0``.
    Source: Liu et al., MICCAI 2021: the mean of the logits of each class.

    Args:
        logits: z (N, K) floating point.
        members: (N, K) bool: whether image i counts as one of class c. An image may be of no class.
        temperature: T > 0; above 1 softens.

    Returns:
        (K, K) in the dtype of ``logits``, differentiable in the logits of members alone. Rows sum
        to 1, or are 0.

    Raises ConfigError: shapes that differ, or a temperature that is not positive and finite.

    Edge cases: NaN in the logits of a member: its class's row is NaN, so that a broken network is
    noticed. NaN elsewhere: no influence.

    Deviates: in the released code a class without images has a uniform row, that of logits of 0,
    which takes part in averages and losses.
    """
    if logits.shape != members.shape or logits.dim() != 2 or not 0 < temperature < math.inf:
        raise ConfigError(
            "fedirm.class_relations",
            "Pass the logits and the classes of the same images.",
            expected="logits and members (images, classes), a temperature > 0",
            found=f"{tuple(logits.shape)}, {tuple(members.shape)}, {temperature}",
        )
    # Images of no class have a factor of 0 below, but 0 times NaN is NaN.
    member_logits = logits.masked_fill(~members.any(dim=1, keepdim=True), 0.0)
    counts = members.sum(dim=0)  # (K,)
    # Autocast would round the sums to three digits.
    with torch.autocast(logits.device.type, enabled=False):
        sums = members.to(logits.dtype).T @ member_logits  # (K, K)
    means = sums / counts.clamp_min(1).unsqueeze(1)
    rows = torch.softmax(means / temperature, dim=1)
    return rows.masked_fill((counts == 0).unsqueeze(1), 0.0)


def relation_loss(rows: Tensor, target: Tensor) -> Tensor:
    """Return how far a relation matrix is from the mean one: symmetrised KL over common classes.

    ``L_IRM = (1 / |C|) Σ_{c in C} ½ (KL(M̄_c ‖ M_c) + KL(M_c ‖ M̄_c))``, where C are the classes for
    which both matrices have a row.
    Source: Liu et al., MICCAI 2021; the half as in the released code.

    Args:
        rows: M (K, K) floating point, of :func:`class_relations`, with gradient.
        target: M̄ (K, K) of :func:`mean_relation`. It gets no gradient.

    Returns:
        Scalar >= 0, and 0 with a gradient of 0 where no class is common.

    Edge cases: probabilities below 1e-6 count as 1e-6 in logarithms, so that loss and gradient are
    finite. NaN in a common class gives NaN.

    Deviates: the released code divides by K, and classes without images take part.
    """
    target = target.detach().to(rows.dtype)
    common = (rows.detach().sum(dim=1) != 0) & (target.sum(dim=1) > 0)  # (K,)
    log_ratio = (
        rows.clamp_min(_SMALLEST_PROBABILITY).log() - target.clamp_min(_SMALLEST_PROBABILITY).log()
    )
    # KL(M̄ ‖ M) + KL(M ‖ M̄) = Σ_j (M_j - M̄_j) (log M_j - log M̄_j)
    divergences = ((rows - target) * log_ratio).sum(dim=1) / 2  # (K,)
    total = divergences.masked_fill(~common, 0.0).sum()
    return total / common.sum().clamp_min(1)


@torch.no_grad()
def uncertainty(
    classifier: nn.Module,
    features: Tensor,
    share: float,
    passes: int,
    generator: torch.Generator,
) -> Tensor:
    """Return how uncertain a classifier is about images when parts of their features are missing.

    ``u_i = H(p̄_i) / log K`` with ``p̄_i = (1 / P) Σ_p softmax f(d_p(x_i))``. In each pass d_p is
    dropout: it sets a random share of the features to 0, and scales the others up.
    Source: Liu et al., MICCAI 2021, predictive entropy of Monte Carlo dropout; Gal and
    Ghahramani, ICML 2016.

    Args:
        classifier: from features to logits (N, K), K >= 2.
        features: x (N, ...) floating point, the inputs of the classifier.
        share: share of the features that each pass drops, in [0, 1).
        passes: P >= 1.
        generator: a CPU generator, which draws the features that are dropped.

    Returns:
        (N,) float32 in [0, 1] without gradient, in units of the largest entropy that K classes can
        have, so that a bound below 1 has an effect for any K. NaN where a logit is NaN.

    Deviates: the released code takes the entropy of the mean logits, and its bound of 2.0 lies
    above log 5 = 1.61 of its five classes, so that no image is rejected. Dropout is applied to the
    classifier's inputs alone, so that the layers before it are computed once for all passes.
    """
    total = torch.zeros((), device=features.device)
    for _ in range(passes):
        kept = torch.rand(features.shape, generator=generator) >= share
        dropped = features * kept.to(features.device) / (1 - share)
        total = total + torch.softmax(classifier(dropped).float(), dim=1)
    mean = total / passes  # (N, K)
    entropy: Tensor = -torch.special.xlogy(mean, mean).sum(dim=1)
    return entropy / math.log(mean.shape[1])


def mean_relation(matrices: Sequence[Tensor], fewest: float) -> Tensor:
    """Return the mean of the sites' relation matrices, class by class.

    ``M̄_c = (1 / |S_c|) Σ_{k in S_c} M_kc`` over the sites S_c that have a row for class c. It is
    zeros where fewer than ``fewest`` sites have one, because the mean of one row would be that row.
    Source: Liu et al., MICCAI 2021, where every site has all classes.

    Args:
        matrices: of one or more sites with labels, (K, K) each.
        fewest: sites that a class needs, :attr:`Federation.effective_replies`.

    Returns:
        (K, K) float32: distributions, or zeros. All sites count the same, so that no site can move
        a row further than its share of it.

    Edge cases: whatever numbers a matrix holds, the result has only distributions and zeros. NaN,
    infinite and negative numbers count as 0. A row whose sum is one half or less counts as no row,
    and any other row is scaled to a sum of 1.
    """
    stacked = torch.stack(list(matrices)).double().nan_to_num(0.0, 0.0, 0.0).clamp_min(0.0)
    sums = stacked.sum(dim=2)  # (S, K)
    has_row = sums > _SMALLEST_SUM  # (S, K)
    rows = stacked / sums.clamp_min(_SMALLEST_SUM).unsqueeze(2)
    counts = has_row.sum(dim=0)  # (K,)
    mean = (rows * has_row.unsqueeze(2)).sum(dim=0) / counts.clamp_min(1).unsqueeze(1)
    enough = counts >= max(1.0, fewest)
    return mean.masked_fill(~enough.unsqueeze(1), 0.0).float()


class MeasuredRelation(Measurement):
    """The relation matrix of a site's labelled images, by the model that it has just trained.

    The images are not augmented, and the network is in evaluation mode. Sums are taken in
    float64 on the CPU.

    Args:
        temperature: T of :func:`class_relations`.
    """

    uses = Uses(labelled_view="none")

    def __init__(self, temperature: float) -> None:
        self._temperature = temperature

    def measure(self, net: nn.Module, batches: Iterable[Batch]) -> None:
        """Replace the network's relation matrix by that of all batches' labelled images."""
        relation = relation_of(net)
        classes = len(relation.rows)
        counts = torch.zeros(classes, dtype=torch.float64)
        sums = torch.zeros(classes, classes, dtype=torch.float64)
        with torch.no_grad(), evaluation_mode(net):
            for batch in batches:
                assert batch.labelled is not None
                assert batch.labels is not None
                logits = net(batch.labelled).cpu().double()  # (B, K)
                members = F.one_hot(batch.labels.cpu(), classes).double()  # (B, K)
                counts += members.sum(dim=0)
                sums.addmm_(members.T, logits)
        means = sums / counts.clamp_min(1).unsqueeze(1)
        # The mean logits of class c are passed as those of one image, whose class is c.
        members_of_means = torch.diag(counts >= FEWEST_IMAGES)  # (K, K)
        relation.rows.copy_(class_relations(means, members_of_means, self._temperature))

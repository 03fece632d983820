"""What a sampler sees of a site's unlabelled images, and the checks that precede any choice."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NoReturn

import torch
from torch import Tensor

from fedward.errors import DataError
from fedward.methods.outputs import SOFTMAX, Outputs

_SUM_TOLERANCE = 0.01
"""How far a row of probabilities may be from a sum of 1: about the error of half precision."""
_DIVERGED = "The model is broken: use one that has not diverged."


@dataclass(frozen=True)
class PoolUses:
    """What a sampler looks at; a site computes nothing else. Models predict in evaluation mode."""

    models: tuple[Literal["local", "global"], ...] = ()
    """Whose probabilities it needs: those of the site's own model as its last training left it, of
    the global model, or of both in this order."""
    views: int = 0
    """Augmented views of each image that the one model predicts, alike for all images. 0: the image
    as it is."""
    heads: bool = False
    """Whether the probabilities of the two auxiliary heads follow: of one model, without views."""
    features: Literal["none", "local", "global", "image"] = "none"
    """Which features it needs. ``local``, ``global``: what the classifier of the site's own model,
    or of the global one, receives; ``image``: those of the picture itself, by
    :func:`fedward.methods.samplers.suggestive.principal_axes`. A model's features of labelled
    images come with them."""

    def __post_init__(self) -> None:
        if self.heads and (len(self.models) != 1 or self.views):
            raise ValueError("heads are those of one model, and see images without views")

    @property
    def own_model(self) -> bool:
        """Whether a site has to keep its own model between rounds."""
        return "local" in self.models or self.features == "local"

    @property
    def members(self) -> int:
        """T: predictions for each image."""
        predictions = len(self.models) * max(self.views, 1)
        return predictions + 2 if self.heads else predictions


@dataclass(frozen=True)
class Pool:
    """The unlabelled images of one site. Fields that a sampler does not use may stay empty."""

    site: str
    """Name of the site, for errors."""
    ids: Sequence[str]
    """N distinct ids, in any order."""
    probabilities: Tensor = field(default_factory=lambda: torch.empty(0, 0, 0))
    """(T, N, K) floating point, as :attr:`outputs` makes of logits."""
    features: Tensor = field(default_factory=lambda: torch.empty(0, 0))
    """(N, D) floating point."""
    labelled: Tensor = field(default_factory=lambda: torch.empty(0, 0))
    """(L, D) features of the images that have a label or wait for one; empty if there are none."""
    outputs: Outputs = SOFTMAX
    """What the logits of the network mean."""


@torch.no_grad()
def checked(pool: Pool, uses: PoolUses, sampler: str) -> Pool:
    """Return the pool by rising id, on the CPU.

    Probabilities are in float64, features in float32.

    Raises DataError: a repeated id; shapes that do not match; probabilities that are NaN, negative,
    or no distribution; features that are not finite. The error names the site and the first such
    image.
    """
    where = f"site {pool.site}, sampler {sampler}"
    if len(set(pool.ids)) != len(pool.ids):
        repeated = next(name for name, count in Counter(pool.ids).items() if count > 1)
        _refuse(where, "every id once", f"{repeated!r} again", "Drop repeated rows from the pool.")
    order = sorted(range(len(pool.ids)), key=pool.ids.__getitem__)
    ordered = replace(pool, ids=[pool.ids[position] for position in order])
    if uses.members:
        probabilities = _checked_probabilities(ordered, order, uses.members, where)
        ordered = replace(ordered, probabilities=probabilities)
    if uses.features != "none":
        features, labelled = _checked_features(ordered, order, where)
        ordered = replace(ordered, features=features, labelled=labelled)
    return ordered


def _checked_probabilities(pool: Pool, order: Sequence[int], members: int, where: str) -> Tensor:
    """Return the probabilities (T, N, K) of all members, images in ``order``."""
    shape = pool.probabilities.shape
    if len(shape) != 3 or shape[:2] != (members, len(order)) or shape[2] == 0:
        _refuse(
            where,
            f"probabilities ({members}, {len(order)}, K >= 1)",
            f"{tuple(shape)}",
            "Predict each image of the pool once with each member.",
        )
    probabilities = pool.probabilities.detach().to("cpu", torch.float64)[:, order]
    usable = pool.outputs.are_probabilities(probabilities, _SUM_TOLERANCE).all(dim=0)  # (N,)
    remedy = (
        "The model is broken, or these are logits: use softmax outputs of a model that has not "
        "diverged."
    )
    _require_rows(usable, pool.ids, where, pool.outputs.rule, remedy)
    return probabilities


def _checked_features(pool: Pool, order: Sequence[int], where: str) -> tuple[Tensor, Tensor]:
    """Return the features (N, D) in ``order``, and those of labelled images (L, D)."""
    shape = pool.features.shape
    labelled = pool.labelled
    same_width = labelled.dim() == 2 and labelled.shape[1:] == shape[1:]
    labelled_fit = labelled.numel() == 0 or same_width
    if len(shape) != 2 or shape[0] != len(order) or shape[1] == 0 or not labelled_fit:
        _refuse(
            where,
            f"features ({len(order)}, D >= 1)",
            f"{tuple(shape)}, and {tuple(labelled.shape)} of labelled images",
            "Describe each image of the pool once.",
        )
    features = pool.features[order].detach().to("cpu", torch.float32)
    labelled = labelled.detach().to("cpu", torch.float32).reshape(-1, shape[1])
    _require_rows(features.isfinite().all(dim=1), pool.ids, where, "finite features", _DIVERGED)
    if not bool(labelled.isfinite().all()):
        _refuse(where, "finite features", "others, of labelled images", _DIVERGED)
    return features, labelled


def _require_rows(
    usable: Tensor, ids: Sequence[str], where: str, expected: str, remedy: str
) -> None:
    """Raise DataError, which names the first image that is not ``usable``, a (N,) bool."""
    if bool(usable.all()):
        return
    broken = (~usable).nonzero().flatten().tolist()
    found = f"others for {len(broken)} of {len(ids)} images, first {ids[broken[0]]!r}"
    _refuse(where, expected, found, remedy)


def _refuse(where: str, expected: str, found: str, remedy: str) -> NoReturn:
    raise DataError(where, remedy, expected=expected, found=found)

"""What a sampler sees of a site's unlabelled images, and the checks that come before any choice."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from fedward.errors import DataError
from fedward.methods.outputs import SOFTMAX, Outputs

_SUM_TOLERANCE = 0.01
"""Of a row of probabilities: softmax in half precision is off by about this much."""
_DIVERGED = "The model is broken: use one that has not diverged."


@dataclass(frozen=True)
class Uses:
    """What a sampler looks at; a site computes nothing else for it. Models predict in evaluation
    mode.
    """

    models: tuple[Literal["local", "global"], ...] = ()
    """Whose probabilities: the site's own model as it left the last training, the global one, or
    both in this order.
    """
    views: int = 0
    """Augmented views of each image that the one model predicts, alike for all images. 0: the image
    as it is.
    """
    heads: bool = False
    """Followed by the probabilities of the model's two auxiliary heads."""
    outputs: Literal["probabilities", "logits"] = "probabilities"
    """Of the models; logits only of images as they are, and without heads."""
    features: Literal["none", "local", "global", "image"] = "none"
    """``local``, ``global``: what the site's own model, or the global one, feeds its classifier;
    ``image``: of the picture itself, by
    :func:`fedward.methods.samplers.suggestive.principal_axes`."""
    labelled: bool = True
    """Whether a model's features are those of labelled images, too."""

    @property
    def own_model(self) -> bool:
        """Whether a site has to keep its own model between rounds."""
        return "local" in self.models or self.features == "local"

    @property
    def members(self) -> int:
        """T: predictions for each image."""
        return len(self.models) * max(self.views, 1) + 2 * self.heads


@dataclass(frozen=True)
class Pool:
    """The unlabelled images of one site. Fields that a sampler does not use may stay empty."""

    site: str
    """Name, for errors."""
    ids: Sequence[str]
    """N distinct ids, in any order."""
    probabilities: Tensor = field(default_factory=lambda: torch.empty(0, 0, 0))
    """(T, N, K) floating point, rows sum to 1, but for a multi-label job."""
    features: Tensor = field(default_factory=lambda: torch.empty(0, 0))
    """(N, D) floating point."""
    labelled: Tensor = field(default_factory=lambda: torch.empty(0, 0))
    """(L, D) features of the images that have labels, or wait for one; empty: there are none."""
    logits: Tensor = field(default_factory=lambda: torch.empty(0, 0, 0))
    """(T, N, K) floating point."""
    outputs: Outputs = SOFTMAX
    """What the logits of the network mean."""


@torch.no_grad()
def checked(pool: Pool, uses: Uses, sampler: str) -> Pool:
    """Return the pool by rising id, on the CPU, with probabilities and logits in float64 and
    features in float32.

    Raises DataError: an id twice; shapes that do not belong together; probabilities that are NaN,
    negative, or no distribution; logits or features that are not finite. The error names the site
    and the first such image.
    """
    where = f"site {pool.site}, sampler {sampler}"
    if len(set(pool.ids)) != len(pool.ids):
        repeated = next(name for name, count in Counter(pool.ids).items() if count > 1)
        _refuse(where, "every id once", f"{repeated!r} again", "Drop repeated rows from the pool.")
    order = sorted(range(len(pool.ids)), key=pool.ids.__getitem__)
    ordered = replace(pool, ids=[pool.ids[position] for position in order])
    if uses.members and uses.outputs == "logits":
        ordered = replace(ordered, logits=_logits(ordered, order, uses.members, where))
    elif uses.members:
        ordered = replace(
            ordered, probabilities=_probabilities(ordered, order, uses.members, where)
        )
    if uses.features != "none":
        features, labelled = _features(ordered, order, where)
        ordered = replace(ordered, features=features, labelled=labelled)
    return ordered


def _probabilities(pool: Pool, order: Sequence[int], members: int, where: str) -> Tensor:
    probabilities = _outputs(pool.probabilities, "probabilities", order, members, where)
    usable = pool.outputs.are_probabilities(probabilities, _SUM_TOLERANCE).all(dim=0)
    expected = pool.outputs.rule
    remedy = "The model is broken, or these are logits: use softmax outputs of a model that has not diverged."
    _require_rows(usable, pool.ids, where, expected, remedy)
    return probabilities


def _logits(pool: Pool, order: Sequence[int], members: int, where: str) -> Tensor:
    logits = _outputs(pool.logits, "logits", order, members, where)
    usable = logits.isfinite().all(dim=2).all(dim=0)
    _require_rows(usable, pool.ids, where, "finite logits", _DIVERGED)
    return logits


def _outputs(given: Tensor, what: str, order: Sequence[int], members: int, where: str) -> Tensor:
    """Return the outputs of all members on the CPU in float64, images in the order given."""
    shape = given.shape
    if len(shape) != 3 or shape[:2] != (members, len(order)) or not shape[2]:
        expected = f"{what} ({members}, {len(order)}, K >= 1)"
        _refuse(
            where,
            expected,
            f"{tuple(shape)}",
            "Predict each image of the pool once with each member.",
        )
    return given.detach().to("cpu", torch.float64)[:, order]


def _features(pool: Pool, order: Sequence[int], where: str) -> tuple[Tensor, Tensor]:
    shape = pool.features.shape
    labelled = pool.labelled
    known = labelled.numel() == 0 or (labelled.dim() == 2 and labelled.shape[1:] == shape[1:])
    if len(shape) != 2 or shape[0] != len(order) or not shape[1] or not known:
        found = f"{tuple(shape)}, and {tuple(labelled.shape)} of labelled images"
        _refuse(
            where,
            f"features ({len(order)}, D >= 1)",
            found,
            "Describe each image of the pool once.",
        )
    features, labelled = (
        each.detach().to("cpu", torch.float32) for each in (pool.features[order], labelled)
    )
    _require_rows(features.isfinite().all(dim=1), pool.ids, where, "finite features", _DIVERGED)
    if not bool(labelled.isfinite().all()):
        _refuse(where, "finite features", "others, of labelled images", _DIVERGED)
    return features, labelled.reshape(-1, shape[1])


def _require_rows(
    usable: Tensor, ids: Sequence[str], where: str, expected: str, remedy: str
) -> None:
    if not bool(usable.all()):
        broken = (~usable).nonzero().flatten().tolist()
        _refuse(
            where,
            expected,
            f"others for {len(broken)} of {len(ids)} images, first {ids[broken[0]]!r}",
            remedy,
        )


def _refuse(where: str, expected: str, found: str, remedy: str) -> None:
    raise DataError(where, expected=expected, found=found, remedy=remedy)

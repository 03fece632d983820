"""The contrastive loss of SelfFed and its queue of earlier keys.

Khowaja et al., arXiv 2307.01514, Sec. III-D. What the paper leaves open follows MoCo (He et al.,
CVPR 2020).
"""

import math

import torch
from torch import Tensor

from fedward.errors import ConfigError


def info_nce(
    query: Tensor, key: Tensor, queue: Tensor, temperature: float, own: Tensor | None = None
) -> Tensor:
    """Return how badly views of one image find each other among earlier images.

    ``L_NCE = -(1/N) Σ_n log [ e^(q_n·k_n/μ) / (e^(q_n·k_n/μ) + Σ_j e^(q_n·k_j/μ)) ]`` with k_j in
    the queue. All vectors are scaled to length 1 first.

    Source: Khowaja et al., arXiv 2307.01514, eq. (5), in the form of He et al., CVPR 2020 (MoCo),
    eq. (1).

    Args:
        query: q (N, D) floating point, D >= 1: the online network's projections of one view.
        key: k (N, D): the target network's projections of the other view of the same images, in the
            same order.
        queue: k_j (Q, D): earlier keys, see :func:`enqueue`; the present ones are not among them.
        temperature: μ > 0.
        own: (N, Q) bool, True where k_j is an earlier key of the very image of q_n, which is left
            out of the sum. None: there is no such key.

    Returns:
        Scalar >= 0, at most ``log(Q + 1) + 2/μ``, in the dtype of the query, float32 at least, also
        under autocast. The gradient reaches ``query`` only, never ``key`` or ``queue``.

    Raises ConfigError: the shapes do not match, or the temperature is not positive and finite.

    Edge cases: N = 0, Q = 0, or only keys of the same image: 0 with a gradient of 0, because there
    is nothing to tell apart. A vector of zeros: has similarity 0 to all vectors, with finite
    gradients. Small temperature: finite, because the loss is computed in log space. NaN or
    infinity: the loss is NaN, because a broken network must be noticed.

    Deviates: eq. (5) leaves the positive pair out of the denominator, so that the loss has no lower
    bound. MoCo also tells an image from its own earlier keys.
    """
    _require_contrast(query, key, queue, temperature, own)
    dtype = torch.promote_types(query.dtype, torch.float32)
    q = _directions(query.to(dtype))  # (N, D)
    k = _directions(key.detach().to(dtype))  # (N, D)
    negatives = _directions(queue.detach().to(dtype))  # (Q, D)
    positive = (q * k).sum(dim=1, keepdim=True)  # (N, 1)
    # Without autocast, which would give similarities of three digits, that are then divided by μ.
    with torch.autocast(query.device.type, enabled=False):
        negative = q @ negatives.T  # (N, Q)
        if own is not None:
            negative = negative.masked_fill(own, -math.inf)
        logits = torch.cat([positive, negative], dim=1) / temperature  # (N, 1 + Q)
    return (logits.logsumexp(dim=1) - logits[:, 0]).sum() / max(len(query), 1)


def _require_contrast(
    query: Tensor, key: Tensor, queue: Tensor, temperature: float, own: Tensor | None
) -> None:
    """Raise ConfigError unless these are arguments of :func:`info_nce`."""
    is_matrix = query.dim() == 2 and query.shape[1] > 0
    same_width = is_matrix and key.shape == query.shape and queue.shape[1:] == query.shape[1:]
    own_fits = own is None or own.shape == (len(query), len(queue))
    if same_width and own_fits and 0 < temperature < math.inf:
        return
    shapes = ", ".join(f"{tuple(tensor.shape)}" for tensor in (query, key, queue))
    shape_of_own = None if own is None else tuple(own.shape)
    raise ConfigError(
        "selffed.info_nce",
        "Pass the projections of two views of one batch, and the keys of earlier batches.",
        expected=(
            "query and key (N, D), a queue (Q, D), D >= 1, own (N, Q) if any, and a temperature > 0"
        ),
        found=f"{shapes}, own {shape_of_own}, temperature {temperature}",
    )


@torch.no_grad()
def enqueue(queue: Tensor, keys: Tensor, size: int) -> Tensor:
    """Return the queue after a batch: new keys at its end, the oldest removed from its front.

    Source: Khowaja et al., arXiv 2307.01514, Sec. III-D; He et al., CVPR 2020 (MoCo), Alg. 1.

    Args:
        queue: (Q, D), oldest first; (0, D) at the start.
        keys: (N, D), in the order in which they grow old.
        size: N_queue >= 0, the most that it holds.

    Returns:
        (min(Q + N, size), D), a new tensor of the queue's dtype and device, without gradient.

    Raises ConfigError: different widths, or a negative size.

    Edge cases: N >= size: the last ``size`` keys. Q > size: shortened to the newest. size = 0:
    empty.

    Deviates: MoCo starts with random vectors, which are easy to tell apart; here the queue starts
    empty and fills.
    """
    if queue.dim() != 2 or keys.dim() != 2 or queue.shape[1] != keys.shape[1] or size < 0:
        raise ConfigError(
            "selffed.enqueue",
            "Start from torch.empty(0, D).",
            expected="a queue (Q, D), keys (N, D), a size >= 0",
            found=f"{queue.shape}, {keys.shape}, size {size}",
        )
    newest = keys[max(len(keys) - size, 0) :].to(queue)
    room = size - len(newest)
    return torch.cat([queue[max(len(queue) - room, 0) :], newest])


def _directions(vectors: Tensor) -> Tensor:
    """Scale rows to length 1; a row of zeros stays zero, with a finite gradient."""
    norms = vectors.norm(dim=1, keepdim=True)
    directions: Tensor = vectors / norms.where(norms > 0, 1.0)
    return directions

"""The contrastive loss of SelfFed and its queue of earlier keys (Khowaja et al., Sec. III-D).

What the paper leaves open follows MoCo (He et al., CVPR 2020).
"""

import math

import torch
from torch import Tensor

from fedward.errors import ConfigError


def info_nce(
    query: Tensor, key: Tensor, queue: Tensor, temperature: float, own: Tensor | None = None
) -> Tensor:
    """Return how badly views of one image find each other among older ones.

    ``L_NCE = -(1/N) Σ_n log [ e^(q_n·k_n/μ) / (e^(q_n·k_n/μ) + Σ_j e^(q_n·k_j/μ)) ]``, k_j in the
    queue, all of them scaled to length 1 here.
    Source: Khowaja et al., arXiv 2307.01514, eq. (5), in the form of He et al., CVPR 2020 (MoCo),
    eq. (1).

    Args:
        query: q (N, D) floating point, D >= 1: the online network's, of one view.
        key: k (N, D): the target network's, of the other view of the same images in the same order.
        queue: k_j (Q, D): earlier keys, see :func:`enqueue`; the present ones do not belong there.
        temperature: μ > 0.
        own: (N, Q) bool, True where k_j is an earlier key of the very image of q_n: it is left out
            of the sum. None:
            nowhere.

    Returns:
        Scalar >= 0, at most ``log(Q + 1) + 2/μ``, of the query's dtype, float32 at least, also
        under autocast. The gradient reaches ``query`` only, never ``key`` or ``queue``.

    Raises ConfigError: shapes that do not belong together, or a temperature that is not positive
    and finite.

    Edge cases: N = 0, Q = 0, or all keys its own: 0 with a gradient of 0: there is nothing to tell
    apart. a vector of
    zeros: has similarity 0 to all; gradients stay finite. small temperature: finite: computed in
    log space. NaN,
    infinity: the loss is NaN: a broken net is noticed.

    Deviates: eq. (5) leaves the positive pair out of the denominator, so that the loss has no lower
    bound; MoCo also tells an image from its own earlier keys.
    """
    fits = (
        query.dim() == 2
        and query.shape[1]
        and key.shape == query.shape
        and queue.shape[1:] == query.shape[1:]
    )
    fits = fits and (own is None or own.shape == (len(query), len(queue)))
    if not fits or not 0 < temperature < math.inf:
        expected = (
            "query and key (N, D), a queue (Q, D), D >= 1, own (N, Q) if any, and a temperature > 0"
        )
        shapes = ", ".join(f"{tuple(tensor.shape)}" for tensor in (query, key, queue))
        found = (
            f"{shapes}, own {None if own is None else tuple(own.shape)}, temperature {temperature}"
        )
        remedy = "Pass the projections of two views of one batch, and the keys of earlier ones."
        raise ConfigError("selffed.info_nce", expected=expected, found=found, remedy=remedy)
    dtype = torch.promote_types(query.dtype, torch.float32)
    q, k, negatives = (
        _directions(vectors.to(dtype)) for vectors in (query, key.detach(), queue.detach())
    )
    positive = (q * k).sum(dim=1, keepdim=True)
    with torch.autocast(
        query.device.type, enabled=False
    ):  # similarities of three digits would be divided by μ
        others = q @ negatives.T
        if own is not None:
            others = others.masked_fill(own, -math.inf)
        logits = torch.cat([positive, others], dim=1) / temperature
    return (logits.logsumexp(dim=1) - logits[:, 0]).sum() / max(len(query), 1)


@torch.no_grad()
def enqueue(queue: Tensor, keys: Tensor, size: int) -> Tensor:
    """Return the queue after a batch: new keys at its end, the oldest gone from its front.

    Source: Khowaja et al., arXiv 2307.01514, Sec. III-D; He et al., CVPR 2020 (MoCo), Alg. 1.

    Args:
        queue: (Q, D), oldest first; (0, D) at the start.
        keys: (N, D), in the order in which they grow old.
        size: N_queue >= 0, the most it holds.

    Returns:
        (min(Q + N, size), D), a new tensor of the queue's dtype and device, without gradient.

    Raises ConfigError: widths that differ, or a negative size.

    Edge cases: N >= size: the last ``size`` keys. Q > size: shortened to the newest. size = 0:
    empty.

    Deviates: MoCo starts with random vectors, which are easy to tell apart; here the queue starts
    empty and fills.
    """
    if queue.dim() != 2 or keys.dim() != 2 or queue.shape[1] != keys.shape[1] or size < 0:
        expected = "a queue (Q, D), keys (N, D), a size >= 0"
        found = f"{queue.shape}, {keys.shape}, size {size}"
        raise ConfigError(
            "selffed.enqueue",
            expected=expected,
            found=found,
            remedy="Start from torch.empty(0, D).",
        )
    newest = keys[max(len(keys) - size, 0) :].to(queue)
    room = size - len(newest)
    return torch.cat([queue[max(len(queue) - room, 0) :], newest])


def _directions(vectors: Tensor) -> Tensor:
    """Scale rows to length 1; one of zeros stays so, with a finite gradient."""
    norms = vectors.norm(dim=1, keepdim=True)
    directions: Tensor = vectors / norms.where(norms > 0, 1.0)
    return directions

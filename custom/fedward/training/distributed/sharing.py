"""One batch shared by several processes: each computes some of its rows, and all see the whole
batch's outputs.

Losses here are no plain means over images (some divide by what was kept, or by a sum of weights),
so that a mean of the processes' own losses would be another loss. A shared network answers for the
whole batch in every process: rows are computed once, outputs (N, K), which are small, are
exchanged, and each process takes the same loss of all of them.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

from fedward.methods.local import Losses, batch_norms

_PATIENCE = timedelta(minutes=30)
"""How long a process waits for the others, which may still be reading images; one that died ends
all at once.
"""


@contextmanager
def group(folder: Path, rank: int, processes: int, kind: str = "cpu") -> Iterator[torch.device]:
    """Join the processes of one machine, by a file in ``folder``, and yield the CPU, or for
    ``cuda`` this one's GPU.
    """
    cuda = kind == "cuda"
    device = torch.device("cuda", rank) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    backend = "nccl" if cuda else "gloo"
    meeting = f"file://{folder / 'store'}"
    dist.init_process_group(
        backend, init_method=meeting, rank=rank, world_size=processes, timeout=_PATIENCE
    )
    yield device
    dist.destroy_process_group()  # not after an error: it could wait for the others


def rows_of(rank: int, images: int, processes: int) -> slice:
    """Return the rows of a batch that a process computes: sizes differ by one at most, and may be
    0.
    """
    each, more = divmod(images, processes)
    start = rank * each + min(rank, more)
    return slice(start, start + each + (rank < more))


class _Gather(torch.autograd.Function):
    """Every process's rows (n_r, K) to those of the whole batch (N, K), in each process."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, images: int) -> Tensor:
        processes = dist.get_world_size()
        rows = [rows_of(rank, images, processes) for rank in range(processes)]
        ctx.own = rows[dist.get_rank()]
        # Equally many rows for each, because NCCL wants that: the first process has the most.
        padded = own.new_zeros(rows[0].stop, *own.shape[1:])
        padded[: len(own)] = own
        parts = [torch.empty_like(padded) for _ in rows]
        dist.all_gather(parts, padded)
        return torch.cat(
            [part[: row.stop - row.start] for part, row in zip(parts, rows, strict=True)]
        )

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Return the gradient of this process's rows, N-fold: the mean over N processes is then the
        whole gradient.

        What a loss takes from the parameters directly (a proximal term) every process has in full.
        """
        return gradients[0][ctx.own] * dist.get_world_size(), None


class _Rows:
    """Hooks that give a network this process's rows of its input, and return the outputs of all.

    A process without rows computes an image of zeros, which BatchNorm does not see, and returns
    nothing of it.
    """

    def __init__(self) -> None:
        self._images = self._own = 0

    def before(self, net: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        self._images = len(inputs[0])
        own = inputs[0][rows_of(dist.get_rank(), self._images, dist.get_world_size())]
        self._own = len(own)
        return (own if self._own else _zeros_like_one(own),)

    def after(self, net: nn.Module, inputs: tuple[Tensor], outputs: Tensor) -> Tensor:
        gathered: Tensor = _Gather.apply(outputs[: self._own], self._images)
        return gathered

    def before_norm(self, norm: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        return (inputs[0][:0],) if norm.training and not self._own else inputs

    def after_norm(self, norm: nn.Module, inputs: tuple[Tensor], outputs: Tensor) -> Tensor:
        return outputs if len(outputs) else torch.cat([outputs, _zeros_like_one(outputs)])


def _zeros_like_one(rows: Tensor) -> Tensor:
    return rows.new_zeros(1, *rows.shape[1:])


def has_batch_norm(net: nn.Module) -> bool:
    """Return whether a network has BatchNorm, whose statistics are those of a whole batch."""
    return bool(batch_norms(net))


def share(net: nn.Module) -> nn.Module:
    """Return a network that still takes (N, C, H, W) and returns (N, K), but computes a share of
    the rows here.

    The same module, but for BatchNorm, which becomes SyncBatchNorm. Names of tensors stay, and
    copies of the network are shared too. All processes must call it with equal batches, in equal
    order; a batch may have fewer images than there are processes. Dropout draws other masks than in
    one process.
    """
    if has_batch_norm(net):
        from timm.layers import (
            convert_sync_batchnorm,  # torch's own would lose the activation in timm's BatchNorm
        )

        net = convert_sync_batchnorm(net)
    rows = _Rows()
    net.register_forward_pre_hook(rows.before)
    net.register_forward_hook(rows.after)
    for norm in batch_norms(net):
        norm.register_forward_pre_hook(rows.before_norm)
        norm.register_forward_hook(rows.after_norm)
    return net


class _Step(nn.Module):
    """A loss of a network as a module, because DistributedDataParallel wants to see one forward
    pass a step.
    """

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, losses: Callable[[nn.Module], Losses]) -> Losses:
        return losses(self.net)


def parallel(net: nn.Module, image: Tensor) -> DistributedDataParallel:
    """Return what takes losses of a shared network, so that gradients become the mean over the
    processes.

    Buffers are equal already and not sent around. Parameters that a step leaves unused are looked
    for, which costs time, only in a network that has some: a masked Swin's decoder plays no part in
    its logits.

    Args:
        net: as :func:`share` returned it.
        image: any image (1, C, H, W) that it takes, where the network is.
    """
    training = net.training
    logits = net.eval()(image)  # no trace of it stays: neither in statistics nor in generators
    net.train(training)
    trained = [parameter for parameter in net.parameters() if parameter.requires_grad]
    unused = None in torch.autograd.grad(logits.sum(), trained, allow_unused=True)
    with _without_compiler():
        return _Parallel(_Step(net), broadcast_buffers=False, find_unused_parameters=unused)


class _Parallel(DistributedDataParallel):
    def _run_ddp_forward(self, *inputs: Any) -> Any:
        return self.module(
            *inputs
        )  # torch's own notes for its compiler who runs, and imports that first


@contextmanager
def _without_compiler() -> Iterator[None]:
    """Answer what DistributedDataParallel asks torch's compiler, whether that adds gradients up:
    no.

    Else torch would import the compiler for it, in every process of every exchange, which takes as
    long as torch itself.
    """
    if "torch._dynamo" not in sys.modules:
        vars(torch)["_dynamo"] = SimpleNamespace(utils=SimpleNamespace(get_optimize_ddp_mode=str))
    try:
        yield
    finally:
        if "torch._dynamo" not in sys.modules:
            del vars(torch)["_dynamo"]

"""One batch shared by several processes.

The losses here are not plain means over images: some divide by the number of kept images, or by a
sum of weights. So the mean of losses that each process takes of its own rows would be another loss.
Instead, each process computes the outputs (N, K) of its rows, which are small, all exchange them,
and each takes the same loss of the whole batch.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist

from fedward.methods.local import Losses, batch_norms
from fedward.speed.plain_parallel import PlainParallel

_PATIENCE = timedelta(minutes=30)
"""How long a process waits for the others, which may still be reading images.

When a process dies, all end at once.
"""


@contextmanager
def group(folder: Path, rank: int, processes: int, kind: str = "cpu") -> Iterator[torch.device]:
    """Join the group of processes, and yield the device of this one.

    Args:
        folder: where the processes of the group meet, by a file.
        rank: number of this process, from 0.
        processes: how many there are.
        kind: ``cpu``; or ``cuda``: each process has the GPU of its number.
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
    # Not after an error, because this could wait for the others.
    dist.destroy_process_group()


def rows_of(rank: int, images: int, processes: int) -> slice:
    """Return the rows of a batch that a process computes.

    Processes have equal numbers of rows, or one more; a number may be 0.
    """
    fewest, remainder = divmod(images, processes)
    start = rank * fewest + min(rank, remainder)
    rows = fewest + 1 if rank < remainder else fewest
    return slice(start, start + rows)


class _Gather(torch.autograd.Function):
    """Gathers the outputs (n_r, K) of every process into those of the whole batch (N, K)."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, images: int) -> Tensor:
        processes = dist.get_world_size()
        rows = [rows_of(rank, images, processes) for rank in range(processes)]
        ctx.own_rows = rows[dist.get_rank()]
        # NCCL wants equal numbers of rows from each process. The first process has the most.
        padded = own.new_zeros(rows[0].stop, *own.shape[1:])
        padded[: len(own)] = own
        parts = [torch.empty_like(padded) for _ in rows]
        dist.all_gather(parts, padded)
        outputs = []
        for part, part_rows in zip(parts, rows, strict=True):
            outputs.append(part[: part_rows.stop - part_rows.start])
        return torch.cat(outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Return the gradient of this process's rows, times the number P of processes.

        The mean over the processes is then the gradient of the whole batch. The gradient of a term
        that uses the parameters directly, such as a proximal term, is whole in every process.
        """
        return gradients[0][ctx.own_rows] * dist.get_world_size(), None


class _Rows:
    """Hooks that give a network this process's rows of a batch, and return the outputs of all rows.

    A process without rows computes an image of zeros and drops its output. BatchNorm does not see
    this image.
    """

    def __init__(self) -> None:
        self._images = 0
        """Rows of the batch."""
        self._own = 0
        """Rows of this process."""

    def before(self, net: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        self._images = len(inputs[0])
        rows = inputs[0][rows_of(dist.get_rank(), self._images, dist.get_world_size())]
        self._own = len(rows)
        return (rows,) if self._own else (_row_of_zeros(rows),)

    def after(self, net: nn.Module, inputs: tuple[Tensor], outputs: Tensor) -> Tensor:
        gathered: Tensor = _Gather.apply(outputs[: self._own], self._images)
        return gathered

    def before_norm(self, norm: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        if norm.training and not self._own:
            return (inputs[0][:0],)
        return inputs

    def after_norm(self, norm: nn.Module, inputs: tuple[Tensor], outputs: Tensor) -> Tensor:
        if len(outputs):
            return outputs
        # Concatenated, so that the graph of gradients goes on.
        return torch.cat([outputs, _row_of_zeros(outputs)])


def _row_of_zeros(rows: Tensor) -> Tensor:
    return rows.new_zeros(1, *rows.shape[1:])


def has_batch_norm(net: nn.Module) -> bool:
    """Return whether a network has BatchNorm, which needs the statistics of a whole batch."""
    return bool(batch_norms(net))


def share(net: nn.Module) -> nn.Module:
    """Let a network compute a share of the rows in each process.

    It still takes (N, C, H, W) and returns (N, K). Names of tensors stay, and copies of the network
    are shared too. All processes must call it with equal batches, in equal order; a batch may have
    fewer images than there are processes. Dropout draws other masks than in one process.

    Returns:
        The same module, in which BatchNorm has become SyncBatchNorm.
    """
    if has_batch_norm(net):
        # torch's own function would lose the activation in timm's BatchNorm.
        from timm.layers import convert_sync_batchnorm

        net = convert_sync_batchnorm(net)
    rows = _Rows()
    net.register_forward_pre_hook(rows.before)
    net.register_forward_hook(rows.after)
    for norm in batch_norms(net):
        norm.register_forward_pre_hook(rows.before_norm)
        norm.register_forward_hook(rows.after_norm)
    return net


class _Step(nn.Module):
    """Losses of a network as a module.

    DistributedDataParallel wants to see one forward pass for each step.
    """

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, losses: Callable[[nn.Module], Losses]) -> Losses:
        return losses(self.net)


def parallel(net: nn.Module, image: Tensor) -> PlainParallel:
    """Return a module that computes losses of a shared network.

    After a backward pass, gradients are the means over the processes. Buffers are equal in all
    processes and not sent. torch searches for parameters that a step does not use only if the
    network has some, because the search takes time: a masked Swin's decoder has no part in its
    logits.

    Args:
        net: as :func:`share` returned it.
        image: any image (1, C, H, W) that the network takes, on its device.
    """
    training = net.training
    # In evaluation mode the pass changes neither statistics nor generators.
    logits = net.eval()(image)
    net.train(training)
    trained = [parameter for parameter in net.parameters() if parameter.requires_grad]
    unused = None in torch.autograd.grad(logits.sum(), trained, allow_unused=True)
    return PlainParallel(_Step(net), broadcast_buffers=False, find_unused_parameters=unused)

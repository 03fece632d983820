"""Depthwise convolutions, with a quick gradient of their weights where oneDNN has none.

On a CPU oneDNN leaves that gradient to its reference code where a map is smaller than the kernel or
the kernel is
dilated: up to fifty times the time of the forward pass. There, sums of shifted products take its
place.
"""

from collections.abc import Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.grad import conv2d_input

_FEWEST_PLANES = 1024
"""Images times channels: below, the calls of many small products cost more than they save."""


class DepthwiseConv2d(nn.Conv2d):
    """An ``nn.Conv2d`` of as many groups as channels in and out. Only the gradient's rounding
    differs.
    """

    def forward(self, maps: Tensor) -> Tensor:
        """Return the convolution of (N, C, H, W)."""
        if not self._is_slow(maps):
            return super().forward(maps)
        output: Tensor = _ShiftedProducts.apply(
            maps, self.weight, self.bias, self.stride, self.padding, self.dilation
        )
        return output

    def _is_slow(self, maps: Tensor) -> bool:
        """Return whether oneDNN would take its reference code for the weights' gradient, and
        shifted products help.
        """
        if self.padding_mode != "zeros" or isinstance(self.padding, str):
            return False
        if not (torch.is_grad_enabled() and self.weight.requires_grad) or torch.is_autocast_enabled(
            "cpu"
        ):
            return False
        planes = maps.shape[:-2].numel()
        sides = maps.shape[-2:]
        small = any(side < kernel for side, kernel in zip(sides, self.kernel_size, strict=True))
        channels_last = maps.dim() == 4 and maps.is_contiguous(memory_format=torch.channels_last)
        on_cpu = maps.device.type == "cpu"
        return (
            on_cpu
            and channels_last
            and planes >= _FEWEST_PLANES
            and (small or max(self.dilation) > 1)
        )


def quicken(net: nn.Module) -> None:
    """Make every depthwise ``nn.Conv2d`` of a network a :class:`DepthwiseConv2d`.

    Tensors, their names, and outputs stay as they are. Subclasses, such as timm's ``Conv2dSame``,
    stay too: it hands oneDNN maps that it has padded to the kernel's size at least.
    """
    for module in net.modules():
        if type(module) is nn.Conv2d and module.groups == module.in_channels == module.out_channels:
            module.__class__ = DepthwiseConv2d


class _ShiftedProducts(torch.autograd.Function):
    """A depthwise convolution whose weights' gradient is :func:`weight_gradient`."""

    @staticmethod
    def forward(
        ctx: Any,
        maps: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
    ) -> Tensor:
        ctx.save_for_backward(maps, weight)
        ctx.geometry = stride, padding, dilation
        return F.conv2d(maps, weight, bias, stride, padding, dilation, groups=len(weight))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (maps, weight) = ctx.saved_tensors
        (gradient,) = gradients
        stride, padding, dilation = ctx.geometry
        of_maps, of_weight, of_bias = ctx.needs_input_grad[:3]
        return (
            conv2d_input(maps.shape, weight, gradient, stride, padding, dilation, len(weight))
            if of_maps
            else None,
            weight_gradient(maps, gradient, weight.shape[2:], stride, padding, dilation)
            if of_weight
            else None,
            gradient.sum((0, 2, 3)) if of_bias else None,
            None,
            None,
            None,
        )


def weight_gradient(
    maps: Tensor,
    gradient: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Tensor:
    """Return the gradient of a depthwise convolution's weights, one place of the kernel after
    another.

    ``∂L/∂w_cij = Σ_nyx g_ncyx · u_nc(y·s + i·d - p)(x·s + j·d - p)``, with u = 0 outside the map.

    Args:
        maps, gradient: u (N, C, H, W) and g (N, C, H', W'), the loss's gradient by the output.
        kernel, stride, padding, dilation: two numbers each, for rows and columns.

    Returns:
        (C, 1, *kernel) in the dtype of the maps. A weight that meets nothing but padding has
        gradient 0.
    """
    geometry = zip(
        kernel, maps.shape[2:], gradient.shape[2:], stride, padding, dilation, strict=True
    )
    rows, columns = (_overlaps(*side) for side in geometry)
    # Channels last: the sums over everything else then run along them.
    maps = maps.permute(0, 2, 3, 1)
    gradient = gradient.permute(0, 2, 3, 1)
    of_weight = maps.new_zeros(*kernel, maps.shape[-1])
    for (i, seen_y, y), (j, seen_x, x) in product(rows, columns):
        of_weight[i, j] = (maps[:, seen_y, seen_x] * gradient[:, y, x]).sum((0, 1, 2))
    return of_weight.permute(2, 0, 1).unsqueeze(1)


def _overlaps(
    kernel: int, side: int, outputs: int, stride: int, padding: int, dilation: int
) -> list[tuple[int, slice, slice]]:
    """Return each row of a kernel that meets rows of the map, with those rows and the outputs they
    count for.
    """
    found = []
    for row in range(kernel):
        shift = row * dilation - padding
        first = max(0, -(shift // stride))
        last = min(outputs - 1, (side - 1 - shift) // stride)
        if first <= last:
            seen = slice(first * stride + shift, last * stride + shift + 1, stride)
            found.append((row, seen, slice(first, last + 1)))
    return found

"""Low-rank changes of frozen linear layers."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

RANK = 8
"""r: the rank of a layer's change; at most the smaller of the layer's two sizes."""


class AdaptedLinear(nn.Linear):
    """A frozen linear layer and a low-rank change of it: ``y = W x + b + B (A x)``.

    A (r, inputs) is drawn once and frozen with W, B (outputs, r) begins at zero and is all that
    trains. The mean of several layers' changes is therefore the change by the mean of their B:
    ``mean(B_i A) = mean(B_i) A``.

    Source: Hu et al., *LoRA*, ICLR 2022; A frozen as in Sun et al., *Improving LoRA in
    privacy-preserving federated learning* (FFA-LoRA), ICLR 2024.

    Deviates: LoRA's factor alpha / r is 1. With B alone trained it would only scale steps and
    weights alike.

    Shape: (..., inputs) to (..., outputs).
    """

    down: Tensor

    def __init__(self, layer: nn.Linear) -> None:
        outputs, inputs = layer.weight.shape
        super().__init__(inputs, outputs, bias=layer.bias is not None, device="meta")
        self.bias = layer.bias
        self.register_parameter("weight", layer.get_parameter("weight"))
        rank = min(RANK, inputs, outputs)
        self.register_buffer(
            "down", nn.init.kaiming_uniform_(torch.empty(rank, inputs), a=math.sqrt(5))
        )
        self.up = nn.Linear(rank, outputs, bias=False, device="meta")
        self.up.weight = nn.Parameter(torch.zeros(outputs, rank))

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """``W + B A``: BEiT, EVA and Swin v2 read the weights and do not call the layer."""
        change: Tensor = self.up.weight @ self.down
        return self._frozen() + change

    def _frozen(self) -> Tensor:
        frozen = self._parameters["weight"]
        # torch's linear layer has registered it.
        assert frozen is not None
        return frozen

    # The argument has torch's name.
    def forward(self, input: Tensor) -> Tensor:
        """Return ``W x + b + B (A x)``."""
        change: Tensor = self.up(F.linear(input, self.down))
        return F.linear(input, self._frozen(), self.bias) + change


def adapt(net: nn.Module, head: nn.Module) -> list[str]:
    """Replace each linear layer of a network by an :class:`AdaptedLinear`.

    Args:
        net: the network, which is changed.
        head: modules whose layers stay.

    Returns:
        Paths of the new layers' B, in the order of the layers; none if the network has no linear
        layer outside of ``head``.
    """
    excluded = set(head.modules())
    layers = {}
    for path, module in net.named_modules():
        if type(module) is nn.Linear and module not in excluded:
            layers[path] = module
    for path, layer in layers.items():
        parent, _, name = path.rpartition(".")
        net.get_submodule(parent).add_module(name, AdaptedLinear(layer))
    return [f"{path}.up" for path in layers]

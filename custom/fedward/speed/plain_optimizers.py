"""torch's optimisers without the marks for torch's compiler.

What: subclasses an optimiser of torch and replaces ``step``, ``zero_grad`` and ``add_param_group``
by the functions that torch has wrapped there. ``step`` runs without gradients, as torch's does. The
numbers are the same bit for bit.

Why: the wrappers ask torch's compiler (``torch._dynamo``) to leave them out, and import all of it
to ask. Nothing here compiles a network.

Versions: torch 2.14. Where a version wraps fewer methods, those are taken as they are.

Ratio, by CPU time of two pairs of runs of the job ``fedavg`` with two sites and two rounds: 1.15
(1.11 to 1.19) in FLARE's simulator, 1.29 in one process; ``python benchmarks/tricks.py
plain_optimizers``.
"""

from inspect import unwrap

import torch
from torch.optim import Optimizer

_MARKED = ("add_param_group", "zero_grad")


def without_compiler(kind: type[Optimizer]) -> type[Optimizer]:
    """Return a class that optimises as ``kind`` does and does not import torch's compiler.

    Args:
        kind: one of torch's optimisers, such as ``torch.optim.Adam``.
    """
    methods = {name: unwrap(getattr(kind, name)) for name in _MARKED}
    methods["step"] = torch.no_grad()(unwrap(kind.step))
    return type(kind.__name__, (kind,), methods)

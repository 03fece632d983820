"""Random generators derived from (seed, what for): the same on every machine and in every process order.

Importing this module does not import torch, which looking at a site's files does not need.
"""

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def derive(seed: int, *purpose: str | int) -> int:
    """Return a 63-bit seed for one purpose, such as ``derive(7, "views", "site-3", round)``.

    Equal arguments give equal seeds on every platform; different purposes give unrelated streams,
    so drawing more numbers for one purpose never shifts another.
    """
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in (seed, *purpose))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def numpy_generator(seed: int, *purpose: str | int) -> np.random.Generator:
    """Return a numpy generator for one purpose (see :func:`derive`)."""
    return np.random.default_rng(derive(seed, *purpose))


def torch_generator(seed: int, *purpose: str | int) -> "torch.Generator":
    """Return a CPU torch generator for one purpose (see :func:`derive`).

    Always on the CPU: numbers drawn there and moved are equal whatever device trains.
    """
    import torch

    return torch.Generator().manual_seed(derive(seed, *purpose))

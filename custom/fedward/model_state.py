"""The type of a model's tensors, which all parts of the package share."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import torch

State: TypeAlias = Mapping[str, "torch.Tensor"]
"""A model's state_dict: name -> CPU tensor. It may read its tensors from disk, one at a time."""

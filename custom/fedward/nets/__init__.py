"""Backbones by name."""

from fedward.nets.build import build, require_logits
from fedward.nets.small_cnn import SmallCNN
from fedward.registry import image_size

__all__ = ["SmallCNN", "build", "image_size", "require_logits"]

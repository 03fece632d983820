"""Backbones by name."""

from fedward.nets.build import build, image_size
from fedward.nets.small_cnn import SmallCNN

__all__ = ["SmallCNN", "build", "image_size"]

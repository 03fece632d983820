"""Backbones by name."""

from fedward.nets.build import build
from fedward.nets.small_cnn import SmallCNN

__all__ = ["SmallCNN", "build"]

"""Backbones by name."""

from fedward.nets.build import build, classifier_tensors, require_logits
from fedward.nets.small_cnn import SmallCNN
from fedward.registry import image_size

__all__ = ["SmallCNN", "build", "classifier_tensors", "image_size", "require_logits"]

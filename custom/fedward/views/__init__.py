"""Weak and strong pictures of one image: drawn per sample, computed per batch."""

from fedward.views.strong import strong
from fedward.views.weak import weak

__all__ = ["strong", "weak"]

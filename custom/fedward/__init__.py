"""fedward: federated learning for hospitals that are short of labels, on NVIDIA FLARE."""

__version__ = "0.1.0"

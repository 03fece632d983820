"""When a run gives up because nothing comes of its rounds."""

EMPTY_ROUNDS_IN_A_ROW = 3
"""Rounds, or exchanges, in a row without a result after which a run ends.

The server counts exchanges without a usable update, and methods with two groups count rounds
without an average. A run that is resumed begins both counts again.
"""

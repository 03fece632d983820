"""When a run gives up because nothing comes of its rounds."""

EMPTY_ROUNDS_IN_A_ROW = 3
"""Rounds in a row without a result after which a run ends.

The server counts exchanges without a usable update, as many as these rounds have at most. Methods
with two groups count rounds without an average. A run that is resumed begins both counts again.
"""

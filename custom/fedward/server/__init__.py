"""The server's loop, and what it tells of a run."""

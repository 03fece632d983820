"""What a person sees of a run while it goes on: rows, JSON events, a line of progress."""

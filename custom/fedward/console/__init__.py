"""What a person sees of a run while it goes on: lines, events in JSON, a line of progress."""

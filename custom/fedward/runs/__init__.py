"""What a finished or a running run folder says: rows, metrics, outcome, tables."""

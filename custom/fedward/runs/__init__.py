"""What the folder of a finished or running run says: rows, metrics, outcome, who brought what."""

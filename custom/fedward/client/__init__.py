"""A site: its data, training, answers, and what it keeps."""

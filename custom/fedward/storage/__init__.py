"""What a run leaves on disk: its folder, logs, models, states, and chains of hashed lines."""

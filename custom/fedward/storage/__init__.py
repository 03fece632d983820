"""What a run leaves on disk: its folder, logs, models and states, and chains of lines that hold
hashes.
"""

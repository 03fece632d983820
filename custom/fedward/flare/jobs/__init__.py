"""Jobs: written as FLARE reads them, sent to a federation or a simulator, watched, and fetched."""

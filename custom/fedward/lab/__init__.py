"""The laboratory: simulated sites, synthetic images, divided data sets, and comparisons of methods."""

"""The laboratory: simulated sites, synthetic images, data sets cut into sites, and studies."""

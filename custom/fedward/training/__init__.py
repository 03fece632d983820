"""Training and evaluating one model at one site."""

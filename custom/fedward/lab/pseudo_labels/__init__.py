"""How often the pseudo-labels of a simulated run are right, by the labels that the run hides."""

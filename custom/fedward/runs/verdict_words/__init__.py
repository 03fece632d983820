"""The sentences of a verdict; every page and command has its sentences on a model from here."""

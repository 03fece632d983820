"""The FLARE engine: a controller at the server, an executor at each site, and the jobs that name them.

Importing the executor imports neither torch nor MONAI: with fewer simulator threads than sites every site's process
starts anew each round, and most of them have nothing to do.
"""

"""NVIDIA FLARE as the engine: a controller at the server, an executor at each site, and messages.

``controller``, ``workflows``, ``executor``, ``transport`` and ``shareables`` run a job, with
``launchers`` for its processes, ``places`` for its files, and the filter of ``privacy``.
``classes`` lists what jobs may name. ``jobs/`` writes, sends and watches jobs. ``kits/`` writes and
checks startup kits.

Importing the executor imports neither torch nor MONAI: with fewer simulator threads than sites,
every site's process is started again in each round, and most of them have nothing to do.
"""

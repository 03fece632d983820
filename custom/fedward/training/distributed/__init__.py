"""One site's training in several processes, one for each of its GPUs: who computes what, and how
they start and end.
"""

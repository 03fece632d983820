"""One site's training in several processes, one for each of its GPUs."""

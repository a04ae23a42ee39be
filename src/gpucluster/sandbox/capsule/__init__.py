"""One process tree in its own namespaces and control groups."""

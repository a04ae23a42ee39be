"""What will be: the resolved cluster, read by everything to its right, also on nodes."""

"""A real slurmctld with slurmds in namespaces of its own, driven by a script, and what it did as JSON lines."""

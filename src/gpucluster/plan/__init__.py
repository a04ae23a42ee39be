"""The resolved cluster. All later steps read it, also on nodes."""

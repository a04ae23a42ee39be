"""The verbs; composes what siblings may not see of each other."""

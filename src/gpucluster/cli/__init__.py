"""The verbs; composes what sibling rooms may not see of each other."""

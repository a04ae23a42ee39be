"""The boot steps of each kind of machine: head, standby, login, node, existing host."""

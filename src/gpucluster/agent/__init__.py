"""The agent: the program that boots and watches a machine of the cluster, and its systemd units."""

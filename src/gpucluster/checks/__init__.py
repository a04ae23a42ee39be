"""Checks of a cluster's health. Each has queries, a parser, a rule and a remedy; `table.CHECKS` has those of Slurm's
machines, `kubernetes.table` those of Kubernetes, `node_health` the programs that a node runs on itself.

Standard library only, so that machines can run them.
"""

"""Checkers of Kubernetes manifests: what an API server, its webhooks and a scheduler would refuse, before there is one."""

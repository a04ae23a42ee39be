"""A plan to Kubernetes manifests, and the checkers of such manifests."""

from gpucluster.k8s.render import render

__all__ = ["render"]

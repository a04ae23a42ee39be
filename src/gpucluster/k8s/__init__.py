"""Render a plan to Kubernetes manifests, and check such manifests."""

from gpucluster.k8s.render import kinds, render

__all__ = ["kinds", "render"]

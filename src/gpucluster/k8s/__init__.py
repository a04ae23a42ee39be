"""Render a plan to Kubernetes manifests, and check such manifests."""

from gpucluster.k8s.render import render

__all__ = ["render"]

"""Checks of a Kubernetes cluster: what its API server says (`Location.API`), and what `gpucluster k8s status` says (`Location.STATUS`)."""

"""A plan to Kubernetes manifests, and the checkers of such manifests."""

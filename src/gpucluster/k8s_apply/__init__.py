"""Apply a rendered tree to a Kubernetes cluster with kubectl and helm, show what is there, and take it away."""

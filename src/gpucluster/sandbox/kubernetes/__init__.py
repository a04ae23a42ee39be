"""A real Kubernetes control plane on this machine: etcd, API server, controllers, scheduler, Kueue, JobSet.

The nodes are kwok's: their pods have states, and no containers run. Everything listens on 127.0.0.1.
"""

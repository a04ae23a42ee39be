"""The condition that says that an object of a kind works. `k8s up` and Flux wait for it. Deployments and claims have rules of their own.

Sources: Kueue's v1beta2 (Active), Karpenter's v1 (Ready), LeaderWorkerSet's v1 (Available).
"""

CONDITIONS = {  # apiVersion and kind -> type of the condition that must be True
    ("karpenter.k8s.aws/v1", "EC2NodeClass"): "Ready",
    ("karpenter.sh/v1", "NodePool"): "Ready",
    ("kueue.x-k8s.io/v1beta2", "ClusterQueue"): "Active",
    ("kueue.x-k8s.io/v1beta2", "LocalQueue"): "Active",
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"): "Available",
}

"""The order in which the files are applied: a wave needs what stands in the waves before it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wave:
    """A folder of the tree."""

    folder: str
    holds: str  # for people


CHARTS = Wave("helm", "values for the charts that the rest needs; install these first")
NAMESPACES = Wave("00-namespaces", "a namespace for each team")
ACCESS = Wave("10-access", "rights, limits and network borders, before anything runs inside them")
NODES = Wave("20-nodes", "where Karpenter gets the nodes that come and go")
QUEUES = Wave("30-queues", "flavors, quotas, queues and priorities: what pods name must be there")
STORAGE = Wave("40-storage", "volumes and claims that pods mount")
SERVICES = Wave("50-services", "what answers requests")
TRAINING = Wave("60-training", "gangs")

WAVES = (NAMESPACES, ACCESS, NODES, QUEUES, STORAGE, SERVICES, TRAINING)

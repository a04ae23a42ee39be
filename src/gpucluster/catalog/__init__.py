"""What the world offers: machine types, zones, and what each Slurm version knows. Data with a source and a date."""

from gpucluster.catalog.model import (
    Catalog,
    Chart,
    Crd,
    Gpu,
    KubernetesFacts,
    Machine,
    MigProfile,
    Prices,
    SlurmFacts,
)
from gpucluster.catalog.read import (
    crd_schema,
    crd_schemas,
    kubernetes_charts,
    kubernetes_facts,
    load,
    prices,
    slurm_facts,
)

__all__ = [
    "Catalog",
    "Chart",
    "Crd",
    "Gpu",
    "KubernetesFacts",
    "Machine",
    "MigProfile",
    "Prices",
    "SlurmFacts",
    "crd_schema",
    "crd_schemas",
    "kubernetes_charts",
    "kubernetes_facts",
    "load",
    "prices",
    "slurm_facts",
]

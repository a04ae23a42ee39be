"""What the world offers: machine types, zones, and what each Slurm version knows. Data with a source and a date."""

from gpucluster.catalog.model import Catalog, Gpu, Machine, SlurmFacts
from gpucluster.catalog.read import load, slurm_facts

__all__ = ["Catalog", "Gpu", "Machine", "SlurmFacts", "load", "slurm_facts"]

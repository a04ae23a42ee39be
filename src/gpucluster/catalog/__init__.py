"""What the world offers: machine types, zones, and what each Slurm version knows. Data with a source and a date."""

from gpucluster.catalog.model import Catalog, Gpu, Machine, Prices, SlurmFacts
from gpucluster.catalog.read import load, prices, slurm_facts

__all__ = ["Catalog", "Gpu", "Machine", "Prices", "SlurmFacts", "load", "prices", "slurm_facts"]

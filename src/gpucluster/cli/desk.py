"""What `plan` and `render` share: a spec file to its plan."""

from dataclasses import dataclass
from pathlib import Path

from gpucluster.catalog import Catalog
from gpucluster.plan.model import ClusterPlan
from gpucluster.spec import ClusterSpec, Problem


@dataclass(frozen=True, slots=True)
class Desk:
    """A spec that passed, what it became, and the warnings on the way."""

    spec: ClusterSpec
    catalog: Catalog
    plan: ClusterPlan
    warnings: tuple[Problem, ...]


def resolve_file(file: Path) -> Desk:
    """Read and resolve; SpecError or GpuclusterError."""
    from gpucluster import catalog as catalogs
    from gpucluster.plan.resolve import resolve
    from gpucluster.spec import inspect

    report = inspect(file)
    spec, catalog = report.result(), catalogs.load()
    return Desk(spec, catalog, resolve(spec, catalog), report.problems)

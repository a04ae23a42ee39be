"""What verbs at the desk share: a spec file to its plan, and what stands beside it."""

import os
from dataclasses import dataclass
from pathlib import Path

from gpucluster.catalog import Catalog
from gpucluster.errors import GpuclusterError
from gpucluster.plan.model import Bindings, ClusterPlan
from gpucluster.plan.workloads import Workloads
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


def workloads_beside(file: Path, desk: Desk) -> tuple[Workloads | None, tuple[Problem, ...]]:
    """What runs on the cluster: `../workloads/NAME.yaml` seen from its spec, if it is there; and its warnings."""
    from gpucluster.plan.running import workloads
    from gpucluster.spec import inspect_workloads

    beside = file.parent / ".." / "workloads" / f"{desk.spec.name}.yaml"
    if desk.plan.kubernetes is None or not beside.is_file():
        return None, ()
    report = inspect_workloads(Path(os.path.normpath(beside)), desk.spec)
    return workloads(report.result(), desk.plan.kubernetes), report.problems


def bindings_of(file: Path | None) -> Bindings | None:
    """What the cloud said, from a file; GpuclusterError for what is none."""
    from gpucluster.plan import codec

    if file is None:
        return None
    step = "name the bindings.json that `pulumi up` wrote"
    try:
        return codec.loads(Bindings, file.read_bytes())
    except OSError as error:
        raise GpuclusterError(f"{file}: cannot be read: {error.strerror}", next_step=step) from error
    except (ValueError, RecursionError) as error:
        raise GpuclusterError(f"{file}: not bindings: {error}", next_step=step) from error

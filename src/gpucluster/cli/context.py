"""Shared by the commands: find a spec file, resolve it to a plan, and read the files beside it."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gpucluster.catalog import Catalog
from gpucluster.errors import GpuclusterError
from gpucluster.plan.model import Bindings, ClusterPlan, Lustre
from gpucluster.plan.model.workloads import Workloads
from gpucluster.spec import ClusterSpec, Problem


@dataclass(frozen=True, slots=True)
class ResolvedSpec:
    """A valid spec, its plan, and the warnings."""

    spec: ClusterSpec
    catalog: Catalog
    plan: ClusterPlan
    warnings: tuple[Problem, ...]


def resolve_file(file: Path) -> ResolvedSpec:
    """Read and resolve; SpecError or GpuclusterError."""
    from gpucluster import catalog as catalogs
    from gpucluster.plan.resolve import resolve
    from gpucluster.spec import inspect

    report = inspect(file)
    spec, catalog = report.result(), catalogs.load()
    return ResolvedSpec(spec, catalog, resolve(spec, catalog), report.problems)


def workloads_beside(file: Path, resolved: ResolvedSpec) -> tuple[Workloads | None, tuple[Problem, ...]]:
    """Return the workloads in `../workloads/NAME.yaml` beside the spec, if the file exists, and its warnings."""
    from gpucluster.plan.resolve.workloads import workloads
    from gpucluster.spec import inspect_workloads

    beside = file.parent / ".." / "workloads" / f"{resolved.spec.name}.yaml"
    if resolved.plan.kubernetes is None or not beside.is_file():
        return None, ()
    report = inspect_workloads(Path(os.path.normpath(beside)), resolved.spec)
    return workloads(report.result(), resolved.plan.kubernetes), report.problems


def bindings_of(file: Path | None, plan: ClusterPlan) -> Bindings | None:
    """Read bindings.json. GpuclusterError if it is not valid or does not fit the plan."""
    from gpucluster.plan import codec

    if file is None:
        return None
    step = "name the bindings.json of `pulumi up`"
    try:
        found = codec.loads(Bindings, file.read_bytes())
    except OSError as error:
        raise GpuclusterError(f"{file}: cannot be read: {error.strerror}", next_step=step) from error
    except ValueError as error:
        raise GpuclusterError(f"{file}: not a bindings file: {error}", next_step=step) from error
    for complaint in _binding_problems(found, plan):
        raise GpuclusterError(
            f"{file}: {complaint}", next_step="use the values of `aws fsx describe-file-systems`"
        )
    return found


def _binding_problems(bindings: Bindings, plan: ClusterPlan) -> Iterator[str]:
    """Yield file systems that the spec does not mount, and values that have not FSx's form."""
    mounted = {mount.path for mount in plan.storage if isinstance(mount.source, Lustre)}
    for path, found in sorted(bindings.file_systems.items()):
        if path not in mounted:
            yield f"file_systems has {path!r}, which the spec does not mount"
        for key, form in _FORMS.items():
            value = getattr(found, key)
            if not form.fullmatch(value):
                yield f"file_systems[{path!r}].{key} is {value!r}, which is not valid"


_FORMS = {  # the forms that FSx uses
    "id": re.compile("fs-[0-9a-f]{8,40}"),
    "dns_name": re.compile(r"fs-[0-9a-f]{8,40}\.fsx\.[a-z0-9-]{1,40}\.amazonaws\.com(?:\.cn)?"),
    "mount_name": re.compile("[a-z0-9]{1,8}"),
}

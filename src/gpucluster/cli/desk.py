"""What verbs at the desk share: a spec file to its plan, and what stands beside it."""

import os
import re
from collections.abc import Iterator
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


def spec_of(word: str) -> Path:
    """A file as it is named, else the stack of that name; it need not be there."""
    stack = _stack(word)
    if stack is None or os.path.isfile(word):  # noqa: PTH113  a Path raises where the name is too long
        return Path(word)
    return stack if os.path.isfile(stack) else Path(word)  # noqa: PTH113  the same


def the_spec(word: str) -> Path:
    """The same for verbs that need one: of a name without a file, a GpuclusterError that says where it was looked for."""
    file, stack = spec_of(word), _stack(word)
    if stack is None or os.path.exists(file):  # noqa: PTH110  the same
        return file
    known = ", ".join(sorted(path.stem for path in stack.parent.glob("*.yaml")))
    raise GpuclusterError(
        f"{word}: neither a file, nor a cluster of this folder: there is no {stack}",
        next_step=f"name a file, or one of {known}"
        if known
        else "name a spec, for example stacks/burst.yaml",
    )


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


def bindings_of(file: Path | None, plan: ClusterPlan) -> Bindings | None:
    """What the cloud said, from a file; GpuclusterError for what is none, or is not of this plan."""
    from gpucluster.plan import codec

    if file is None:
        return None
    step = "name the bindings.json that `pulumi up` wrote"
    try:
        found = codec.loads(Bindings, file.read_bytes())
    except OSError as error:
        raise GpuclusterError(f"{file}: cannot be read: {error.strerror}", next_step=step) from error
    except (ValueError, RecursionError) as error:
        raise GpuclusterError(f"{file}: not bindings: {error}", next_step=step) from error
    for complaint in _strange(found, plan):
        raise GpuclusterError(f"{file}: {complaint}", next_step="take the values that `aws fsx` shows")
    return found


def _stack(word: str) -> Path | None:
    """Where the stack of that name would be; None: it is no name, but a path."""
    return None if "/" in word or word.endswith((".yaml", ".yml")) else Path("stacks") / f"{word}.yaml"


def _strange(bindings: Bindings, plan: ClusterPlan) -> Iterator[str]:
    """File systems that are none, or that the spec does not mount: a volume with a made-up id would pass every check."""
    mounted = {mount.path for mount in plan.storage if mount.lustre is not None}
    for path, found in sorted(bindings.file_systems.items()):
        if path not in mounted:
            yield f"file_systems has {path!r}, which the spec does not mount"
        for key, form in _FORMS.items():
            value = getattr(found, key)
            if not form.fullmatch(value):
                yield f"file_systems[{path!r}].{key} is {value!r}, which is none"


_FORMS = {  # as FSx gives them
    "id": re.compile("fs-[0-9a-f]{8,40}"),
    "dns_name": re.compile(r"fs-[0-9a-f]{8,40}\.fsx\.[a-z0-9-]{1,40}\.amazonaws\.com(?:\.cn)?"),
    "mount_name": re.compile("[a-z0-9]{1,8}"),
}

"""How a rehearsal differs from AWS, read from `differences.toml`: applied to the plan and printed by `sandbox up`.

The file lists the differences of each rehearsal. `preexisting.explain` adds the resources that a spec names by id: the sandbox creates them.
"""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from gpucluster.plan.model import (
    AwsPool,
    ClusterPlan,
    Mount,
    Nfs,
    OtherMount,
    SlurmLine,
    SlurmOnAws,
    SlurmOnHosts,
    SlurmPlan,
)
from gpucluster.sandbox import host_checks
from gpucluster.sandbox.host_checks import CgroupMode
from gpucluster.sandbox.state_dir import SandboxDir

P = TypeVar("P", bound=SlurmOnAws | SlurmOnHosts)
_REMOTE = "remote"  # the path of mount.remote in the sandbox's image
_FILE = Path(__file__).with_name("differences.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One difference: subject, reason, cgroup mode (None: every mode), condition, and its Slurm line if it has one."""

    what: str
    because: str
    when: CgroupMode | None = None
    on: str | None = None  # "aws" or "hosts"; None = both
    of: str | None = None  # only for a plan with "storage", "volumes", "accounting" or "containers"
    line: SlurmLine | None = None


def apply(plan: P, mode: CgroupMode, *, real_times: bool = False) -> P:
    """Return the plan with the differences applied; nothing else changes."""
    lines = tuple(row.line for row in rows(mode, mode_of(plan)) if row.line is not None)
    containers = None if _marked("left_out", "containers", mode_of(plan)) else plan.slurm.containers
    changed = replace(
        plan,
        slurm=replace(plan.slurm, lines=(*plan.slurm.lines, *lines), containers=containers),
        storage=tuple(_stood_in(mount, mode_of(plan)) for mount in plan.storage),
    )
    return changed if real_times else _shortened(changed)


def in_sandbox(plan: ClusterPlan, home: SandboxDir) -> ClusterPlan:
    """Return the plan with the differences of this sandbox on this host."""
    if not isinstance(plan, SlurmOnAws | SlurmOnHosts):
        return plan
    mode = host_checks.cgroup_mode(host_checks.cgroup_trees(Path("/proc/self/mountinfo").read_text()))
    return apply(plan, mode, real_times=home.real_times)


def rows(mode: CgroupMode, on: str = "aws") -> tuple[Difference, ...]:
    """The differences that apply to this host and plan, in the file's order."""
    return tuple(row for row in _read() if row.when in (None, mode) and row.on in (None, on))


def mode_of(plan: SlurmPlan) -> str:
    """Return the mode of the plan, as differences.toml names it."""
    return "aws" if plan.hosts is None else "hosts"


def explain(plan: SlurmPlan, mode: CgroupMode, *, real_times: bool = False) -> tuple[str, ...]:
    """Every difference as a sentence; shortened times stand beside the plan's own."""
    parts = {
        "storage": plan.storage,
        "volumes": _volumes(plan),
        "accounting": plan.slurm.accounting,
        "containers": plan.slurm.containers,
    }
    has = {None, *(name for name, part in parts.items() if part)}
    sentences = [f"{row.what}: {row.because}" for row in rows(mode, mode_of(plan)) if row.of in has]
    return (*sentences, *(() if real_times else _explain_times(plan)))


def of_kubernetes() -> tuple[str, ...]:
    """Every difference of a rehearsal with Kubernetes as a sentence."""
    return tuple(f"{row['what']}: {row['because']}" for row in _file()["kubernetes"])


def _marked(key: str, value: str, on: str) -> bool:
    """Return whether a `thing` of the file has this value of `stand_in` or `left_out`."""
    return any(row.get(key) == value and row.get("on") in (None, on) for row in _file()["thing"])


def _stood_in(mount: Mount, on: str) -> Mount:
    if isinstance(mount.source, Nfs) and _marked("stand_in", "nfs", on):
        return replace(mount, source=replace(mount.source, stand_in=True))
    if isinstance(mount.source, OtherMount) and _marked("stand_in", "other", on):
        return replace(mount, source=replace(mount.source, type=_REMOTE))
    return mount


def _volumes(plan: SlurmPlan) -> bool:
    return bool(plan.head.volumes)


def _shortened(plan: P) -> P:
    times = {name: min(value, getattr(plan.times, name)) for name, value in _times("cluster").items()}
    pools = tuple(replace(pool, **_pool_times(pool)) for pool in plan.pools if isinstance(pool, AwsPool))
    shortened = replace(plan, times=replace(plan.times, **times))
    return replace(shortened, pools=pools) if pools else shortened


def _pool_times(pool: AwsPool) -> dict[str, Any]:
    return {name: min(value, getattr(pool, name)) for name, value in _times("pool").items()}


def _explain_times(plan: SlurmPlan) -> Iterable[str]:
    for name, value in _times("cluster").items():
        if value < getattr(plan.times, name):
            yield f"times.{name} {value:g} instead of {getattr(plan.times, name):g}"
    for pool in plan.pools:
        for name, value in _times("pool").items():
            if value < getattr(pool, name):
                yield f"pools[{pool.name}].{name} {value:g} instead of {getattr(pool, name):g}"


def _times(group: str) -> Mapping[str, Any]:
    return _file()["times"][group]


@cache
def _read() -> tuple[Difference, ...]:
    file = _file()
    things = (
        Difference(what=row["what"], because=row["because"], on=row.get("on"), of=row.get("of"))
        for row in file["thing"]
    )
    return (*things, *(_slurm(row) for row in file["slurm"]))


def _slurm(row: Mapping[str, str]) -> Difference:
    value = row.get("value")
    change = "is left out" if value is None else f"is {value}"
    return Difference(
        what=f"{row['file']}: {row['key']} {change}",
        because=row["because"],
        when=CgroupMode(row["when"]) if "when" in row else None,
        on=row.get("on"),
        of=row.get("of"),
        line=SlurmLine(file=row["file"], key=row["key"], value=value),
    )


@cache
def _file() -> Mapping[str, Any]:
    return tomllib.loads(_FILE.read_text())

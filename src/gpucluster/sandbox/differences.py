"""What differs in a rehearsal, read from `differences.toml`: applied to the plan, and printed by `sandbox up`.

One file, so that whoever trusts a rehearsal can read what it did not rehearse.
"""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from gpucluster.plan.model import ClusterPlan, Mount, Pool, SlurmLine, there
from gpucluster.sandbox.host import CgroupMode

_REMOTE = "remote"  # mount.remote of the sandbox's image
_FILE = Path(__file__).with_name("differences.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One row: what differs, why, in which cgroup mode (None = in each), on what; a Slurm line, if it is one."""

    what: str
    because: str
    when: CgroupMode | None = None
    on: str | None = None  # "aws" or "hosts"; None = both
    of: str | None = None  # said only of a plan with "storage" or "volumes"
    line: SlurmLine | None = None


def apply(plan: ClusterPlan, mode: CgroupMode, *, real_times: bool = False) -> ClusterPlan:
    """Return the plan as the sandbox runs it; nothing that is not in the file changes."""
    lines = tuple(row.line for row in rows(mode, stands_on(plan)) if row.line is not None)
    changed = replace(
        plan,
        slurm=replace(there(plan.slurm), lines=(*there(plan.slurm).lines, *lines)),
        storage=tuple(_stood_in(mount, stands_on(plan)) for mount in plan.storage),
    )
    return changed if real_times else _shortened(changed)


def rows(mode: CgroupMode, on: str = "aws") -> tuple[Difference, ...]:
    """The rows that hold on such a host for such a plan, in the file's order."""
    return tuple(row for row in _read() if row.when in (None, mode) and row.on in (None, on))


def stands_on(plan: ClusterPlan) -> str:
    """In the file's words."""
    return "aws" if plan.hosts is None else "hosts"


def explain(plan: ClusterPlan, mode: CgroupMode, *, real_times: bool = False) -> tuple[str, ...]:
    """Every difference as a sentence, the times with the plan's own beside them."""
    has = {None, *(("storage",) if plan.storage else ()), *(("volumes",) if _volumes(plan) else ())}
    said = [f"{row.what}: {row.because}" for row in rows(mode, stands_on(plan)) if row.of in has]
    return (*said, *(() if real_times else _explain_times(plan)))


def _stands_in(kind: str, on: str) -> bool:
    return any(row.get("stand_in") == kind and row.get("on") in (None, on) for row in _file()["thing"])


def _stood_in(mount: Mount, on: str) -> Mount:
    if mount.nfs is not None and _stands_in("nfs", on):
        return replace(mount, nfs=replace(mount.nfs, stand_in=True))
    if mount.other is not None and _stands_in("other", on):
        return replace(mount, other=replace(mount.other, type=_REMOTE))
    return mount


def _volumes(plan: ClusterPlan) -> bool:
    return plan.head is not None and bool(plan.head.volumes)


def _shortened(plan: ClusterPlan) -> ClusterPlan:
    times = {name: min(value, getattr(plan.times, name)) for name, value in _times("cluster").items()}
    pools = tuple(replace(pool, **_pool_times(pool)) for pool in plan.pools)
    return replace(plan, times=replace(plan.times, **times), pools=pools)


def _pool_times(pool: Pool) -> dict[str, Any]:
    return {name: min(value, getattr(pool, name)) for name, value in _times("pool").items()}


def _explain_times(plan: ClusterPlan) -> Iterable[str]:
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
    said = "is left out" if value is None else f"is {value}"
    return Difference(
        what=f"{row['file']}: {row['key']} {said}",
        because=row["because"],
        when=CgroupMode(row["when"]) if "when" in row else None,
        on=row.get("on"),
        line=SlurmLine(file=row["file"], key=row["key"], value=value),
    )


@cache
def _file() -> Mapping[str, Any]:
    return tomllib.loads(_FILE.read_text())

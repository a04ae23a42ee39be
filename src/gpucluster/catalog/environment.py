"""The environment of NCCL, EFA and InfiniBand by fabric and machine type. Sources are in `data/fabric-env.json`."""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from gpucluster.catalog.data_files import read_data
from gpucluster.plan.model import JobEnvironment, Variable

EFA, ETHERNET = "efa", "ethernet"
FABRICS = (EFA, "infiniband", "roce", ETHERNET)


def of_pool(fabric: str, machines: Sequence[str], *, nodes: int) -> JobEnvironment:
    """Return the environment of jobs on up to `nodes` nodes that may be any of `machines`; ValueError for an unknown fabric."""
    if fabric not in FABRICS:
        raise ValueError(f"fabric {fabric!r}, expected one of {', '.join(FABRICS)}")
    return JobEnvironment(
        fabric=fabric,
        set=set_for(fabric, machines, several=nodes > 1),
        on_symptom=_variables(_rows("on_symptom", fabric, machines)),
        never=_variables(_rows("never", fabric, ())),
    )


def set_for(fabric: str, machines: Sequence[str], *, several: bool) -> tuple[Variable, ...]:
    """Return the variables that are set, sorted by name. `several`: jobs have several nodes."""
    rows = [row for row in _rows("set", fabric, machines) if several or not row["several"]]
    return _variables(rows)


def names_set() -> frozenset[str]:
    """Return the names of all variables that are set for some fabric and machine."""
    return frozenset(row["name"] for row in _table()["set"])


def _rows(kind: str, fabric: str, machines: Sequence[str]) -> list[dict[str, Any]]:
    return [row for row in _table()[kind] if _matches(row, fabric, machines)]


def _matches(row: dict[str, Any], fabric: str, machines: Sequence[str]) -> bool:
    """A row for machine types counts only if every machine of the pool matches: its nodes share one file."""
    prefixes = row.get("machines")
    fits = prefixes is None or (bool(machines) and all(name.startswith(tuple(prefixes)) for name in machines))
    return fits and (row["fabrics"] is None or fabric in row["fabrics"])


def _variables(rows: Iterable[dict[str, Any]]) -> tuple[Variable, ...]:
    found = (
        Variable(name=row["name"], value=row.get("value", ""), reason=row["reason"], source=row["source"])
        for row in rows
    )
    return tuple(sorted(found, key=lambda one: one.name))


@cache
def _table() -> dict[str, Any]:
    return read_data("fabric-env.json")

"""EC2's vCPU quotas by instance family, with source and date."""

import re
from dataclasses import dataclass
from functools import cache

from gpucluster.catalog.data_files import read_data

_FAMILY = re.compile(r"([a-z]+)([0-9]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """One vCPU quota. `families` are letters, or letters with a generation."""

    code: str
    name: str
    market: str  # on-demand, spot
    families: tuple[str, ...]


@cache
def quotas() -> tuple[Quota, ...]:
    """Return the quotas of this release's catalog."""
    rows = read_data("quotas.json")["rows"]
    return tuple(
        Quota(code=row["code"], name=row["name"], market=row["market"], families=tuple(row["families"]))
        for row in rows
    )


def quota_of(machine: str, market: str) -> Quota | None:
    """Return the quota of a machine type; None for a family without a known quota."""
    found = _FAMILY.match(machine)
    if found is None:
        return None
    names = {found[1], found[0]}  # `p`, `p5`
    return next((q for q in quotas() if q.market == market and names & set(q.families)), None)

"""Which of EC2's vCPU quotas a machine counts against. Data with source and date."""

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_FILE = Path(__file__).parent / "data" / "quotas.json"
_FAMILY = re.compile(r"([a-z]+)([0-9]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """One bucket of vCPUs; `families` are letters, or letters with a generation."""

    code: str
    name: str
    market: str  # on-demand, spot
    families: tuple[str, ...]


@cache
def quotas() -> tuple[Quota, ...]:
    """The buckets of this release's catalog."""
    rows = json.loads(_FILE.read_text(encoding="utf-8"))["rows"]
    return tuple(
        Quota(code=row["code"], name=row["name"], market=row["market"], families=tuple(row["families"]))
        for row in rows
    )


def quota_of(machine: str, market: str) -> Quota | None:
    """The bucket; None for a family of which we do not know it."""
    found = _FAMILY.match(machine)
    if found is None:
        return None
    names = {found[1], found[0]}  # `p`, `p5`
    return next((q for q in quotas() if q.market == market and names & set(q.families)), None)

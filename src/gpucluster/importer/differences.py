"""What rendering an imported site changes: every setting of the site and of the rendered files, each in one class.

same       the value is the same, or the site's is Slurm's own and the rendered files have none
moved      the same value has another key
defaulted  only the rendered files have it: gpucluster decides it
lost       only the site's files have it
changed    both have it, with different values; or the site has Slurm's own value, and jobs see the other one
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpucluster.importer import keys
from gpucluster.importer.effects import effect_of
from gpucluster.importer.lines import Effect, FileLine
from gpucluster.importer.made import Made
from gpucluster.importer.reasons import SLURMS_OWN, Change, WhyLost, why
from gpucluster.importer.site import JOB_CONTAINER, Key, Setting, Site
from gpucluster.importer.slurm_defaults import seen_by_jobs
from gpucluster.slurm import hostlist

NOWHERE = FileLine("", 0)
UNSET = "no file of the site sets it, so the site has Slurm's own value"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One key with its values. `names` are the nodes, partitions or switches that it is for; none for a whole file."""

    change: Change
    kind: str
    names: tuple[str, ...]
    key: str
    before: str | None
    after: str | None
    why: str
    place: FileLine | None  # of the site's file
    effect: Effect | None = None


def compare(site: Site, rendered: Site, made: Made, version: str) -> tuple[Difference, ...]:
    """Every setting of both, sorted by class, kind and key; equal rows of several nodes are one row."""
    before, after = _renamed(site, made), rendered.flat()
    why_lost = WhyLost(made, version)
    rows: dict[tuple[object, ...], list[_Cell]] = {}
    for key in dict.fromkeys((*before, *after)):
        old, new = before.get(key), after.get(key)
        if old is not None and new is not None and key in _OF_FILES:
            old = replace(old, value=f"{old.value} of the site")
        kind, name, low = key
        change = _class(kind, low, old, new)
        if change is Change.CHANGED and _same_hosts(key, site, rendered, made):
            change = Change.SAME
        reason = why(change, key, old, new, why_lost)
        if reason == SLURMS_OWN:
            change = Change.SAME
        effect = None if change in (Change.SAME, Change.MOVED) else effect_of(key, old, new, reason)
        if new is not None and change is Change.DEFAULTED and (seen := _seen(key, new, rendered)):
            change, reason = Change.CHANGED, f"{UNSET}: {seen[1]}"
            old = Setting(seen[0], NOWHERE, new.written)
        values = (old is None, new is None) if low in _OF_EACH else (old and old.value, new and new.value)
        written = (new or old or _NOTHING).written
        if kind == "gres.conf" and " " in low:
            written = f"{low.partition(' ')[0]} {written}"  # the GRES, then its attribute
        rows.setdefault((change, kind, written, reason, effect, bool(name), *values), []).append(
            _Cell(name, old, new)
        )
    found = (
        _row(change, kind, written, why, effect, cells)
        for (change, kind, written, why, effect, *_), cells in rows.items()
    )
    order = {change: at for at, change in enumerate(Change)}
    return tuple(
        sorted(
            found,
            key=lambda d: (order[d.change], d.kind, d.key.lower(), d.names, d.before or "", d.after or ""),
        )
    )


@dataclass(frozen=True, slots=True)
class _Cell:
    """One key of one node, partition or file in both."""

    name: str
    old: Setting | None
    new: Setting | None


def _row(change: Any, kind: Any, written: Any, why: Any, effect: Any, cells: list[_Cell]) -> Difference:  # noqa: PLR0917 -- a row
    """One row for cells that differ in their names only; a value of its own for each name becomes a hostlist in their order."""
    return Difference(
        change=change,
        kind=kind,
        names=tuple(cell.name for cell in cells if cell.name),
        key=written,
        before=_values([cell.old for cell in cells]),
        after=_values([cell.new for cell in cells]),
        why=why,
        place=None if cells[0].old is None or cells[0].old.place == NOWHERE else cells[0].old.place,
        effect=effect,
    )


def _values(settings: list[Setting | None]) -> str | None:
    values = [one.value for one in settings if one is not None]
    if not values:
        return None
    return values[0] if len(set(values)) == 1 else hostlist.fold(values)


def _seen(key: Key, new: Setting, rendered: Site) -> tuple[str, str] | None:
    """What jobs see of a value of ours. A job that has its nodes alone has all their CPUs."""
    kind, name, low = key
    if low == "defcpupergpu" and "oversubscribe" in rendered.partitions[name]:
        return None
    return seen_by_jobs(kind, low, new.value)


def _same_hosts(key: Key, site: Site, rendered: Site, made: Made) -> bool:
    """Whether a partition has the same nodes in both, however they are listed."""
    kind, name, low = key
    if (kind, low) != ("partition", "nodes"):
        return False
    old = next((old for old, new in made.partitions.items() if new == name), name)
    members = {made.nodes.get(node, node) for node in site.members(site.partitions[old])}
    return members == set(rendered.members(rendered.partitions[name]))


def counts(found: Iterable[Difference]) -> Mapping[Change, int]:
    """The number of settings of each class, counted for each node and partition."""
    made = dict.fromkeys(Change, 0)
    for one in found:
        made[one.change] += max(1, len(one.names))
    return made


def _renamed(site: Site, made: Made) -> dict[Key, Setting]:
    """The settings of the site under the names of the spec; the values keep the old names, but in lists of nodes."""
    tables = {
        "node": made.nodes,
        "gres.conf": made.nodes,
        JOB_CONTAINER: made.nodes,
        "partition": made.partitions,
        "topology.conf": made.switches,
    }
    found: dict[Key, Setting] = {}
    for (kind, name, key), one in site.flat().items():
        new = tables.get(kind, {}).get(name, name)
        taken = (kind, new, key) in found
        found[kind, name if taken else new, key] = one
    return found


def _class(kind: str, key: str, old: Setting | None, new: Setting | None) -> Change:
    if old is None:
        return Change.DEFAULTED
    if new is None:
        return Change.LOST
    if not keys.same(kind, key, old.value, new.value):
        return Change.CHANGED
    return Change.SAME if old.written.lower() == new.written.lower() else Change.MOVED


_OF_EACH = frozenset(
    ("nodename", "nodeaddr", "nodehostname", "bcastaddr", "port")
)  # each node has its own value
_OF_FILES = (("slurm.conf", "", "jobsubmitplugins"),)  # `lua` names another script in each
_NOTHING = Setting("", NOWHERE, "")

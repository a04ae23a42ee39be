"""What rendering an imported site changes: every setting of the site and of the rendered files, each in one class.

same       the value is the same
moved      the same value has another key
defaulted  only the rendered files have it: gpucluster decides it
lost       only the site's files have it
changed    both have it, with different values
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gpucluster.importer import keys
from gpucluster.importer.lines import Place
from gpucluster.importer.site import Key, Setting, Site
from gpucluster.importer.to_spec import Made
from gpucluster.slurm import hostlist


class Change(StrEnum):
    """The class of a difference, in the order of the report."""

    LOST = "lost"
    CHANGED = "changed"
    MOVED = "moved"
    DEFAULTED = "defaulted"
    SAME = "same"


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
    place: Place | None  # of the site's file


def compare(site: Site, rendered: Site, made: Made, version: str) -> tuple[Difference, ...]:
    """Every setting of both, sorted by class, kind and key; equal rows of several nodes are one row."""
    before, after = _renamed(site, made), rendered.flat()
    why_lost = _WhyLost(made, version)
    rows: dict[tuple[object, ...], list[_Cell]] = {}
    for key in dict.fromkeys((*before, *after)):
        old, new = before.get(key), after.get(key)
        kind, name, low = key
        change = _class(kind, low, old, new)
        if change is Change.CHANGED and _same_hosts(key, site, rendered, made):
            change = Change.SAME
        why = _why(change, key, old, new, why_lost)
        values = (old is None, new is None) if low in _OF_EACH else (old and old.value, new and new.value)
        written = (new or old or _NOTHING).written
        if kind == "gres.conf" and " " in low:
            written = f"{low.partition(' ')[0]} {written}"  # the GRES, then its attribute
        rows.setdefault((change, kind, written, why, bool(name), *values), []).append(_Cell(name, old, new))
    found = (
        _row(change, kind, written, why, cells) for (change, kind, written, why, *_), cells in rows.items()
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


def _row(change: Any, kind: Any, written: Any, why: Any, cells: list[_Cell]) -> Difference:
    """One row for cells that differ in their names only; a value of its own for each name becomes a hostlist in their order."""
    return Difference(
        change=change,
        kind=kind,
        names=tuple(cell.name for cell in cells if cell.name),
        key=written,
        before=_values([cell.old for cell in cells]),
        after=_values([cell.new for cell in cells]),
        why=why,
        place=None if cells[0].old is None else cells[0].old.place,
    )


def _values(settings: list[Setting | None]) -> str | None:
    values = [one.value for one in settings if one is not None]
    if not values:
        return None
    return values[0] if len(set(values)) == 1 else hostlist.fold(values)


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


def _why(change: Change, at: Key, old: Setting | None, new: Setting | None, why_lost: "_WhyLost") -> str:
    if old is None:
        return "the site's files do not set it; gpucluster writes it"
    if new is None:
        return why_lost(at, old)
    if change is Change.MOVED:
        return f"{old.written} is {new.written} now"
    kind, _, key = at
    return "" if change is Change.SAME else _CHANGED.get((kind, key), "gpucluster writes its own value")


@dataclass(frozen=True, slots=True)
class _WhyLost:
    """Why a setting of the site has no place in the rendered files; the first reason that applies."""

    made: Made
    version: str

    def __call__(self, at: Key, old: Setting) -> str:
        kind, name, key = at
        reasons = (
            self.made.left_out.get(name, "") if kind in ("node", "gres.conf") else "",
            "no node of the partition is imported"
            if kind == "partition" and name not in self.made.partitions.values()
            else "",
            _LINES_OF_OTHERS.get(kind, ""),
            "a spec for hosts has one head"
            if kind == "slurm.conf" and key.startswith("slurmctldhost ")
            else "",
            "" if keys.known(kind, old.written, self.version) else _unknown(kind, old.written, self.version),
            "it is Slurm's own default: nothing changes"
            if (kind, key, old.value.lower()) in _SLURMS_DEFAULT
            else "",
            "the hosts of a spec are always on: nothing powers them down" if key in _ELASTIC else "",
            _FILES_OF_OTHERS.get(kind, ""),
            f"not imported: {_PROGRAMS[key]}" if kind == "slurm.conf" and key in _PROGRAMS else "",
            f"not imported: write `{field}`" if (field := _field_of(kind, key)) else "",
        )
        return next((reason for reason in reasons if reason), "the spec has no field for it")


def _field_of(kind: str, key: str) -> str:
    return next((field for of, start, field in _FIELDS if kind == of and key.startswith(start)), "")


def _unknown(kind: str, written: str, version: str) -> str:
    having = keys.versions(kind, written)
    if not having:
        return "no Slurm of 22.05 to 26.05 knows it"
    which = f"{having[0]} does" if len(having) == 1 else f"{having[0]} to {having[-1]} do"
    return f"Slurm {version} does not know it; {which}"


_OF_EACH = frozenset(
    ("nodename", "nodeaddr", "nodehostname", "bcastaddr", "port")
)  # each node has its own value
_NOTHING = Setting("", Place("", 0), "")
_CHANGED = {
    ("slurm.conf", "clustername"): "a spec's name has a-z, 0-9 and '-', and Slurm writes it in lower case",
    ("slurm.conf", "slurmctldhost"): "the head of a spec is a short host name, and no node",
    ("slurm.conf", "slurmctldhost address"): "the head of a spec has an IPv4 address",
    ("node", "nodename"): "a host of a spec has a short name of a-z, 0-9 and '-'",
    ("node", "nodeaddr"): "a host of a spec has an IPv4 address of its own",
    ("node", "state"): "the hosts of a spec are always on; `scontrol update` drains one",
    ("node", "gres"): "a machine of a spec has GPUs of one type, and each type has a name",
    ("partition", "partitionname"): "a partition of a spec has letters, digits, '.', '_' and '-'",
    ("partition", "nodes"): "a partition of a spec has the hosts of its pools",
    ("partition", "maxtime"): "a time of a spec is at most 365 days",
    ("partition", "defaulttime"): "a time of a spec is at most 365 days",
}
_SLURMS_DEFAULT = frozenset(
    (
        ("partition", "hidden", "no"),
        ("partition", "rootonly", "no"),
        ("partition", "disablerootjobs", "no"),
        ("partition", "exclusiveuser", "no"),
        ("partition", "lln", "no"),
        ("partition", "minnodes", "1"),
        ("partition", "minnodes", "0"),
        ("partition", "maxnodes", "unlimited"),
        ("partition", "maxnodes", "infinite"),
        ("partition", "allowgroups", "all"),
        ("partition", "allowaccounts", "all"),
        ("partition", "allowqos", "all"),
        ("partition", "allocnodes", "all"),
        ("partition", "oversubscribe", "no"),
        ("partition", "priorityjobfactor", "1"),
        ("partition", "prioritytier", "1"),
        ("partition", "reqresv", "no"),
        ("partition", "gracetime", "0"),
        ("node", "weight", "1"),
        ("node", "tmpdisk", "0"),
        ("slurm.conf", "killwait", "30"),
        ("slurm.conf", "minjobage", "300"),
        ("slurm.conf", "inactivelimit", "0"),
        ("slurm.conf", "waittime", "0"),
        ("slurm.conf", "switchtype", "switch/none"),
        ("slurm.conf", "mpidefault", "none"),
        ("slurm.conf", "crypto", "crypto/munge"),
        ("slurm.conf", "slurmctlddebug", "info"),
        ("slurm.conf", "slurmddebug", "info"),
        ("slurm.conf", "slurmctlddebug", "3"),
        ("slurm.conf", "slurmddebug", "3"),
        ("slurm.conf", "jobacctgatherfrequency", "30"),
        ("slurm.conf", "jobcomptype", "jobcomp/none"),
        ("slurm.conf", "jobacctgathertype", "jobacct_gather/none"),
        ("slurm.conf", "prioritytype", "priority/multifactor"),
        ("slurm.conf", "slurmduser", "root"),
        ("slurm.conf", "accountingstoragetype", "accounting_storage/none"),
    )
)
_ELASTIC = frozenset(
    (
        "resumeprogram", "suspendprogram", "resumefailprogram", "resumerate", "suspendrate", "suspendtime",
        "suspendtimeout", "suspendexcnodes", "suspendexcparts", "suspendexcstates", "powerdownonidle",
    )
)  # fmt: skip
_FILES_OF_OTHERS = {"slurmdbd.conf": "not imported: write `slurm.accounting`"}
_PROGRAMS = {  # a program of the site: what to do with it
    "healthcheckprogram": "write `health`: gpucluster's checks run on idle nodes",
    "prolog": "write `health`: gpucluster's checks run before each job. What the program prepares belongs into the hosts' own set-up or into `slurm.private_tmp`",
    "epilog": "write `health`: gpucluster's checks run after each job. slurmd itself ends what a job leaves; `slurm.private_tmp` removes its files",
    "taskprolog": "move its variables to the profile of the users, or to a module",
    "taskepilog": "move it to the job scripts",
    "prologslurmctld": "move it to the job scripts",
    "epilogslurmctld": "read the records of accounting instead, or jobs.log",
}
_FIELDS = (  # the beginning of keys, and the field of a spec for the same purpose; its values are other ones
    ("slurm.conf", "accountingstorage", "slurm.accounting"),
    ("slurm.conf", "preempt", "slurm.preemption"),
    ("slurm.conf", "priorityweight", "slurm.accounting"),
    ("slurm.conf", "healthcheck", "health"),
    ("partition", "allowaccounts", "partitions[].accounts"),
    ("partition", "allowqos", "partitions[].allow_qos"),
    ("partition", "qos", "partitions[].qos"),
    ("partition", "maxcpuspernode", "partitions[].max_cpus_per_node"),
)
_LINES_OF_OTHERS = {
    "nodeset": "the partitions of a spec name pools instead",
    "downnodes": "`scontrol update` sets the state of a node",
}

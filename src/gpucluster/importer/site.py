"""The configuration of a site as Slurm reads it: one value for each key of each node, partition and file.

Each value keeps its file and line. Two sites, the files of a user and our rendered files, can be compared key by key. Pure.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from gpucluster.importer import keys
from gpucluster.importer.lines import Complaint, Effect, FileLine, Pair, Statement
from gpucluster.slurm import hostlist
from gpucluster.slurm.hostlist import HostlistError, expand
from gpucluster.text import quoted

MAX_NODES = hostlist.SLURM_MOST
_HOSTLIST_LENGTH = 1 << 20
_BETWEEN = re.compile(r"[\t, \n]+")  # hostlist.c: names are divided by each of them
JOB_CONTAINER = "job_container.conf"

Key = tuple[str, str, str]  # kind, name ("" for a key of the whole file), key in its canonical spelling


@dataclass(frozen=True, slots=True)
class Setting:
    """A value with its place, and the key and file as written."""

    value: str
    place: FileLine
    written: str


Settings = dict[str, Setting]  # canonical key -> setting


@dataclass(frozen=True, slots=True)
class Switch:
    """A line of topology.conf: a switch, or a block. `below` are switches, `nodes` are nodes."""

    name: str
    nodes: tuple[str, ...]
    below: tuple[str, ...]
    block: bool
    place: FileLine


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """One topology of topology.yaml; without switches it is flat."""

    place: FileLine
    default: bool
    switches: dict[str, Switch]
    sizes: Setting | None


@dataclass(slots=True, kw_only=True)
class Site:
    """The configuration of a site."""

    cluster: Settings = field(default_factory=dict[str, Setting])  # slurm.conf without nodes and partitions
    nodes: dict[str, Settings] = field(default_factory=dict[str, Settings])
    partitions: dict[str, Settings] = field(default_factory=dict[str, Settings])
    nodesets: dict[str, Settings] = field(default_factory=dict[str, Settings])
    downnodes: dict[str, Settings] = field(default_factory=dict[str, Settings])
    gres: dict[str, Settings] = field(default_factory=dict[str, Settings])  # by node; "": of no node
    switches: dict[str, Switch] = field(default_factory=dict[str, Switch])
    block_sizes: Setting | None = None
    named: dict[str, Named] = field(default_factory=dict[str, Named])  # of topology.yaml
    others: dict[str, Settings] = field(default_factory=dict[str, Settings])  # by file, such as cgroup.conf
    tmp: dict[str, Settings] = field(default_factory=dict[str, Settings])  # by node, of job_container.conf
    people: dict[str, Settings] = field(default_factory=dict[str, Settings])  # groups by user
    gres_names: frozenset[str] = frozenset()  # of the nodes
    complaints: list[Complaint] = field(default_factory=list[Complaint])
    _told: set[Complaint] = field(default_factory=set[Complaint])

    def flat(self) -> dict[Key, Setting]:
        """Every setting by its kind, name and key."""
        made: dict[Key, Setting] = {("slurm.conf", "", key): one for key, one in self.cluster.items()}
        named = (
            ("node", self.nodes),
            ("partition", self.partitions),
            ("nodeset", self.nodesets),
            ("downnodes", self.downnodes),
            ("gres.conf", self.gres),
            (JOB_CONTAINER, self.tmp),
            ("passwd", self.people),
        )
        for kind, table in named:
            made.update(
                ((kind, name, key), one) for name, settings in table.items() for key, one in settings.items()
            )
        for file, settings in self.others.items():
            made.update(((file, "", key), one) for key, one in settings.items())
        made.update(_of_switches("topology.conf", "", self.switches, self.block_sizes))
        for name, one in self.named.items():
            made["topology.yaml", name, "topology"] = Setting(name, one.place, "topology")
            made["topology.yaml", name, "cluster_default"] = Setting(
                "true" if one.default else "false", one.place, "cluster_default"
            )
            made.update(_of_switches("topology.yaml", f"{name}/", one.switches, one.sizes))
        return made

    def members(self, partition: Settings) -> tuple[str, ...]:
        """The nodes of a partition, in the order of the site, without names that are no nodes."""
        chosen = self.chosen(partition)
        return tuple(node for node in self.nodes if node in chosen)

    def chosen(self, partition: Settings) -> dict[str, None]:
        """The names of a partition in their order, sets replaced. slurmctld takes each set once, so one may name a later one."""
        listed = partition.get("nodes")
        found = dict[str, None]() if listed is None else self._chosen(listed)
        for name, settings in self.nodesets.items():
            if name in found:
                del found[name]
                found |= self._of_set(settings)
        return found

    def _chosen(self, listed: Setting) -> dict[str, None]:
        made = dict[str, None]()
        for name in self.names(listed, Effect.REFUSED):
            made |= dict.fromkeys(self.nodes if name.upper() == "ALL" else (name,))
        return made

    def _of_set(self, settings: Settings) -> dict[str, None]:
        found = self._chosen(settings["nodes"]) if "nodes" in settings else dict[str, None]()
        if feature := settings.get("feature"):
            found |= {
                node: None
                for node, of in self.nodes.items()
                if "features" in of and feature.value in of["features"].value.split(",")
            }
        return found

    def names(self, listed: Setting, effect: Effect | None = None) -> tuple[str, ...]:
        """The names of a hostlist; none, with a complaint, if it is no hostlist."""
        found = expanded(listed.value) if listed.value else ()
        if isinstance(found, str):
            message = f"{listed.written}={quoted(listed.value)} is not a hostlist: {found}"
            self.complain(listed.place, message, effect)
            return ()
        return found

    def complain(self, place: FileLine, message: str, effect: Effect | None = None) -> None:
        """Report a line once."""
        complaint = Complaint(place, message, effect)
        if complaint not in self._told:
            self._told.add(complaint)
            self.complaints.append(complaint)


def _of_switches(
    kind: str, start: str, switches: dict[str, Switch], sizes: Setting | None
) -> Iterator[tuple[Key, Setting]]:
    """The settings of switches and blocks; `start` is before their names."""
    for switch in switches.values():
        written = "BlockName" if switch.block else "SwitchName"
        yield (kind, start + switch.name, written.lower()), Setting(switch.name, switch.place, written)
        for part, names in (("Nodes", switch.nodes), ("Switches", switch.below)):
            if names:
                value = hostlist.fold(sorted(names))
                yield (kind, start + switch.name, part.lower()), Setting(value, switch.place, part)
    if sizes is not None:
        yield (kind, start.rstrip("/"), "blocksizes"), sizes


def settings_of(kind: str, statement: Statement, pairs: Iterable[Pair]) -> Settings:
    made: Settings = {}
    for pair in pairs:
        put(made, kind, pair, statement.place)
    return made


def put(settings: Settings, kind: str, pair: Pair, place: FileLine) -> None:
    value = keys.shown(kind, pair.key, pair.value)
    key, written = keys.canonical(kind, pair.key), keys.spelled(kind, pair.key)
    if key in settings and settings[key].written != written:
        key = pair.key.lower()  # both the old and the new name of a key: each is listed
    settings[key] = Setting(value, place, written)


def expanded(text: str, most: int = MAX_NODES) -> tuple[str, ...] | str:
    """The names of a hostlist, or the reason why it is none."""
    try:
        return expand(_BETWEEN.sub(",", text).strip(","), most=most, longest=_HOSTLIST_LENGTH)
    except HostlistError as error:
        return str(error)

"""A site as a spec for hosts, in the order of its files. What the spec has no field for stays out; the comparison lists it.

A pool is a set of nodes with the same hardware and the same partitions, because a partition of the spec has whole pools.
Names that a spec refuses are changed, and addresses that the files do not have are made up: `Made` lists both. Pure.
"""

import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from pydantic import TypeAdapter, ValidationError

from gpucluster import catalog
from gpucluster.importer import keys
from gpucluster.importer.effects import FUTURE, UNUSED
from gpucluster.importer.extra import extra_of
from gpucluster.importer.gpus import gpus_of
from gpucluster.importer.lines import FileLine
from gpucluster.importer.site import Setting, Settings, Site
from gpucluster.importer.topology import IMEX, OFF_FABRIC, several_of, topology_of
from gpucluster.importer.write_yaml import Value
from gpucluster.plan import defaults
from gpucluster.slurm.hostlist import expand_slurm, fold
from gpucluster.spec.fields import MAX_NAME, MAX_NODES, Feature, LicenseName
from gpucluster.spec.rules.extra_values import of_value
from gpucluster.spec.yaml import MAX_BYTES
from gpucluster.text import format_size

MADE_UP = ipaddress.IPv4Network(
    "198.18.0.0/15"
)  # RFC 2544: for tests between networks, no host of the internet
LONGEST_TIME_MIN = 365 * 1440
MOST_TIER = MAX_NODES  # of a spec; Slurm takes up to 65533
MOST_LICENSES = 1_000_000
MOST_POOLS = MAX_BYTES // 100  # a line of a pool has more than 100 characters
NO_MEMORY_MIB = 1024  # of a node without RealMemory, for each CPU
LEAST_MEMORY_MIB = 512
_UNSCHEDULED = ("future",)
_OF_CPU = ("defmempercpu", "maxmempercpu")
_MEMORY = ("defmempercpu", "defmempernode", "defmempergpu")
_OF_FEATURE: TypeAdapter[str] = TypeAdapter(Feature)
_OF_LICENSE: TypeAdapter[str] = TypeAdapter(LicenseName)
_YES = ("yes", "true", "up", "1")
_MOST = {"socketsperboard": 64, "corespersocket": 1024, "threadspercore": 8, "gpus": 64}


@dataclass(frozen=True, slots=True)
class Hardware:
    """What nodes of one kind have in common."""

    sockets: int
    cores: int
    threads: int
    memory_mib: int  # RealMemory
    gpu_model: str
    gpu_count: int
    sharing: tuple[str, int] | None = None  # the key of `sharing`, and the parts of each GPU
    slices: bool = False  # its GPUs are MIG slices


@dataclass(slots=True)
class Made:
    """A spec as plain values, with what was changed or made up on the way."""

    spec: dict[str, Value]
    nodes: dict[str, str]  # name in the files -> name in the spec
    partitions: dict[str, str]
    left_out: dict[str, str]  # node -> why it is in no pool
    made_up: tuple[str, ...]  # sentences
    switches: dict[str, str] = field(default_factory=dict[str, str])
    reasons: dict[tuple[str, str, str], str] = field(
        default_factory=dict[tuple[str, str, str], str]
    )  # (kind, pool or partition, key) -> why the spec has another value or none, from where that was decided
    lost_exemptions: tuple[str, ...] = ()  # of the dump: they keep jobs from being preempted


def to_spec(site: Site, *, version: str, name: str | None = None) -> Made:
    """The spec of a site. ValueError if no node of it can be in a spec; the message says why."""
    wanted, left_out = _scheduled(site)
    renamed, refused = _names(wanted, _host_name)
    left_out |= refused
    if not renamed:
        raise ValueError(
            f"no node of the files can be imported: {next(iter(left_out.values()), _no_line(site))}"
        )
    groups = _groups(site, renamed)
    if len(groups) > MOST_POOLS:
        raise ValueError(
            f"its {len(site.partitions)} partitions divide the {len(renamed)} nodes into {len(groups)} sets of the same hardware and "
            f"the same partitions. Each is a pool, and a spec of at most {MAX_BYTES // 1024} KiB has room for about {MOST_POOLS}"
        )
    pools = _pool_names(groups)
    partitions, _ = _names(
        [name for name in site.partitions if site.members(site.partitions[name])], _partition_name
    )
    addresses = _Addresses(used={address for node in renamed if (address := _address(site.nodes[node]))})
    head = _head(site, renamed.values(), addresses)
    machines = _machines(groups)
    reasons = {
        ("node", new, "features"): why for old, new in renamed.items() if (why := _strange(site.nodes[old]))
    }
    reasons |= {
        ("node", new, "cpus"): f"the site counts a core as a CPU, gpucluster each of its {threads} threads"
        for old, new in renamed.items()
        if (threads := _threads_as_one(site.nodes[old])) > 1
    }
    switches, _ = _names(site.switches, _partition_name)
    switches = {old: f"{new}-switch" if new in renamed.values() else new for old, new in switches.items()}
    topology = several_of(site, renamed) if site.named else topology_of(site, renamed, switches)
    named = topology.get("named")
    spec: dict[str, Value] = {
        "schema": 1,
        "name": name or _cluster_name(site),
        "hosts": {"ssh": {"user": "admin"}, "head": head},
        "slurm": {**_slurm(site, version, reasons), **({"topology": topology} if topology else {})},
        "machines": {machine: _machine(hardware) for hardware, machine in machines.items()},
        "pools": [
            {
                "name": pools[group],
                "machine": machines[group[0]],
                "hosts": fold(renamed[node] for node in members),
                "addresses": fold(addresses.of(_address(site.nodes[node])) for node in members),
                **_sharing(group[0]),
                **({"features": list(group[2])} if group[2] else {}),
                **({"extra": dict(group[3])} if group[3] else {}),
            }
            for group, members in groups.items()
        ],
        "partitions": list(
            _partitions(site, partitions, groups, pools, named if isinstance(named, Mapping) else {}, reasons)
        ),
    }
    sentences = (*_sentences(addresses, site), *_off_fabric(topology))
    made = Made(spec, renamed, partitions, left_out, sentences, switches, reasons)
    if "switchtype" in site.cluster and site.cluster["switchtype"].value.lower() == IMEX:
        reasons["slurm.conf", "", "switchtype"] = (
            "not imported: `slurm.topology.block.imex` is of a topology of blocks"
        )
    if not _counts_memory(site.cluster):
        made.reasons["slurm.conf", "", "selecttypeparameters"] = (
            "gpucluster counts memory: a job has what it asks for, or the default of its partition, and is ended above it"
        )
    return made


def _strange(settings: Settings) -> str:
    strange = [word for word in _words(settings, "features") if not _takes(_OF_FEATURE, word)]
    return (
        f"not imported: the feature {', '.join(strange)}, whose form a spec does not take" if strange else ""
    )


def _off_fabric(topology: Mapping[str, Value]) -> Iterator[str]:
    tree = topology.get("tree")
    if isinstance(tree, Mapping) and OFF_FABRIC in tree:
        count = len(expand_slurm(str(tree[OFF_FABRIC])))
        yield f"{count} nodes are on no switch of the site. Slurm takes no host without one: they are on a switch of their own, {OFF_FABRIC}."


def _no_line(site: Site) -> str:
    if "maxnodecount" in site.cluster:
        return "its nodes are dynamic (MaxNodeCount): they register themselves, and slurm.conf has no line for them"
    return "there is no NodeName line"


def _scheduled(site: Site) -> tuple[list[str], dict[str, str]]:
    """The nodes of the spec, and the reason for each other one."""
    used = {node for partition in site.partitions.values() for node in site.members(partition)}
    left: dict[str, str] = {}
    for node, settings in site.nodes.items():
        state = settings["state"].value.lower() if "state" in settings else ""
        if state in _UNSCHEDULED:
            left[node] = FUTURE
        elif node not in used:
            left[node] = UNUSED
    return [node for node in site.nodes if node not in left], left


def _names(found: Iterable[str], change: Callable[[str], str]) -> tuple[dict[str, str], dict[str, str]]:
    """Each name as the spec takes it; names that become equal are refused from the second on."""
    made: dict[str, str] = {}
    refused: dict[str, str] = {}
    taken = set[str]()
    for name in found:
        new = change(name)
        if not new:
            refused[name] = "its name has no letter or digit of a-z, 0-9"
        elif new in taken:
            refused[name] = f"its name becomes {new}, which another one has"
        else:
            taken.add(new)
            made[name] = new
    return made, refused


def _host_name(name: str) -> str:
    """A short host name of a-z, 0-9 and '-'."""
    low = re.sub(r"[^a-z0-9-]", "-", name.lower().partition(".")[0]).strip("-")[:63].strip("-")
    return f"{low}-node" if low in _RESERVED or low.isdecimal() else low


def _partition_name(name: str) -> str:
    """A name of letters, digits and `._-` that is not DEFAULT."""
    made = re.sub(r"[^A-Za-z0-9._-]", "-", name)[:64].strip("._-")
    return f"{made}-jobs" if made.lower() == "default" else made


def _cluster_name(site: Site) -> str:
    setting = site.cluster.get("clustername")
    return _short_name("cluster" if setting is None else setting.value, "cluster")


def _short_name(text: str, otherwise: str) -> str:
    low = re.sub(r"-+", "-", re.sub(r"[^a-z0-9-]", "-", text.lower())).strip("-").lstrip("0123456789-")
    return low[:MAX_NAME].rstrip("-") or otherwise


_Group = tuple[  # hardware, partitions, features, and the keys of `extra`
    Hardware, tuple[str, ...], tuple[str, ...], tuple[tuple[str, str], ...]
]


def _groups(site: Site, renamed: Mapping[str, str]) -> dict[_Group, list[str]]:
    """The nodes of each pool, in the order of the files."""
    memberships: dict[str, list[str]] = {}
    for name, partition in site.partitions.items():
        for node in site.members(partition):
            memberships.setdefault(node, []).append(name)
    groups: dict[_Group, list[str]] = {}
    for node in renamed:
        settings = site.nodes[node]
        extra = tuple(extra_of("node", [settings]).items())
        key = hardware_of(settings), tuple(memberships[node]), _features(settings), extra
        groups.setdefault(key, []).append(node)
    return groups


def _features(settings: Settings) -> tuple[str, ...]:
    """The features that a spec takes, in their order."""
    return tuple(word for word in _words(settings, "features") if _takes(_OF_FEATURE, word))


def _words(settings: Settings, key: str) -> tuple[str, ...]:
    words = settings[key].value.split(",") if key in settings else []
    return tuple(dict.fromkeys(word for one in words if (word := one.strip())))


def _takes(form: TypeAdapter[str], word: str) -> bool:
    try:
        form.validate_python(word)
    except ValidationError:
        return False
    return True


def hardware_of(settings: Settings) -> Hardware:
    """The hardware of a node. What the line does not say is inferred as slurmctld does."""
    number = {
        key: _number(settings, key)
        for key in ("socketsperboard", "corespersocket", "threadspercore", "cpus", "boards")
    }
    cores, threads = number["corespersocket"] or 1, number["threadspercore"] or 1
    sockets = (number["socketsperboard"] or 0) * (number["boards"] or 1) or _number(settings, "sockets") or 0
    if not sockets and number["cpus"]:
        sockets = max(1, number["cpus"] // (cores * threads))
        if (
            cores == 1 and "corespersocket" not in settings
        ):  # CPUs alone: one socket with so many cores is as good
            sockets, cores = 1, max(1, number["cpus"] // threads)
    sockets = sockets or 1
    gpus = gpus_of(settings)
    cpus = sockets * cores * threads
    return Hardware(
        sockets=min(sockets, _MOST["socketsperboard"]),
        cores=min(cores, _MOST["corespersocket"]),
        threads=min(threads, _MOST["threadspercore"]),
        memory_mib=_number(settings, "realmemory") or NO_MEMORY_MIB * cpus,
        gpu_model=_partition_name(gpus.model) or "gpu" if gpus.count else "",
        gpu_count=min(gpus.count, _MOST["gpus"], cpus),
        sharing=gpus.sharing,
        slices=gpus.slices,
    )


def _number(settings: Settings, key: str) -> int | None:
    one = settings.get(key)
    return (
        int(one.value)
        if one is not None and one.value.isascii() and one.value.isdecimal() and len(one.value) < 10
        else None
    )


def _sharing(hardware: Hardware) -> dict[str, Value]:
    return {} if hardware.sharing is None else {"sharing": {hardware.sharing[0]: hardware.sharing[1]}}


def _machines(groups: Iterable[_Group]) -> dict[Hardware, str]:
    """A name for each kind of hardware: its GPUs, or its cores."""
    made: dict[Hardware, str] = {}
    alike: dict[Hardware, str] = {}  # how the GPUs are shared is of the pool
    for hardware, *_ in groups:
        if (same := alike.get(replace(hardware, sharing=None))) is not None:
            made[hardware] = same
        elif hardware not in made:
            cpus = _cpus(hardware)
            gpus = _short_name(hardware.gpu_model, "gpu")[:12].rstrip("-")
            base = f"{gpus}-x{hardware.gpu_count}" if hardware.gpu_count else f"cpu-{cpus}"
            made[hardware] = alike[replace(hardware, sharing=None)] = _unused(base, set(made.values()))
    return made


def _machine(hardware: Hardware) -> dict[str, Value]:
    percent = int(defaults.MEMORY_PERCENT.value)
    sheet = max(
        LEAST_MEMORY_MIB, -(-hardware.memory_mib * 100 // percent)
    )  # the plan takes its share of this
    made: dict[str, Value] = {
        "sockets": hardware.sockets,
        "cores_per_socket": hardware.cores,
        "threads_per_core": hardware.threads,
        "memory": format_size(sheet),
    }
    if hardware.gpu_count:
        made["gpus"] = {"model": hardware.gpu_model, "count": hardware.gpu_count}
    return made


def _pool_names(groups: Mapping[_Group, list[str]]) -> dict[_Group, str]:
    """The letters that the names of its nodes begin with; a number for the second of a name."""
    made: dict[_Group, str] = {}
    for group, members in groups.items():
        letters = re.match(r"[a-z]+(?:-[a-z]+)*", _host_name(members[0]))
        base = "nodes" if letters is None else letters[0][: MAX_NAME - 4].rstrip("-")
        made[group] = _unused(base, set(made.values()))
    return made


def _unused(base: str, taken: set[str]) -> str:
    if base not in taken:
        return base
    return next(name for count in range(2, 100_000) if (name := f"{base}-{count}") not in taken)


def _partitions(  # noqa: PLR0917 -- the site, and what its parts have become
    site: Site,
    renamed: Mapping[str, str],
    groups: Mapping[_Group, list[str]],
    pools: Mapping[_Group, str],
    named: Mapping[str, Value],
    reasons: dict[tuple[str, str, str], str],
) -> Iterator[dict[str, Value]]:
    chosen = _default(site, renamed)
    threads_of = {
        group: max(_threads_as_one(site.nodes[node]) for node in members) for group, members in groups.items()
    }
    for name, new in renamed.items():
        settings = site.partitions[name]
        of = [pools[group] for group in groups if name in group[1]]
        if not of:
            continue
        made: dict[str, Value] = {"name": new, "pools": of}
        if name == chosen:
            made["default"] = True
        longest = _minutes(settings, "maxtime")
        if longest is not None and longest <= LONGEST_TIME_MIN:
            made["max_time"] = keys.duration(max(1, longest))
        usual = _minutes(settings, "defaulttime") if "defaulttime" in settings else longest
        usual = min(LONGEST_TIME_MIN, *[one for one in (usual, longest) if one is not None], LONGEST_TIME_MIN)
        made["default_time"] = keys.duration(max(1, usual))
        if "topology" in settings and settings["topology"].value in named:
            made["topology"] = settings["topology"].value
        tier = _number(settings, "prioritytier")
        if tier is not None and 1 < tier <= MOST_TIER:
            made["tier"] = tier
        most = _number(settings, "maxcpuspernode")
        if most is not None and 0 < most <= min(_cpus(group[0]) for group in groups if name in group[1]):
            made["max_cpus_per_node"] = most
        if _exclusive(site.cluster, settings):
            made["exclusive"] = True
        threads = max(threads_of[group] for group in groups if name in group[1])
        memory = _memory_of_threads(settings, threads)
        reasons |= {("partition", new, key): _why_of_threads(key, threads) for key in memory}
        yield {
            **made,
            **_with_extra("partition", [{**_kept_memory(site.cluster, settings), **settings, **memory}]),
        }


def _exclusive(cluster: Settings, partition: Settings) -> bool:
    """Whether each job has its nodes alone: select/linear gives no job a part of a node."""
    linear = "selecttype" in cluster and cluster["selecttype"].value.lower() == "select/linear"
    return linear or (
        "oversubscribe" in partition and partition["oversubscribe"].value.upper() == "EXCLUSIVE"
    )


def _threads_as_one(node: Settings) -> int:
    """The threads of a core where the site counts each core as one CPU; else 1."""
    found = hardware_of(node)
    return found.threads if _number(node, "cpus") == found.sockets * found.cores else 1


def _memory_of_threads(settings: Settings, threads: int) -> Settings:
    """The memory of a CPU, for a thread instead of a core."""
    found = {key: _number(settings, key) for key in _OF_CPU}
    return {
        key: replace(settings[key], value=str(number // threads))
        for key, number in found.items()
        if number and threads > 1
    }


def _why_of_threads(key: str, threads: int) -> str:
    end = "a core has as much: nothing changes" if key.startswith("max") else "and a task may have one thread"
    return f"the site counts a core as a CPU, gpucluster its {threads} threads: the value is that of a thread, {end}"


def _counts_memory(cluster: Settings) -> bool:
    """Whether memory is a consumable resource, as it is without the key."""
    parameters = cluster.get("selecttypeparameters")
    return parameters is None or "memory" in parameters.value.lower()


def _kept_memory(cluster: Settings, partition: Settings) -> Settings:
    """Without a default, a job has all memory of its nodes where Slurm counts memory; a share of it could end the job."""
    if not _counts_memory(cluster) or any(key in of for key in _MEMORY for of in (cluster, partition)):
        return {}
    return {"defmempercpu": Setting("0", partition["partitionname"].place, "DefMemPerCPU")}


def _default(site: Site, renamed: Iterable[str]) -> str:
    """The default partition: slurmctld takes the last line with Default=YES (_build_single_partitionline_info)."""
    marked = [
        name
        for name in renamed
        if "default" in site.partitions[name] and site.partitions[name]["default"].value.lower() in _YES
    ]
    return marked[-1] if marked else ""


def _cpus(hardware: Hardware) -> int:
    return hardware.sockets * hardware.cores * hardware.threads


def _with_extra(kind: str, lines: list[Settings]) -> dict[str, Value]:
    found: dict[str, Value] = {**extra_of(kind, lines)}
    tier = lines[0].get("prioritytier")
    if kind == "partition" and tier is not None and tier.written == "Priority":
        found.setdefault("PriorityJobFactor", tier.value)
    return {"extra": found} if found else {}


def _minutes(settings: Settings, key: str) -> int | None:
    """A time limit of a partition; None for no limit."""
    try:
        return keys.minutes(settings[key].value) if key in settings else None
    except ValueError:
        return None


def _slurm(site: Site, version: str, reasons: dict[tuple[str, str, str], str]) -> dict[str, Value]:
    made: dict[str, Value] = {"version": version}
    plugin = site.cluster.get("namespacetype")
    if plugin is None or not plugin.value.endswith("tmpfs"):
        made["private_tmp"] = False
    elif (base := site.others.get("job_container.conf", {}).get("basepath")) is not None:
        made["private_tmp"] = {"path": base.value}
    made["node_ssh"] = False
    if "jobrequeue" in site.cluster and site.cluster["jobrequeue"].value == "0":
        made["requeue"] = False
    licenses = _licenses(site)
    if licenses:
        made["licenses"] = licenses
    limits = {
        "enforcepartlimits": Setting("NO", FileLine("", 0), "EnforcePartLimits")
    }  # as Slurm without the key
    threads = max(map(_threads_as_one, site.nodes.values()), default=1)
    memory = _memory_of_threads(site.cluster, threads)
    reasons |= {("slurm.conf", "", key): _why_of_threads(key, threads) for key in memory}
    extra = extra_of("slurm.conf", [{**limits, **site.cluster, **memory}])
    kept = {key: value for key, old in extra.items() if (value := _right_words(version, key, old, reasons))}
    return {**made, **({"extra": kept} if kept else {})}


def _right_words(version: str, key: str, value: str, reasons: dict[tuple[str, str, str], str]) -> str:
    """The words of a list that this version takes, with the reason for each other one."""
    facts, low = catalog.slurm_facts(version), key.lower()
    words = value.split(",")
    if of_value(facts, "slurm.conf", low, value) is None or (len(words) == 1 and key not in facts.tokens):
        return value
    wrong = {
        word: found[1] for word in words if (found := of_value(facts, "slurm.conf", low, word)) is not None
    }
    if not wrong:  # two words that exclude each other: the rules say it
        return value
    reasons["slurm.conf", "", low] = f"not imported: {'; '.join(wrong.values())}"
    return ",".join(word for word in words if word not in wrong)


def _licenses(site: Site) -> dict[str, Value]:
    """The licences with a count and a name that a spec takes."""
    if "licenses" not in site.cluster:
        return {}
    found = (word.strip().partition(":") for word in site.cluster["licenses"].value.split(","))
    return {
        name: int(count or 1)
        for name, _, count in found
        if _takes(_OF_LICENSE, name) and (count or "1").isdecimal() and 0 < int(count or 1) <= MOST_LICENSES
    }


@dataclass(slots=True)
class _Addresses:
    """The addresses of hosts: those of the files, and made-up ones for hosts without one."""

    used: set[str]
    given: set[str] = field(default_factory=set[str])
    made: int = 0
    _next: int = 0

    def of(self, address: str | None) -> str:
        """The address of the next host. A second host with one address gets a made-up one: several slurmds ran there."""
        if address is not None and address not in self.given:
            self.given.add(address)
            return address
        self.made += 1
        while True:
            self._next += 1
            found = str(MADE_UP[self._next])
            if found not in self.used:
                self.used.add(found)
                return found


def _address(settings: Settings) -> str | None:
    one = settings.get("nodeaddr")
    return None if one is None else _reachable(one.value)


def _reachable(text: str) -> str | None:
    """An address that a spec takes; a name, and an address of the machine itself, is none."""
    try:
        address = ipaddress.IPv4Address(text)
    except ValueError:
        return None
    odd = address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local
    return (
        None if odd or address.is_reserved or address in ipaddress.IPv4Network("0.0.0.0/8") else str(address)
    )


def _head(site: Site, nodes: Iterable[str], addresses: _Addresses) -> dict[str, Value]:
    """The controller. A host that is also a node gets another name: the head of a spec is no node."""
    first = site.cluster.get("slurmctldhost")
    name = _host_name("" if first is None else first.value) or "head"
    taken = set(nodes)
    address = site.cluster.get("slurmctldhost address")
    found = None if address is None else _reachable(address.value)
    if name in taken:
        name, found = _unused(f"{name[:50]}-head", taken), None
    if found in addresses.used:
        found = None
    return {"name": name, "address": addresses.of(found)}


def _sentences(addresses: _Addresses, site: Site) -> Iterator[str]:
    if addresses.made:
        yield (
            f"{addresses.made} addresses are made up, from {MADE_UP}: the files have names or none. "
            "Write the real ones before `gpucluster inventory NAME`."
        )
    yield "hosts.ssh.user is made up: slurm.conf does not name the account for Ansible."
    slices = sorted({_host_name(node) for node, one in site.nodes.items() if gpus_of(one).slices})
    if slices:
        yield (
            f"each MIG slice of {', '.join(slices[:3])}{' and more' if len(slices) > 3 else ''} counts as a GPU: the files do not "
            "name the GPUs. Write the machine's GPUs, and `sharing.mig` of the pool, before real nodes."
        )
    without = sum(1 for settings in site.nodes.values() if "realmemory" not in settings)
    if without:
        yield f"the memory of {without} nodes is made up, {NO_MEMORY_MIB} MiB a CPU: their lines have no RealMemory."


_RESERVED = frozenset(
    (
        "localhost",
        "ip6-localhost",
        "ip6-loopback",
        "ip6-allnodes",
        "ip6-allrouters",
        "all",
        "ungrouped",
        "default",
        "head",
    )
)

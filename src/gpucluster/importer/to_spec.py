"""A site as a spec for hosts, in the order of its files. What the spec has no field for stays out; the comparison lists it.

Names that a spec refuses are changed, and addresses that the files do not have are made up: `Made` lists both. Pure.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from gpucluster.importer.addresses import MADE_UP, Addresses, address_of, reachable
from gpucluster.importer.effects import CLOUD, FUTURE, NO_CHANGE, UNUSED
from gpucluster.importer.gpus import gpus_of, why_changed
from gpucluster.importer.hardware import (
    MOST_GPUS,
    NO_MEMORY_MIB,
    cpus_of,
    hardware_of,
    machine_of,
    threads_as_one,
)
from gpucluster.importer.made import Made, Reasons, mapping
from gpucluster.importer.memory import counts_memory
from gpucluster.importer.names import host_name, new_names, partition_name, short_name, unused
from gpucluster.importer.partitions import partitions_of
from gpucluster.importer.pools import Group, groups_of, machine_names, parts_of, pool_names, strange_features
from gpucluster.importer.site import JOB_CONTAINER, Settings, Site
from gpucluster.importer.slurm_part import slurm_of
from gpucluster.importer.topology import IMEX, NOT_READ, OFF_FABRIC, is_read, several_of, topology_of
from gpucluster.importer.write_yaml import Value
from gpucluster.slurm.hostlist import expand_slurm, fold
from gpucluster.spec.yaml import MAX_BYTES

_MADE_BY_SLURM = (
    "ResumeProgram of the site makes this machine, and nothing makes the hosts of a spec: take out those that are not "
    "there, their jobs wait"
)
MOST_POOLS = MAX_BYTES // 100  # a line of a pool has more than 100 characters


def to_spec(site: Site, *, version: str, name: str | None = None) -> Made:
    """The spec of a site. ValueError if no node of it can be in a spec; the message says why."""
    wanted, left_out = _scheduled(site)
    nodes, refused = new_names(wanted, host_name)
    left_out |= refused
    groups = groups_of(site, nodes)
    if why := _too_few_or_many(site, left_out, groups):
        raise ValueError(why)
    partitions, _ = new_names(
        [name for name in site.partitions if site.members(site.partitions[name])], partition_name
    )
    addresses = Addresses(used={address for node in nodes if (address := address_of(site.nodes[node]))})
    head, machines, pools = _head(site, nodes.values(), addresses), machine_names(groups), pool_names(groups)
    reasons, switches = _reasons(site, nodes), _switches(site, nodes)
    topology = _topology(site, nodes, switches, reasons)
    spec: dict[str, Value] = {
        "schema": 1,
        "name": name or _cluster_name(site),
        "hosts": {"ssh": {"user": "admin"}, "head": head},
        "slurm": {**slurm_of(site, version, reasons), **({"topology": topology} if topology else {})},
        "machines": {machine: machine_of(hardware) for hardware, machine in machines.items()},
        "pools": [
            {
                "name": pools[group],
                "machine": machines[group.hardware],
                "hosts": fold(nodes[node] for node in members),
                "addresses": fold(addresses.of(address_of(site.nodes[node])) for node in members),
                **parts_of(group),
            }
            for group, members in groups.items()
        ],
        "partitions": list(
            partitions_of(site, partitions, groups, pools, mapping(topology.get("named")), reasons)
        ),
    }
    sentences = (*_sentences(addresses, {node: site.nodes[node] for node in nodes}), *_off_fabric(topology))
    return Made(spec, nodes, partitions, left_out, sentences, switches, reasons)


def _too_few_or_many(site: Site, left_out: Mapping[str, str], groups: Mapping[Group, Sequence[str]]) -> str:
    """Why the nodes are no pools of a spec; empty if they are."""
    if not groups:
        return f"no node of the files can be imported: {next(iter(left_out.values()), _no_line(site))}"
    if len(groups) <= MOST_POOLS:
        return ""
    count = sum(map(len, groups.values()))
    return (
        f"its {len(site.partitions)} partitions divide the {count} nodes into {len(groups)} sets of the same hardware and "
        f"the same partitions. Each is a pool, and a spec of at most {MAX_BYTES // 1024} KiB has room for about {MOST_POOLS}"
    )


def _reasons(site: Site, nodes: Mapping[str, str]) -> Reasons:
    """Why the spec has another value than a node, or than the cluster."""
    found = Reasons()
    for old, new in nodes.items():
        settings = site.nodes[old]
        if why := strange_features(settings):
            found["node", new, "features"] = why
        if (
            not gpus_of(settings).count
            and "gres" in settings
            and (why := why_changed(settings["gres"].value))
        ):
            found["node", new, "gres"] = f"not imported: {why}"
        if "state" in settings and settings["state"].value.lower() == CLOUD:
            found["node", new, "state"] = _MADE_BY_SLURM
        if gpus_of(settings).count > hardware_of(settings).gpu_count:
            found["node", new, "gres"] = "; ".join(_why_fewer_gpus(settings))
        if (threads := threads_as_one(settings)) > 1:
            found["node", new, "cpus"] = (
                f"the site counts a core as a CPU, gpucluster each of its {threads} threads"
            )
    found |= {
        (
            JOB_CONTAINER,
            nodes.get(node, node),
            key,
        ): "not imported: a spec has one folder for the /tmp of all jobs"
        for node, settings in site.tmp.items()
        for key in settings
    }
    if not any(gpus_of(site.nodes[node]).count for node in nodes):
        found["cgroup.conf", "", "constraindevices"] = f"no node has a GPU: {NO_CHANGE}"
    if "switchtype" in site.cluster and site.cluster["switchtype"].value.lower() == IMEX:
        found["slurm.conf", "", "switchtype"] = (
            "not imported: `slurm.topology.block.imex` is of a topology of blocks"
        )
    if selected := "; ".join(_why_selected(site)):
        found["slurm.conf", "", "selecttypeparameters"] = selected
    return found


def _why_fewer_gpus(settings: Settings) -> Iterator[str]:
    """Why a machine of the spec has fewer GPUs than the node, with the other causes."""
    yield f"a machine of a spec has no more GPUs than its {cpus_of(hardware_of(settings))} CPUs, and at most {MOST_GPUS}"
    if why := why_changed(settings["gres"].value):
        yield why


def _why_selected(site: Site) -> Iterator[str]:
    if not counts_memory(site.cluster):
        yield "gpucluster counts memory: a job has what it asks for, or the default of its partition, and is ended above it"
    written = site.cluster.get("selecttypeparameters")
    if written is not None and "cr_one_task_per_core" in written.value.lower():
        yield "without --ntasks-per-core=1 a task gets a thread of a core, and had a core (CR_ONE_TASK_PER_CORE has no field)"


def _topology(
    site: Site, nodes: Mapping[str, str], switches: Mapping[str, str], reasons: Reasons
) -> dict[str, Value]:
    if site.named:
        return several_of(site, nodes)
    if is_read(site.cluster):
        return topology_of(site, nodes, switches)
    reasons["topology.conf", "", ""] = NOT_READ
    return {}


def _switches(site: Site, nodes: Mapping[str, str]) -> dict[str, str]:
    """The names of the switches; none is that of a node."""
    found, _ = new_names(site.switches, partition_name)
    return {old: f"{new}-switch" if new in nodes.values() else new for old, new in found.items()}


def _off_fabric(topology: Mapping[str, Value]) -> Iterator[str]:
    if nodes := mapping(topology.get("tree")).get(OFF_FABRIC):
        count = len(expand_slurm(str(nodes)))
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
        if "state" in settings and settings["state"].value.lower() == "future":
            left[node] = FUTURE
        elif node not in used:
            left[node] = UNUSED
    return [node for node in site.nodes if node not in left], left


def _cluster_name(site: Site) -> str:
    name = site.cluster.get("clustername")
    return short_name(name.value if name else "", "cluster")


def _head(site: Site, nodes: Iterable[str], addresses: Addresses) -> dict[str, Value]:
    """The controller. A host that is also a node gets another name: the head of a spec is no node."""
    first, address = (site.cluster.get(key) for key in ("slurmctldhost", "slurmctldhost address"))
    name, taken = host_name(first.value if first else "") or "head", set(nodes)
    found = reachable(address.value) if address else None
    if name in taken:
        name, found = unused(f"{name[:50]}-head", taken), None
    return {"name": name, "address": addresses.of(None if found in addresses.used else found)}


def _sentences(addresses: Addresses, nodes: Mapping[str, Settings]) -> Iterator[str]:
    if addresses.made:
        yield (
            f"{addresses.made} addresses are made up, from {MADE_UP}: the files have names or none. "
            "Write the real ones before `gpucluster inventory NAME`."
        )
    yield "hosts.ssh.user is made up: slurm.conf does not name the account for Ansible."
    slices = sorted({host_name(node) for node, one in nodes.items() if gpus_of(one).slices})
    if slices:
        yield (
            f"each MIG slice of {', '.join(slices[:3])}{' and more' if len(slices) > 3 else ''} counts as a GPU: the files do not "
            "name the GPUs. Write the machine's GPUs, and `sharing.mig` of the pool, before real nodes."
        )
    without = sum(1 for settings in nodes.values() if "realmemory" not in settings)
    if without:
        yield f"the memory of {without} nodes is made up, {NO_MEMORY_MIB} MiB a CPU: their lines have no RealMemory."

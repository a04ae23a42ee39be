"""What slurmctld must show: the values, nodes and partitions of the plan's slurm.conf as it is rendered. Pure."""

from dataclasses import dataclass

from gpucluster import catalog
from gpucluster.checks import name_resolution, peer_names, ports, running_config, slurmctld
from gpucluster.checks import partitions as partition_checks
from gpucluster.checks.setting_values import tokens
from gpucluster.plan import gres, names
from gpucluster.plan.model import Partition, Pool, SlurmPlan
from gpucluster.slurm import hostlist
from gpucluster.slurm.values import NodeHardware

_NODE, _PARTITION = "nodename", "partitionname"
_BY_HAND = {  # what `scontrol setdebug` and `setdebugflags` change; the values without a line in slurm.conf
    "debugflags": "",
    "slurmctlddebug": "info",
    "slurmctldsyslogdebug": "",
    "slurmddebug": "info",
    "slurmdsyslogdebug": "",
}
_NO_HASH = "no_conf_hash"  # a debug flag of a site: slurmctld does not compare its file


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmConf:
    """The rendered slurm.conf. Keys are in small letters; several values of a key have commas between them."""

    values: dict[str, str]
    nodes: tuple[dict[str, str], ...]
    partitions: tuple[dict[str, str], ...]


def read(plan: SlurmPlan) -> SlurmConf:
    """The plan's slurm.conf."""
    from gpucluster.slurm.config.render import render  # noqa: PLC0415  it imports jinja2, which other commands do not need

    path = f"{names.SLURM_DIR}/slurm.conf"
    text = next(one.content.decode() for one in render(plan) if one.path == path)
    values: dict[str, str] = {}
    lines: dict[str, list[dict[str, str]]] = {_NODE: [], _PARTITION: []}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        key = key.strip().lower()
        if not equals or key.startswith("#"):
            continue
        if key in lines:
            lines[key].append(dict(tokens(line)))
        else:
            values[key] = f"{values[key]},{value.strip()}" if key in values else value.strip()
    return SlurmConf(values=values, nodes=tuple(lines[_NODE]), partitions=tuple(lines[_PARTITION]))


def settings(plan: SlurmPlan, conf: SlurmConf) -> running_config.Settings:
    """The values that gpucluster sets. Those of `extra` count by the hash of the file: scontrol may show them in another form."""
    of_site = {
        one.key.lower() for one in plan.slurm.settings if one.kind == "slurm.conf" and one.value is not None
    }
    ours = {key: value for key, value in conf.values.items() if key not in of_site}
    debug = {key: conf.values.get(key, value) for key, value in _BY_HAND.items()}
    return running_config.Settings(
        values=dict(sorted({**ours, **debug}.items())),
        release=plan.slurm.version,
        least=least_release(plan.slurm.version),
        hashed=_NO_HASH not in conf.values.get("debugflags", "").lower(),
    )


def least_release(version: str) -> slurmctld.LeastRelease | None:
    """The oldest release of a version without published faults of security; None: the catalog has none."""
    release = catalog.load().slurm_releases[version]
    if release.least is None:
        return None
    return slurmctld.LeastRelease(version=release.least, mends=release.mends)


def hardware(plan: SlurmPlan, conf: SlurmConf) -> slurmctld.HardwareLines:
    """One line for each NodeName line."""
    pools = {node: pool for pool in plan.pools for span in pool.slots for node in span}
    found: list[slurmctld.HardwareLine] = []
    for line in conf.nodes:
        nodes = hostlist.expand_slurm(line[_NODE])
        if nodes[0] in pools:
            found.append(_hardware_line(nodes, pools[nodes[0]], line))
    return slurmctld.HardwareLines(lines=tuple(found))


def partitions(plan: SlurmPlan, conf: SlurmConf) -> partition_checks.Partitions:
    """Each partition with the words of its line."""
    lines = {line[_PARTITION]: line for line in conf.partitions}
    return partition_checks.Partitions(
        partitions=tuple(_partition(plan, one, lines[one.name]) for one in plan.partitions)
    )


def addresses(plan: SlurmPlan) -> peer_names.Names:
    """The heads, login machines and nodes, with the addresses that the plan says."""
    standby = plan.aws and plan.head.standby
    found = {node: "" for pool in plan.pools for span in pool.slots for node in span}
    found |= {name: address for pool in plan.pools for name, address in pool.hosts()}
    found |= dict.fromkeys(plan.login.names if plan.aws and plan.login else (), "")
    second = {names.standby_name(plan.name): standby.address} if standby else {}
    return peer_names.Names(
        addresses={**found, **second, plan.head.name: plan.head.address}, heads=(plan.head.name, *second)
    )


def names_resolved(plan: SlurmPlan) -> name_resolution.ResolutionWant:
    """The heads and, on AWS, its store, from which every machine reads the bundle."""
    standby = plan.aws and plan.head.standby
    second = {names.standby_name(plan.name): standby.address} if standby else {}
    heads = {plan.head.name: plan.head.address, **second}
    if plan.aws is None:
        return name_resolution.ResolutionWant(cluster=heads)
    return name_resolution.ResolutionWant(
        cluster=heads, dns=(f"s3.{plan.aws.region}.amazonaws.com",), server=names.NAME_SERVER
    )


def ports_of_head(plan: SlurmPlan) -> ports.Ports:
    """Its own daemons: slurmctld and slurmdbd."""
    database = (names.SLURMDBD_PORT,) if plan.slurm.accounting is not None else ()
    return ports.Ports(heads=_heads(plan), to_head=(names.CONTROLLER_PORT, *database), on_head=True)


def ports_of_node(plan: SlurmPlan) -> ports.Ports:
    """slurmctld from the node, and slurmd from the head."""
    return ports.Ports(heads=_heads(plan), to_head=(names.CONTROLLER_PORT,), from_head=(names.SLURMD_PORT,))


def ports_of_login(plan: SlurmPlan) -> ports.Ports:
    """slurmctld from a machine without a daemon of its own."""
    return ports.Ports(heads=_heads(plan), to_head=(names.CONTROLLER_PORT,))


def _heads(plan: SlurmPlan) -> tuple[str, ...]:
    """The addresses of the head and, with a standby, of the machine that may have taken over."""
    standby = plan.aws and plan.head.standby
    return (plan.head.address, *((standby.address,) if standby else ()))


def _hardware_line(nodes: tuple[str, ...], pool: Pool, line: dict[str, str]) -> slurmctld.HardwareLine:
    shape = pool.shape
    board = NodeHardware(
        cpus=shape.cpus,
        sockets=shape.sockets,
        cores=shape.cores_per_socket,
        threads=shape.threads_per_core,
        memory_mib=shape.real_memory_mib,
        gres=gres.of_node(shape),
    )
    features = tuple(sorted(word for word in line.get("feature", "").split(",") if word))
    weight = int(line.get("weight", "1"))
    return slurmctld.HardwareLine(
        nodes=nodes, settings=slurmctld.NodeSettings(hardware=board, weight=weight, features=features)
    )


def _partition(plan: SlurmPlan, one: Partition, line: dict[str, str]) -> partition_checks.PartitionWant:
    nodes = one.node_names(plan.pools)
    values = {key: value for key, value in line.items() if key not in (_PARTITION, "nodes")}
    return partition_checks.PartitionWant(name=one.name, nodes=nodes, values=values)

"""topology.conf of a site as the topology of a spec. Nothing if it does not fit: a host in no block, a switch below two others."""

from collections import Counter
from collections.abc import Mapping

from gpucluster.importer.effects import NO_CHANGE
from gpucluster.importer.site import Settings, Site, Switch
from gpucluster.importer.write_yaml import Value
from gpucluster.slurm.hostlist import fold

MAX_LEVELS = 16
OFF_FABRIC = "off-fabric"  # the switch of nodes that are on none
IMEX = "switch/nvidia_imex"  # SwitchType
_READERS = ("topology/tree", "topology/block")  # TopologyPlugin
NOT_READ = f"Slurm reads topology.conf only with TopologyPlugin={' or '.join(_READERS)}: {NO_CHANGE}"


def is_read(cluster: Settings) -> bool:
    """Whether Slurm reads topology.conf. topology.yaml it reads always."""
    plugin = cluster.get("topologyplugin")
    return plugin is not None and plugin.value.lower() in _READERS


def topology_of(
    site: Site, hosts: Mapping[str, str], names: Mapping[str, str], what: str = "topology"
) -> dict[str, Value]:
    """`hosts` and `names` give the names of the spec. An empty result has its reason in the site's complaints."""
    if not site.switches:
        return {}
    first = next(iter(site.switches.values()))
    why = _why_not(site, hosts, names)
    if why:
        site.complain(first.place, f"the {what} is not imported: {why}")
        return {}
    if first.block:
        return {"block": _block(site, hosts, names)}
    below = {name for switch in site.switches.values() for name in switch.below}
    tree = {
        names[switch.name]: value
        for switch in site.switches.values()
        if switch.name not in below and (value := _below(site, switch, hosts, names, MAX_LEVELS))
    }
    placed = {node for switch in site.switches.values() for node in switch.nodes}
    left = [host for node, host in hosts.items() if node not in placed]
    if tree and left:
        tree[OFF_FABRIC] = fold(left)
    return {"tree": tree} if tree else {}


def several_of(site: Site, hosts: Mapping[str, str]) -> dict[str, Value]:
    """The topologies of topology.yaml under `named`. One that does not fit is left out alone, with the reason."""
    made: dict[str, Value] = {}
    for name, one in sorted(site.named.items(), key=lambda item: item[1].default):
        if found := _named(
            site, name, hosts, made
        ):  # the default one last: it has the partitions of those left out
            made[name] = {**found, "default": True} if one.default else found
    return {"named": {name: made[name] for name in site.named if name in made}} if made else {}


def _named(site: Site, name: str, hosts: Mapping[str, str], made: Mapping[str, Value]) -> dict[str, Value]:
    one = site.named[name]
    wanted = [(s["topology"].value if "topology" in s else "", s) for s in site.partitions.values()]
    used = {
        node: hosts[node]
        for chosen, settings in wanted
        if (chosen == name or (one.default and chosen not in made))
        for node in site.members(settings)
        if node in hosts
    }
    if not one.switches:
        return {"flat": True}
    alone = Site(
        cluster=site.cluster, switches=one.switches, block_sizes=one.sizes, complaints=site.complaints
    )
    return topology_of(alone, used, {switch: switch for switch in one.switches}, f"topology {name}")


def _block(site: Site, hosts: Mapping[str, str], names: Mapping[str, str]) -> dict[str, Value]:
    blocks: dict[str, Value] = {
        names[block.name]: fold(hosts[node] for node in block.nodes if node in hosts)
        for block in site.switches.values()
        if any(node in hosts for node in block.nodes)
    }
    made: dict[str, Value] = {"blocks": blocks}
    if site.block_sizes is not None:
        made["sizes"] = [int(size) for size in site.block_sizes.value.split(",")]
    if "switchtype" in site.cluster and site.cluster["switchtype"].value.lower() == IMEX:
        made["imex"] = True
    return made


def _below(
    site: Site, switch: Switch, hosts: Mapping[str, str], names: Mapping[str, str], levels: int
) -> Value:
    """The hosts of a leaf, or the switches below; None without a host of the spec."""
    if switch.nodes:
        return fold(hosts[node] for node in switch.nodes if node in hosts) or None
    if not levels:
        return None
    found = {
        names[name]: value
        for name in switch.below
        if (value := _below(site, site.switches[name], hosts, names, levels - 1))
    }
    return found or None


def _why_not(site: Site, hosts: Mapping[str, str], names: Mapping[str, str]) -> str:
    """Why slurmctld or the spec would refuse it; empty if neither does."""
    switches, first = site.switches.values(), next(iter(site.switches.values()))
    times = Counter(name for switch in switches for name in switch.below)
    placed = Counter(node for switch in switches for node in switch.nodes)
    sizes = "" if site.block_sizes is None else site.block_sizes.value
    left = [node for node in hosts if node not in placed]
    reasons = (
        (len({switch.block for switch in switches}) > 1, "it has switches and blocks"),
        (any(name not in names for name in site.switches), "two switches have one name"),
        (any(name not in site.switches for name in times), "a switch is above one that is not defined"),
        (any(count > 1 for count in times.values()), "a switch is below two others"),
        (any(count > 1 for count in placed.values()), "a node is below two switches"),
        (
            any(bool(switch.nodes) == bool(switch.below) for switch in switches),
            "a switch has nodes and switches, or neither",
        ),
        (not _has_top(site), "its switches form a circle"),
        (
            bool(left) and first.block,
            f"{len(left)} nodes are in no block, for example {next(iter(left), '')}",
        ),
        (OFF_FABRIC in names.values(), f"a switch has the name {OFF_FABRIC}"),
        (
            not all(size.isdecimal() and len(size) < 6 for size in sizes.split(",") if sizes),
            "BlockSizes are no numbers",
        ),
    )
    return next((why for wrong, why in reasons if wrong), "")


def _has_top(site: Site) -> bool:
    """Whether each switch is reached from a switch at the top."""
    below = {name for switch in site.switches.values() for name in switch.below}
    reached, waiting = set[str](), [name for name in site.switches if name not in below]
    while waiting:
        name = waiting.pop()
        if name not in reached and name in site.switches:
            reached.add(name)
            waiting.extend(site.switches[name].below)
    return reached == site.switches.keys()

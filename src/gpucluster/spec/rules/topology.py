"""The topology of existing hosts: each host once, every switch once, sizes of blocks, and the version that has it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from gpucluster import catalog as catalogs
from gpucluster.catalog import Catalog
from gpucluster.spec.decode import did_you_mean
from gpucluster.spec.model import ClusterSpec
from gpucluster.spec.part import AbsentError, require
from gpucluster.spec.problem import Finding, Path
from gpucluster.spec.rules.findings import error, or_none
from gpucluster.spec.rules.hosts import once
from gpucluster.spec.topology import Block, NamedTopology, Topology, switches
from gpucluster.text import quoted

AT: Path = ("slurm", "topology")
SMALL_BLOCKS_SINCE = "25.05"  # before, slurmctld ends if a block has fewer nodes than the base size (S35)
MOST_DOUBLINGS = 15  # of the base size; MAX_BLOCK_LEVELS of Slurm's block_record.c

_Kind = Topology | NamedTopology


def kinds(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Require exactly one of tree, block and named, and one of tree, block and flat below each name."""
    topology = require(require(spec.slurm).topology)
    require(spec.hosts)
    yield from _one_of(topology, ("tree", "block", "named"), AT)
    for name, one in (topology.named or {}).items():
        yield from _one_of(one, ("tree", "block", "flat"), (*AT, "named", name))


def versions(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    """Refuse what the version lacks, and name the version that has it."""
    version, topology = require(spec.slurm).version, require(require(spec.slurm).topology)
    if version not in catalog.slurm_known:
        return
    blocks = catalogs.slurm_key_versions("topology.conf")["blocksizes"]
    several = catalogs.slurm_key_versions("partition")["topology"]
    for path, one in _each(topology):
        if or_none(lambda one=one: one.block) is not None and version not in blocks:
            yield _lacks((*path, "block"), version, "blocks", _offered(blocks, catalog))
    if or_none(lambda: topology.named) is not None and version not in several:
        yield _lacks((*AT, "named"), version, "several topologies", _offered(several, catalog))


def names_and_hosts(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Require that the name of each switch or block is used once, that it is no host, and that each host of a pool has one place."""
    topology = require(require(spec.slurm).topology)
    ours = {host: index for index, pool in enumerate(spec.pools) for host in require(pool.hosts)}
    for path, one in _each(topology):
        try:
            yield from _places(one, path, ours, _wanted(spec, path, ours))
        except AbsentError:
            continue


def sizes(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    """Require sizes that are the base times powers of two, in their order, and blocks of the base size before 25.05."""
    topology = require(require(spec.slurm).topology)
    for path, one in _each(topology):
        try:
            yield from _sizes(require(one.block), (*path, "block"), require(spec.slurm).version, catalog)
        except AbsentError:
            continue


def partitions(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    """Require that the topology of a partition is one of the named ones."""
    wanted = require(spec.partitions[index].topology)
    topology = require(spec.slurm).topology
    known = {} if topology is None else topology.named or {}
    at = ("partitions", index, "topology")
    if wanted not in known:
        near = did_you_mean(wanted, known) or (
            f"; there are {', '.join(known)}" if known else "; there is none"
        )
        yield error(
            *at, id="unknown-topology", message=f"{quoted(wanted)} is not one of `slurm.topology.named`{near}"
        )


def defaults(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Require exactly one default of several topologies."""
    named = require(require(require(spec.slurm).topology).named)
    chosen = [name for name, one in named.items() if or_none(lambda one=one: one.default)]
    if len(chosen) != 1:
        found = "none is" if not chosen else f"{', '.join(chosen)} are"
        message = f"{found} the default; write `default: true` at one"
        yield error(*AT, "named", id="default-topology", message=message)


def _one_of(one: _Kind, keys: tuple[str, ...], at: Path) -> Iterator[Finding]:
    found = [key for key in keys if or_none(lambda key=key: getattr(one, key))]
    if len(found) != 1 and all(key in vars(one) for key in keys):
        listed = f"{', '.join(keys[:-1])} and {keys[-1]}"
        message = f"expected one of {listed}, found {' and '.join(found) or 'none'}"
        yield error(*at, id="one-topology", message=message)


def _each(topology: Topology) -> Iterator[tuple[Path, _Kind]]:
    """The topology itself, and each named one, with its path."""
    yield AT, topology
    try:
        named = topology.named or {}
    except AbsentError:
        return
    yield from (((*AT, "named", name), one) for name, one in named.items())


def _wanted(spec: ClusterSpec, path: Path, ours: Mapping[str, int]) -> Iterable[str]:
    """The hosts that a topology must have: those of the partitions that use it."""
    if path == AT:
        return ours
    name = str(path[-1])
    default = require(require(require(spec.slurm).topology).named)[name].default
    pools = {
        pool
        for partition in spec.partitions
        if (partition.topology or (name if default else "")) == name
        for pool in partition.pools
    }
    return [host for host, index in ours.items() if spec.pools[index].name in pools]


def _places(one: _Kind, at: Path, ours: Mapping[str, int], wanted: Iterable[str]) -> Iterator[Finding]:
    named = [((*at, *path), path[-1], hosts) for path, hosts in _leaves(one)]
    above = [((*at, *path), path[-1]) for path in _above(one)]
    if not named or (one.block is not None and one.tree is not None):
        return  # nothing, or both: another finding
    what = "the switch" if one.block is None else "the block"
    yield from once([*above, *((path, name) for path, name, _ in named)], what, id="duplicate-switch")
    for path, name in (*above, *((path, name) for path, name, _ in named)):
        if name in ours:
            message = f"{quoted(name)} is a host of a pool; choose another name for {what}"
            yield error(*path, id="duplicate-switch", message=message)
    on = [(path, host) for path, _, hosts in named for host in hosts]
    yield from once(on, "the host", id="duplicate-host")
    for path, host in on:
        if host not in ours:
            near = did_you_mean(host, ours)
            yield error(*path, id="unknown-host", message=f"{quoted(host)} is not a host of a pool{near}")
    placed = {host for _, host in on}
    left = [host for host in wanted if host not in placed]
    if left:
        more = f" and {len(left) - 1} more" if len(left) > 1 else ""
        where = "no leaf switch" if one.block is None else "no block"
        message = f"{quoted(left[0])}{more} {'is' if len(left) == 1 else 'are'} on {where}: Slurm would ignore the topology for {'it' if len(left) == 1 else 'them'}"
        key = "tree" if one.block is None else "block"
        yield error(*at, key, id="host-without-leaf", message=message)


def _leaves(one: _Kind) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    if one.block is not None:
        yield from ((("block", "blocks", name), hosts) for name, hosts in one.block.blocks.items())
    for path, below in switches(one.tree or {}):
        if isinstance(below, tuple):
            yield ("tree", *path), below


def _above(one: _Kind) -> Iterator[tuple[str, ...]]:
    yield from (("tree", *path) for path, below in switches(one.tree or {}) if isinstance(below, Mapping))


def _sizes(block: Block, at: Path, version: str, catalog: Catalog) -> Iterator[Finding]:
    smallest, name = min((len(hosts), name) for name, hosts in block.blocks.items())
    base = block.sizes[0] if block.sizes else smallest
    for index, size in enumerate(block.sizes or ()):
        if not _is_multiple(size, base) or size in (block.sizes or ())[:index]:
            message = f"{size} is not the base size {base} times a power of two (2 to {2**MOST_DOUBLINGS})"
            yield error(*at, "sizes", index, id="block-size", message=message)
    known = catalog.slurm_known
    if smallest < base and version in known and known.index(version) < known.index(SMALL_BLOCKS_SINCE):
        message = (
            f"the block has {smallest} host{'' if smallest == 1 else 's'}, fewer than the base size {base}: slurmctld {version} ends. "
            f"Slurm {_offered(known[known.index(SMALL_BLOCKS_SINCE) :], catalog)} takes it"
        )
        yield error(*at, "blocks", name, id="small-block", message=message)


def _is_multiple(size: int, base: int) -> bool:
    times, rest = divmod(size, base)
    return rest == 0 and times > 0 and times & (times - 1) == 0 and times <= 2**MOST_DOUBLINGS


def _offered(having: Sequence[str], catalog: Catalog) -> str:
    """The first of the versions that `slurm.version` takes."""
    return next((one for one in having if one in catalog.slurm_supported), having[0])


def _lacks(at: Path, version: str, what: str, since: str) -> Finding:
    return error(*at, id="slurm-lacks", message=f"Slurm {version} cannot have {what}; {since} can")

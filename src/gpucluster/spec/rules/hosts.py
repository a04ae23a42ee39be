"""Existing hosts: names and addresses, hardware, switches, and users."""

from collections.abc import Iterable, Iterator

from gpucluster.catalog import Catalog
from gpucluster.catalog.image import account_owner
from gpucluster.plan import names
from gpucluster.spec.decode import did_you_mean
from gpucluster.spec.model import ClusterSpec
from gpucluster.spec.part import AbsentError, require
from gpucluster.spec.problem import Finding, Path
from gpucluster.spec.rules.findings import error, or_none, same_names, warning
from gpucluster.text import quoted

OF_HOSTS = ("machine", "hosts", "addresses")
OF_A_CLOUD = ("nodes", "idle", "capacity", "on_boot", "image", "placement")
OF_THE_DAEMON = ("spares", "termination", "job_heartbeat", "breaker")  # it runs only in a cloud
SYSTEMS = ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/root", "/run", "/sbin", "/sys", "/usr/bin",
           "/usr/lib", "/usr/lib64", "/usr/libexec", "/usr/sbin", "/usr/share", "/var/cache", "/var/lib/dpkg",
           "/var/lib/munge", "/var/lib/nfs", "/var/lib/slurm", "/var/lib/systemd", "/var/log", "/var/run",
           "/var/spool/slurm", "/var/spool/slurmctld", "/var/spool/slurmd", names.SPOOL, names.STATE_DIR,
           names.VENV.rpartition("/")[0])  # fmt: skip
LEAST_MEMORY_MIB = 512  # for Debian and slurmd; Slurm reads 0 as no limit

_Place = tuple[Path, str]


def cloud_only(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Refuse parts for cloud machines in a cluster on hosts."""
    require(spec.hosts)
    if spec.head is not None:
        yield error("head", id="hosts-or-cloud", message="on existing hosts the head is `hosts.head`")
    for key in ("access", "login", "directory"):
        if or_none(lambda key=key: getattr(spec, key)) is not None:
            message = f"'{key}' is for cloud machines; existing hosts have the site's own"
            yield error(key, id="hosts-or-cloud", message=message)


def no_replacement(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Refuse the limit of replacements in a cluster on hosts."""
    require(spec.hosts)
    health = or_none(lambda: spec.health)
    if health is not None and health.replace_per_hour is not None:
        message = "'replace_per_hour' is for cloud machines; nobody replaces an existing host"
        yield error("health", "replace_per_hour", id="hosts-or-cloud", message=message)


def hosts_only(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Refuse parts for hosts in a cluster on AWS."""
    require(spec.aws)
    if spec.hosts is not None:
        return
    if spec.machines:
        yield error(
            "machines",
            id="hosts-or-cloud",
            message="'machines' is for `hosts`; cloud machines are in the catalog",
        )
    if spec.slurm is not None and spec.slurm.topology is not None:
        message = "on AWS each zone is a leaf; 'topology' is for `hosts`"
        yield error("slurm", "topology", id="hosts-or-cloud", message=message)


def pool_on_aws(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    require(spec.aws)
    if spec.hosts is None:
        yield from _misplaced(spec, index, OF_HOSTS, "is for existing hosts, and this cluster is on `aws`")


def pool_on_hosts(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    require(spec.hosts)
    if spec.aws is not None:
        return
    yield from _misplaced(spec, index, OF_A_CLOUD, "is for cloud machines, and this cluster is on `hosts`")
    why = "is used by the elastic daemon, which manages cloud machines only"
    yield from _misplaced(spec, index, OF_THE_DAEMON, why)
    for key, what in zip(
        OF_HOSTS, ("the kind of machine", "the host names", "the host addresses"), strict=True
    ):
        if getattr(spec.pools[index], key) is None:
            yield error("pools", index, id="missing-key", message=f"'{key}' is missing: {what}")


def pool_machine(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    require(spec.hosts)
    name, known = require(spec.pools[index].machine), spec.machines
    if name not in known:
        near = did_you_mean(name, known) or (
            f"; there are {', '.join(known)}" if known else "; there is none"
        )
        message = f"{quoted(name)} is not one of `machines`{near}"
        yield error("pools", index, "machine", id="unknown-machine", message=message)


def pool_addresses(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    hosts, addresses = require(spec.pools[index].hosts), require(spec.pools[index].addresses)
    if len(hosts) != len(addresses):
        message = f"{_many(len(addresses), 'address', 'es')} for {_many(len(hosts), 'host')}: write one address for each host, in the same order"
        yield error("pools", index, "addresses", id="addresses-differ", message=message)


def named_once(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    require(spec.hosts)
    yield from once(_all(spec, "hosts", "name"), "the host", id="duplicate-host")
    for path, name in _all(spec, "hosts", "name"):
        if name == "head" and path[0] == "pools":
            yield error(
                *path,
                id="reserved-name",
                message="only the head can have the name 'head': it is a group name in Ansible",
            )
    yield from once(_all(spec, "addresses", "address"), "the address", id="duplicate-address")


def how_many(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    require(spec.hosts)
    total = sum(1 for _ in _all(spec, "hosts", "name"))
    from gpucluster.slurm.hostlist import SLURM_MOST  # noqa: PLC0415  only a spec of hosts has hostlists

    if total > SLURM_MOST:
        message = f"{total} hosts in all; Slurm's limit is {SLURM_MOST}"
        yield error("pools", id="out-of-range", message=message)


def unused_machines(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    used = {or_none(lambda pool=pool: pool.machine) for pool in spec.pools}
    if used - set(spec.machines):
        return  # a pool names an unknown machine: one of these may be meant
    for name in spec.machines:
        if name not in used:
            yield warning("machines", name, id="unused-machine", message=f"no pool uses '{name}'")


def machines(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Require memory, and a CPU for each GPU: Slurm reads a share of 0 as no limit."""
    for name, machine in spec.machines.items():
        memory = or_none(lambda machine=machine: machine.memory)
        if isinstance(memory, int) and memory < LEAST_MEMORY_MIB:
            message = f"{memory} MiB is too small for slurmd; it needs {LEAST_MEMORY_MIB} MiB"
            yield error("machines", name, "memory", id="out-of-range", message=message)
        cpus = or_none(lambda m=machine: m.sockets * m.cores_per_socket * m.threads_per_core)
        gpus = or_none(lambda m=machine: require(m.gpus).count)
        if isinstance(cpus, int) and isinstance(gpus, int) and cpus < gpus:
            message = (
                f"{_many(gpus, 'GPU')} on {_many(cpus, 'CPU')}: a job takes at least one CPU for each GPU"
            )
            yield error("machines", name, "gpus", "count", id="gpus-above-cpus", message=message)


def nvlink(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    for name, machine in spec.machines.items():
        gpus = machine.gpus
        if gpus is None or gpus.nvlink is None:
            continue
        if gpus.nvlink == 1 or gpus.count % gpus.nvlink:
            message = f"{_many(gpus.count, 'GPU')} do not make groups of {gpus.nvlink} that NVLink joins; write 2 or more, so that {gpus.count} is a multiple of it"
            yield error("machines", name, "gpus", "nvlink", id="nvlink-groups", message=message)


def people(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    listed = [(("users", index), user) for index, user in enumerate(spec.users)]
    found = [((*path, "name"), or_none(lambda user=user: user.name)) for path, user in listed]
    yield from same_names([lambda user=user: user.name for user in spec.users], "users")
    yield from same_uids(spec)
    admin = or_none(lambda: require(spec.hosts).ssh.user)
    for path, name in found:
        if name is None:
            continue
        if name == admin:
            message = f"{quoted(name)} is the user of Ansible on the hosts; choose another name"
            yield error(*path, id="reserved-name", message=message)
        elif owner := account_owner(str(name)):
            message = f"{quoted(name)} is a user or group of {owner}; choose another name"
            yield error(*path, id="reserved-name", message=message)


def same_uids(spec: ClusterSpec) -> Iterator[Finding]:
    uids = [or_none(lambda user=user: user.uid) for user in spec.users]
    for index, uid in enumerate(uids):
        if uid is not None and uid in uids[:index]:
            message = f"{uid} is already the uid of users[{uids.index(uid)}]"
            yield error("users", index, "uid", id="duplicate-uid", message=message)


def mounts(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    """Refuse mounts and exports that would cover data of existing hosts."""
    require(spec.hosts)
    part = spec.storage[index]
    if system := touched(part.mount):
        message = f"{part.mount} cannot be a mount point: {why_touched(part.mount, system)}the host needs it"
        yield error("storage", index, "mount", id="mounted-over-system", message=message)
    nfs = require(part.nfs)
    if nfs.server is not None and nfs.server == or_none(lambda: require(spec.hosts).head.address):
        message = f"{nfs.server} is the head, which exports only with `from: head`: write that"
        yield error("storage", index, "nfs", "server", id="nfs-source", message=message)
    if nfs.source != "head":
        return
    at = ("storage", index, "nfs", "export")
    export = nfs.export or part.mount
    if system := touched(export):
        message = (
            f"the head cannot export {export}: {why_touched(export, system)}every node could write there"
        )
        yield error(*at, id="exported-system", message=message)
    for other in (or_none(lambda one=one: one.mount) for one in spec.storage):
        if isinstance(other, str) and _hides(other, export, own=other == part.mount):
            message = f"the mount {other} would hide the head's export {export}"
            yield error(*at, id="export-hidden", message=message)


def touched(path: str) -> str | None:
    """Return the system folder that equals this one, is in it, or contains it."""
    return next(
        (one for one in SYSTEMS if f"{path}/".startswith(f"{one}/") or f"{one}/".startswith(f"{path}/")), None
    )


def why_touched(path: str, system: str) -> str:
    return (
        "" if path == system else f"{system} {'contains it' if path.startswith(system) else 'is in it'}, and "
    )


def _hides(mount: str, export: str, *, own: bool) -> bool:
    """Return whether the mount hides the export. The export's own mount point may be the same folder."""
    return f"{export}/".startswith(f"{mount}/") and not (own and mount == export)


def _misplaced(spec: ClusterSpec, index: int, keys: tuple[str, ...], why: str) -> Iterator[Finding]:
    """Yield an error for each key that belongs to another kind of cluster."""
    for key in keys:
        if or_none(lambda key=key: getattr(spec.pools[index], key)):
            yield error("pools", index, key, id="hosts-or-cloud", message=f"'{key}' {why}")


def _all(spec: ClusterSpec, of_pools: str, of_head: str) -> Iterator[_Place]:
    """Yield each name, or each address, of the head and the pools, with its path."""
    head = or_none(lambda: getattr(require(spec.hosts).head, of_head))
    if head is not None:
        yield ("hosts", "head", of_head), str(head)
    for index, pool in enumerate(spec.pools):
        try:
            found: tuple[str, ...] = require(getattr(pool, of_pools))
        except AbsentError:
            continue
        yield from ((("pools", index, of_pools), one) for one in found)


def once(places: Iterable[_Place], what: str, *, id: str) -> Iterator[Finding]:  # noqa: A002
    """Yield one finding for each path that repeats a value."""
    seen: set[str] = set()
    reported: set[Path] = set()
    for path, value in places:
        if value in seen and path not in reported:
            reported.add(path)
            yield error(*path, id=id, message=f"{what} {quoted(value)} is named twice")
        seen.add(value)


def _many(count: int, noun: str, plural: str = "s") -> str:
    return f"{count} {noun}{plural * (count != 1)}"

"""Hosts that exist: who is where, once each; what they are; which switch they hang on; who may work there."""

from collections.abc import Iterable, Iterator

from gpucluster.catalog import Catalog
from gpucluster.plan import names
from gpucluster.spec.decode import did_you_mean
from gpucluster.spec.fields import MAX_NODES
from gpucluster.spec.model import ClusterSpec
from gpucluster.spec.part import AbsentError, written
from gpucluster.spec.problem import Finding, Path, quoted
from gpucluster.spec.rules.findings import error, or_none, warning

OF_HOSTS = ("machine", "hosts", "addresses")
OF_A_CLOUD = ("nodes", "idle", "capacity", "image", "placement")
OF_THE_DAEMON = ("spares", "farewell", "hung", "breaker")  # it runs where nodes come and go
DEBIAN_USERS = frozenset((  # users and groups of base-passwd and of packages that hosts have: useradd would take or refuse them
    "root", "daemon", "bin", "sys", "sync", "games", "man", "lp", "mail", "news", "uucp", "proxy",
    "www-data", "backup", "list", "irc", "nobody", "_apt", "sshd", "messagebus", "systemd-network",
    "systemd-resolve", "systemd-timesync", "systemd-journal", "systemd-coredump", "systemd-oom",
    "statd", "_rpc", "munge", "slurm", "adm", "audio", "cdrom", "crontab", "dialout", "dip", "disk",
    "docker", "fax", "floppy", "gnats", "input", "kmem", "kvm", "netdev", "nogroup", "operator",
    "plugdev", "polkitd", "postfix", "render", "sasl", "sgx", "shadow", "src", "staff", "sudo", "tape",
    "tty", "users", "utmp", "video", "voice"
))  # fmt: skip
SYSTEMS = ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/root", "/run", "/sbin", "/sys", "/usr/bin",
           "/usr/lib", "/usr/lib64", "/usr/libexec", "/usr/sbin", "/usr/share", "/var/cache", "/var/lib/dpkg",
           "/var/lib/munge", "/var/lib/nfs", "/var/lib/slurm", "/var/lib/systemd", "/var/log", "/var/run",
           "/var/spool/slurm", "/var/spool/slurmctld", "/var/spool/slurmd", names.SPOOL, names.STATE_DIR,
           names.VENV.rpartition("/")[0])  # fmt: skip
LEAST_MEMORY_MIB = 512  # for Debian and slurmd; nearer 0 Slurm would take what is left for no limit

_Place = tuple[Path, str]


def cloud_only(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """What says something of a cloud's machines has no meaning on hosts."""
    written(spec.hosts)
    if spec.head is not None:
        yield error("head", id="hosts-or-cloud", says="on hosts that exist the head is hosts.head")
    for key in ("access", "login", "directory"):
        if or_none(lambda key=key: getattr(spec, key)) is not None:
            says = f"'{key}' is for a cloud's machines; on hosts that exist it is the site's own"
            yield error(key, id="hosts-or-cloud", says=says)


def hosts_only(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """And the other way round."""
    written(spec.aws)
    if spec.hosts is not None:
        return
    if spec.machines:
        yield error(
            "machines",
            id="hosts-or-cloud",
            says="a cloud's machines are in the catalog; these are for `hosts`",
        )
    if spec.slurm is not None and spec.slurm.topology is not None:
        says = "on AWS each zone is a leaf; a topology of one's own is for `hosts`"
        yield error("slurm", "topology", id="hosts-or-cloud", says=says)


def pool_on_aws(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    written(spec.aws)
    if spec.hosts is None:
        yield from _strange(
            spec, index, OF_HOSTS, "is for hosts that exist, and this cluster stands on `aws`"
        )


def pool_on_hosts(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    written(spec.hosts)
    if spec.aws is not None:
        return
    yield from _strange(
        spec, index, OF_A_CLOUD, "is for a cloud's machines, and this cluster stands on `hosts`"
    )
    why = "is kept by the elastic daemon, which runs for a cloud's machines only"
    yield from _strange(spec, index, OF_THE_DAEMON, why)
    for key, what in zip(OF_HOSTS, ("what they are", "their names", "their addresses"), strict=True):
        if getattr(spec.pools[index], key) is None:
            yield error("pools", index, id="missing-key", says=f"'{key}' is missing: {what}")


def pool_machine(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    written(spec.hosts)
    name, known = written(spec.pools[index].machine), spec.machines
    if name not in known:
        near = did_you_mean(name, known) or (
            f"; there are {', '.join(known)}" if known else "; there is none"
        )
        says = f"{quoted(name)} is not one of `machines`{near}"
        yield error("pools", index, "machine", id="unknown-machine", says=says)


def pool_addresses(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    hosts, addresses = written(spec.pools[index].hosts), written(spec.pools[index].addresses)
    if len(hosts) != len(addresses):
        says = f"{_many(len(addresses), 'address', 'es')} for {_many(len(hosts), 'host')}: each host has one, in the same order"
        yield error("pools", index, "addresses", id="addresses-differ", says=says)


def named_once(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    written(spec.hosts)
    yield from _once(_all(spec, "hosts", "name"), "the host", id="duplicate-host")
    for path, name in _all(spec, "hosts", "name"):
        if name == "head" and path[0] == "pools":
            yield error(
                *path,
                id="reserved-name",
                says="only the head may be called 'head': Ansible has its group by that name",
            )
    yield from _once(_all(spec, "addresses", "address"), "the address", id="duplicate-address")


def how_many(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    written(spec.hosts)
    total = sum(1 for _ in _all(spec, "hosts", "name"))
    if total > MAX_NODES:
        yield error("pools", id="out-of-range", says=f"{total} hosts in all are more than {MAX_NODES}")


def unused_machines(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    used = {or_none(lambda pool=pool: pool.machine) for pool in spec.pools}
    for name in spec.machines if used <= set(spec.machines) else ():
        if name not in used:
            yield warning("machines", name, id="unused-machine", says=f"no pool is made of '{name}'")


def machines(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """What Slurm would take a share of and find nothing: 0 memory or 0 CPUs for each GPU is no limit to it."""
    for name, machine in spec.machines.items():
        memory = or_none(lambda machine=machine: machine.memory)
        if isinstance(memory, int) and memory < LEAST_MEMORY_MIB:
            says = f"{memory} MiB are too little for Slurm's daemon; it needs {LEAST_MEMORY_MIB}"
            yield error("machines", name, "memory", id="out-of-range", says=says)
        cpus = or_none(lambda m=machine: m.sockets * m.cores_per_socket * m.threads_per_core)
        gpus = or_none(lambda m=machine: written(m.gpus).count)
        if isinstance(cpus, int) and isinstance(gpus, int) and cpus < gpus:
            says = f"{_many(gpus, 'GPU')} on {_many(cpus, 'CPU')}: a job takes at least one CPU with each"
            yield error("machines", name, "gpus", "count", id="gpus-above-cpus", says=says)


def switches(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Each switch once, each host of a pool on exactly one leaf, nobody else."""
    written(spec.hosts)
    tree = written(written(spec.slurm).topology).tree
    at: Path = ("slurm", "topology", "tree")
    leaves = [((*at, spine, leaf), leaf) for spine in tree for leaf in tree[spine]]
    yield from _once(
        [*(((*at, spine), spine) for spine in tree), *leaves], "the switch", id="duplicate-switch"
    )
    ours = dict.fromkeys(host for pool in spec.pools for host in written(pool.hosts))
    for path, leaf in leaves:
        if leaf in ours:
            says = f"{quoted(leaf)} is a host of a pool; a switch has a name of its own"
            yield error(*path, id="duplicate-switch", says=says)
    hung = [
        ((*at, spine, leaf), host) for spine in tree for leaf in tree[spine] for host in tree[spine][leaf]
    ]
    yield from _once(hung, "the host", id="duplicate-host")
    for path, host in hung:
        if host not in ours:
            near = did_you_mean(host, ours)
            yield error(*path, id="unknown-host", says=f"{quoted(host)} is not a host of a pool{near}")
    names_hung = {host for _, host in hung}
    left = [host for host in ours if host not in names_hung]
    if left:
        more = f" and {len(left) - 1} more" if len(left) > 1 else ""
        says = f"{quoted(left[0])}{more} hang on no leaf: Slurm would place jobs beside the topology"
        yield error(*at, id="host-without-leaf", says=says)


def people(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    listed = [(("users", index), user) for index, user in enumerate(spec.users)]
    found = [((*path, "name"), or_none(lambda user=user: user.name)) for path, user in listed]
    yield from _once(
        [(path, str(name)) for path, name in found if name is not None], "the user", id="duplicate-name"
    )
    uids = [((*path, "uid"), or_none(lambda user=user: user.uid)) for path, user in listed]
    yield from _once(
        [(path, str(uid)) for path, uid in uids if uid is not None], "the uid", id="duplicate-uid"
    )
    admin = or_none(lambda: written(spec.hosts).ssh.user)
    for path, name in found:
        if name in DEBIAN_USERS:
            yield error(
                *path, id="reserved-name", says=f"{quoted(name)} is one of the system's own users or groups"
            )
        elif name is not None and name == admin:
            yield error(
                *path,
                id="reserved-name",
                says=f"{quoted(name)} is whom Ansible logs in as; the hosts have it",
            )


def mounts(spec: ClusterSpec, index: int, _catalog: Catalog) -> Iterator[Finding]:
    """On hosts that exist there is something to lose."""
    written(spec.hosts)
    wish = spec.storage[index]
    if system := touched(wish.mount):
        says = f"nothing is mounted over {wish.mount}: {why_touched(wish.mount, system)}the host would not live without it"
        yield error("storage", index, "mount", id="mounted-over-system", says=says)
    nfs = written(wish.nfs)
    if nfs.server is not None and nfs.server == or_none(lambda: written(spec.hosts).head.address):
        says = f"{nfs.server} is the head, which exports only what it is told: write `from: head`"
        yield error("storage", index, "nfs", "server", id="nfs-source", says=says)
    if nfs.source != "head":
        return
    at = ("storage", index, "nfs", "export")
    export = nfs.export or wish.mount
    if system := touched(export):
        says = f"the head does not export {export}: {why_touched(export, system)}every node could write there"
        yield error(*at, id="exported-system", says=says)
    for other in (or_none(lambda one=one: one.mount) for one in spec.storage):
        if isinstance(other, str) and _hides(other, export, own=other == wish.mount):
            says = f"the head would hide its own export {export} by mounting {other} above it"
            yield error(*at, id="export-hidden", says=says)


def touched(path: str) -> str | None:
    """The system's folder that is this one, or in it, or around it."""
    return next(
        (one for one in SYSTEMS if f"{path}/".startswith(f"{one}/") or f"{one}/".startswith(f"{path}/")), None
    )


def why_touched(path: str, system: str) -> str:
    return "" if path == system else f"{system} is {'around' if path.startswith(system) else 'in'} it, and "


def _hides(mount: str, export: str, *, own: bool) -> bool:
    """Its own mount may be the very folder: then the head binds nothing."""
    return f"{export}/".startswith(f"{mount}/") and not (own and mount == export)


def _strange(spec: ClusterSpec, index: int, keys: tuple[str, ...], why: str) -> Iterator[Finding]:
    """Keys of the pool that say something of another kind of cluster."""
    for key in keys:
        if or_none(lambda key=key: getattr(spec.pools[index], key)):
            yield error("pools", index, key, id="hosts-or-cloud", says=f"'{key}' {why}")


def _all(spec: ClusterSpec, of_pools: str, of_head: str) -> Iterator[_Place]:
    """Each name, or each address, of the head and the pools, with its place."""
    head = or_none(lambda: getattr(written(spec.hosts).head, of_head))
    if head is not None:
        yield ("hosts", "head", of_head), str(head)
    for index, pool in enumerate(spec.pools):
        try:
            found: tuple[str, ...] = written(getattr(pool, of_pools))
        except AbsentError:
            continue
        yield from ((("pools", index, of_pools), one) for one in found)


def _once(places: Iterable[_Place], what: str, *, id: str) -> Iterator[Finding]:  # noqa: A002
    """One finding for each place that names again what an earlier one, or itself, has named."""
    seen: set[str] = set()
    told: set[Path] = set()
    for path, value in places:
        if value in seen and path not in told:
            told.add(path)
            yield error(*path, id=id, says=f"{what} {quoted(value)} is named twice")
        seen.add(value)


def _many(count: int, noun: str, plural: str = "s") -> str:
    return f"{count} {noun}{plural * (count != 1)}"

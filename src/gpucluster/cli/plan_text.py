"""The text of `gpucluster plan`: one line, or a few, for each part of a plan."""

from collections.abc import Iterator, Mapping

from gpucluster.plan.defaults import Note
from gpucluster.plan.model import (
    Aws,
    AwsHead,
    AwsPool,
    Blocks,
    Budget,
    ClusterPlan,
    Efs,
    FsxLustre,
    Head,
    HostPool,
    Image,
    ImageById,
    Mount,
    Network,
    NfsFromHead,
    NfsFromServer,
    Nvme,
    OtherMount,
    OwnNetwork,
    SiteEfs,
    SiteLustre,
    SiteNetwork,
    Source,
    Tree,
)
from gpucluster.plan.model.capacity import Share
from gpucluster.plan.model.kubernetes import ExistingControlPlane, Kubernetes, NodePool, Team
from gpucluster.plan.model.values import quantity
from gpucluster.slurm.hostlist import fold
from gpucluster.text import format_duration, format_money, format_rate


def summary(plan: ClusterPlan) -> Iterator[str]:
    slurm = f" Slurm {plan.slurm.version}" if plan.slurm else ""
    yield f"cluster {plan.name}:{slurm}" if slurm else f"cluster {plan.name}"
    if plan.aws is not None:
        yield from _aws(plan.aws, plan.image if plan.slurm is not None else None)
    if plan.hosts is not None:
        yield f"hosts   by ssh as {plan.hosts.ssh_user}, port {plan.hosts.ssh_port}"
    if plan.head is not None:
        yield from _head(plan.head)
    yield from _switches(plan)
    for pool in plan.pools:
        yield from _hosts(pool) if isinstance(pool, HostPool) else _aws_pool(pool)
    for partition in plan.partitions:
        limit = (
            "no time limit"
            if partition.max_time_s is None
            else f"at most {format_duration(partition.max_time_s)}"
        )
        default = ", the default" if partition.default else ""
        yield f"partition {partition.name}: {', '.join(partition.pools)}; {limit}{default}"
    if plan.kubernetes is not None:
        yield from _kubernetes(plan.kubernetes)
    if plan.budget is not None:
        yield _budget(plan.budget)
    yield from _people(plan)
    yield from _mounts(plan)


def _aws_pool(pool: AwsPool) -> Iterator[str]:
    shape = pool.shape
    gpus = f"{shape.gpu_count} x {shape.gpu_model}, " if shape.gpu_count else ""
    times = f"idle {format_duration(pool.idle_s)}, boot at most {format_duration(pool.boot_timeout_s)}"
    spares = f", {pool.spares} spare" if pool.spares else ""
    yield f"pool {pool.name}: {pool.min} to {pool.max} nodes{spares}; {times}"
    yield f"  each {gpus}{shape.cpus} CPUs, {shape.real_memory_mib} MiB"
    yield f"  slots {pool.hostlist}"
    for source in pool.sources:
        yield _capacity_source(source)
    if pool.termination.script is not None:
        yield f"  {pool.termination.script} runs on a machine before it ends"
    if pool.job_heartbeat is not None:
        then = "reported and requeued" if pool.job_heartbeat.requeue else "reported"
        yield f"  a job whose heartbeat stops for {format_duration(pool.job_heartbeat.after_s)} is {then}"


def _capacity_source(source: Source) -> str:
    reservation = f" {source.reservation}" if source.reservation else ""
    price = f", at most {format_rate(source.max_price)}" if source.max_price is not None else ""
    most = f", at most {source.max}" if source.max is not None else ""
    machines, zones = " or ".join(source.machines), ", ".join(source.zones)
    return f"  {source.position + 1}. {source.market}{reservation} {machines} in {zones}{price}{most}"


def _budget(budget: Budget) -> str:
    warn, stop = format_money(budget.warn_at), format_money(budget.stop_scaling_at)
    return f"budget  {format_money(budget.monthly)} a month: warning at {warn}, no launch from {stop} on"


def _hosts(pool: HostPool) -> Iterator[str]:
    shape = pool.shape
    gpus = f"{shape.gpu_count} x {shape.gpu_model}, " if shape.gpu_count else ""
    yield f"pool {pool.name}: {pool.max} hosts, each {pool.hardware.machine}"
    yield f"  each {gpus}{shape.cpus} CPUs, {shape.real_memory_mib} MiB"
    yield f"  hosts {pool.hostlist} at {fold(pool.addresses)}"


def _switches(plan: ClusterPlan) -> Iterator[str]:
    for one in plan.topologies:
        if one.name:
            yield f"topology {one.name}{' (default)' if one.default else ''}: {one.kind}"
        if isinstance(one, Tree):
            yield from (f"switch {leaf.name}: {leaf.hostlist}" for leaf in one.leaves)
            yield from (f"switch {spine.name}: {', '.join(spine.switches)}" for spine in one.spines)
        elif isinstance(one, Blocks):
            yield f"block sizes {', '.join(map(str, one.sizes))}"
            yield from (f"block {block.name}: {block.hostlist}" for block in one.blocks)


def reasons(notes: tuple[Note, ...]) -> Iterator[str]:
    if notes:
        yield ""
        yield "values that the plan derives:"
    for note in notes:
        yield f"  {note.path} = {note.value}"
        yield f"      {note.reason}"


def _aws(site: Aws, image: Image | None) -> Iterator[str]:
    """Region, image of Slurm's machines, tags; the network with its gateways and endpoints."""
    image_text = (
        "" if image is None else f", image {image.id if isinstance(image, ImageById) else image.name}"
    )
    yield f"aws     {site.region}{image_text}"
    network = site.network
    yield f"network {_network(network)}"
    ways = (("NAT in", network.nat), ("endpoints of", network.endpoints))
    found_ways = "; ".join(f"{what} {', '.join(found)}" for what, found in ways if found)
    if found_ways:
        yield f"  {found_ways}"
    if site.tags:
        yield f"tags    {', '.join(f'{key}={value}' for key, value in site.tags)}"


def _network(network: Network) -> str:
    match network:
        case OwnNetwork(cidr=name, subnets=subnets):
            found = ((subnet.zone, subnet.cidr) for subnet in subnets)
        case SiteNetwork(vpc=name, subnets=subnets):
            found = ((subnet.zone, subnet.id) for subnet in subnets)
    return f"{name}: {', '.join(f'{zone} {subnet}' for zone, subnet in found)}"


def _head(head: Head) -> Iterator[str]:
    """The head, its volumes, and the standby."""
    machine = f"{head.machine} in {head.zone}, " if isinstance(head, AwsHead) else ""
    yield f"head    {head.name}: {machine}{head.address}"
    for volume in head.volumes:
        yield f"  volume {volume.key}: {volume.size_gib} GiB at {volume.path}, protected"
    if head.standby is not None:
        waits = head.standby
        yield f"  standby: {waits.machine} in {waits.zone}, {waits.address}; state on {waits.state}"


def _people(plan: ClusterPlan) -> Iterator[str]:
    """Login machines, the allowed connections, and accounts."""
    if plan.aws is not None and plan.login is not None:
        ways = [*plan.access.ssh_from, *(["Session Manager"] if plan.access.ssm else [])]
        names = ", ".join(plan.login.names)
        yield f"login   {names}: {plan.login.machine} in {plan.login.zone}; from {', '.join(ways) or 'nowhere'}"
    for user in plan.users:
        yield f"user {user.name}: uid {user.uid}, {len(user.keys)} key{'s' * (len(user.keys) != 1)}"
    if plan.directory is not None:
        yield f"users from {plan.directory.uri}, {plan.directory.base}"


def _mounts(plan: ClusterPlan) -> Iterator[str]:
    """One line for each mount."""
    return (f"mount {mount.path}: {_mount_source(mount)}" for mount in plan.storage)


def _mount_source(mount: Mount) -> str:
    match mount.source:
        case NfsFromHead(server=server, export=export) | NfsFromServer(server=server, export=export):
            return f"nfs {server}:{export}"
        case FsxLustre() | SiteLustre() as lustre:
            which = lustre.id if isinstance(lustre, SiteLustre) else f"of {lustre.size_gib} GiB"
            return f"FSx for Lustre {which} in {lustre.zone}"
        case Efs():
            return "EFS"
        case SiteEfs(id=identifier):
            return f"EFS {identifier}"
        case OtherMount() as other:
            return f"{other.type} {other.source}"
        case Nvme():
            return "local disks of the machine"


def _kubernetes(part: Kubernetes) -> Iterator[str]:
    """Version and control plane, then pools, then teams."""
    plane = part.control_plane
    where = f"the context {plane.context}" if isinstance(plane, ExistingControlPlane) else plane.distribution
    yield f"kubernetes {part.version} ({where}): queued by {part.queueing}, GPUs by {part.gpu_stack}"
    for pool in part.pools:
        yield from _node_pool(pool)
    for team in part.teams:
        yield from _team(team)


def waves() -> Iterator[Note]:
    """Return the order in which the files are applied, with reasons."""
    from gpucluster.k8s.waves import CHARTS, WAVES

    for wave in (CHARTS, *WAVES):
        yield Note(f"k8s.{wave.folder}", "wave", wave.holds)


def _node_pool(pool: NodePool) -> Iterator[str]:
    nodes = (
        f"{pool.min} always-on" if pool.min == pool.max else f"{pool.min} always-on, {pool.elastic} elastic"
    )
    slices = ", ".join(f"{n} x {profile}" for profile, n in sorted(pool.mig.items()))
    yield f"pool {pool.name}: {nodes}" + (f"; each GPU as {slices}" if slices else "")
    yield f"  each gives {_amounts(pool.allocatable)}"
    for source in pool.sources:
        most = f", at most {source.max}" if source.max is not None else ""
        yield f"  {source.position + 1}. {source.market} {' or '.join(source.machines)} in {', '.join(source.zones)}{most}"


def _team(team: Team) -> Iterator[str]:
    yield f"team {team.name}: {_amounts(team.quota)}{', and borrows' if team.may_borrow else ''}"
    for share in team.shares:
        yield f"  of {share.pool}: {_share(share)}"


def _share(share: Share) -> str:
    return _amounts({r: amount for r, amount in share.nominal.items() if amount}) or "what others leave idle"


def _amounts(amounts: Mapping[str, int]) -> str:
    return ", ".join(f"{quantity(r, amount)} {r}" for r, amount in sorted(amounts.items()))

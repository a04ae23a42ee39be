"""The expectations of a plan and its bindings: each check with its target. Pure.

A target is a machine (`head`, or the name of a node, of a login machine or of the standby), a job node (`POOL/1`: the first node of validation's own job in that
pool), a pool, a partition, or `cloud`. Targets are the same in every run, so that results can be compared over time.
"""

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gpucluster.checks import (
    accounting,
    agent_process,
    cloud,
    containers,
    files,
    guard,
    hardware,
    health_program,
    health_wants,
    hooks,
    job_mounts,
    jobs,
    limits,
    machine,
    mount_wants,
    mounts,
    munge,
    node_health,
    programs,
    protocols,
    reservations,
    scaling,
    slurmctld,
    strays,
    user_files,
)
from gpucluster.checks.acceptances import Acceptances
from gpucluster.checks.reviewed_spec import Reviewed
from gpucluster.plan import guard_rules, machine_files, names
from gpucluster.plan import mounts as storage_mounts
from gpucluster.plan.model import (
    Bindings,
    Containers,
    LocalDatabase,
    Pool,
    SlurmOnAws,
    SlurmPlan,
)
from gpucluster.plan.names import ROLE_HEAD
from gpucluster.plan.state_storage import BOUND_FOLDERS
from gpucluster.validate import (
    added_expectations,
    cloud_expectations,
    file_expectations,
    login_expectations,
    node_expectations,
    running_expectations,
    standby_expectations,
    unit_expectations,
    user_expectations,
)
from gpucluster.validate.expectation import CLOUD, EVERY_CHECK, Expectation, expect
from gpucluster.validate.order import needs_first
from gpucluster.validate.pool_jobs import node_targets, pool_jobs, power_cycle, small_job

CONF_CACHE = "/run/slurm/conf"  # where a configless slurmd keeps the files of slurmctld
ALWAYS = (  # data loaders and NCCL use /dev/shm
    mounts.MountWant(path="/", types=(), source=""),
    mounts.MountWant(path="/dev/shm", types=("tmpfs",), source=""),  # noqa: S108  asked about, not written to
)
CONTAINER_PROGRAMS = {
    Containers.APPTAINER: containers.Program(name="apptainer", argv=containers.APPTAINER, part="apptainer"),
    Containers.PYXIS: containers.Program(name="enroot", argv=("enroot", "version"), part="pyxis"),
}
STATE_SAVE, NODE_SPOOL = BOUND_FOLDERS["slurmctld"], names.SLURMD_SPOOL


def expectations(
    plan: SlurmPlan,
    bindings: Bindings | None = None,
    *,
    up: Sequence[str] = (),
    bundle: str = "",
    reviewed: Reviewed | None = None,
    accepted: Acceptances | None = None,
    folders: bool = False,
) -> tuple[Expectation, ...]:
    """All expectations, in the order in which they run.

    `up`: elastic nodes that are up now. `bundle`: the digest of the plan's bundle. `reviewed`: the spec that was given
    and that of the bundle; None without a spec. `accepted`: what it accepts until a day. `folders`: shared file systems are
    folders of a rehearsal, so their types, sources and the options of a client are not checked, and there is no DNS of AWS.
    Elastic nodes may be off, so they are checked while a job of ours runs on them. All hosts must be up.
    """
    plan = _with_slurm_pools(plan)
    always_on = [node for pool in plan.pools for node in pool.always_on()]
    every = needs_first(
        [
            *_head(plan, bindings, bundle, reviewed),
            *(() if accepted is None else (expect("cfg.accept", ROLE_HEAD, accepted),)),
            *(e for node in (*always_on, *sorted(set(up) - set(always_on))) for e in _node(plan, node)),
            *_pool_jobs(plan),
            *_job_nodes(plan),
            *_job_checks(plan),
            *_cloud(plan, bindings),
            *_login(plan, bundle),
            *_standby(plan, bundle),
        ]
    )
    return tuple(map(_as_rehearsed, every)) if folders else every


def select(all_of: Sequence[Expectation], *, tier: int, only: Sequence[str] = ()) -> tuple[Expectation, ...]:
    """The expectations up to `tier`; with `only`, those of the named checks or ids (`gpu.count`, `disk[head]`)."""
    known = {e.check for e in all_of} | {e.id for e in all_of} | EVERY_CHECK.keys()
    for word in sorted(set(only) - known):
        near = difflib.get_close_matches(word[:200], sorted(known), n=1)
        hint = f"; did you mean {near[0]}?" if near else f"; the checks are {', '.join(EVERY_CHECK)}"
        raise ValueError(f"there is no check {word[:200]}{hint}")
    chosen = (e for e in all_of if not only or e.check in only or e.id in only)
    return tuple(e for e in chosen if needed_tier(e) <= tier)


def needed_tier(expectation: Expectation) -> int:
    """The tier of the check; at least 1 for a job node, which exists only while a job of ours runs."""
    return max(expectation.of.tier, 1 if "/" in expectation.target else 0)


def _with_slurm_pools(plan: SlurmPlan) -> SlurmPlan:
    """The plan with only the pools that Slurm has."""
    used = {name for partition in plan.partitions for name in partition.pools}
    return replace(plan, pools=tuple(pool for pool in plan.pools if pool.name in used))


def _head(
    plan: SlurmPlan, bindings: Bindings | None, bundle: str, reviewed: Reviewed | None
) -> Iterator[Expectation]:
    head = plan.head
    units = ("munge", "slurmctld", "gpucluster-agent")
    units += _accounting_units(plan) + (("nfs-server",) if storage_mounts.exports(plan) else ())
    timers = unit_expectations.timers(plan)
    yield expect(
        "svc.active",
        ROLE_HEAD,
        machine.Units(
            units=(*_units(units, plan, daemon=True), *timers),
            at_boot=(*unit_expectations.at_boot(plan), *timers),
        ),
    )
    if bindings is not None and bindings.secret:
        yield expect("auth.secret", ROLE_HEAD, munge.SecretKey(arn=bindings.secret))
    yield expect("auth.rt", ROLE_HEAD, munge.Munge(alone=True))
    files_of_slurm = node_expectations.slurm_files(plan, names.SLURM_ETC, on_head=True)
    yield expect("files.modes", ROLE_HEAD, file_expectations.of_head(plan, tuple(files_of_slurm), STATE_SAVE))
    yield expect("net.ports", ROLE_HEAD, running_expectations.ports_of_head(plan))
    yield expect("ctl.ping", ROLE_HEAD, slurmctld.Controllers(hosts=(head.name,)))
    if plan.aws is not None:
        url = f"http://{head.address}:{head.registration_port}/v1/node"
        yield expect("elastic.ping", ROLE_HEAD, cloud.Daemon(url=url))
        yield expect("elastic.scales", ROLE_HEAD, scaling.ScalingWant(cluster=plan.name))
        yield expect("hook.run", ROLE_HEAD, _hook(plan))
    yield expect(
        "cfg.same",
        ROLE_HEAD,
        files.Files(sha256=files_of_slurm),
    )
    if reviewed is not None:
        yield expect("cfg.spec", ROLE_HEAD, reviewed)
    if bundle:
        yield expect("cfg.bundle", ROLE_HEAD, files.Applied(link=names.BUNDLE_DIR, digest=bundle))
    yield expect("nodes.state", ROLE_HEAD, node_expectations.nodes(plan))
    rendered = running_expectations.read(plan)
    yield expect("nodes.hw", ROLE_HEAD, running_expectations.hardware(plan, rendered))
    yield expect("part.up", ROLE_HEAD, running_expectations.partitions(plan, rendered))
    yield expect("ctl.conf", ROLE_HEAD, running_expectations.settings(plan, rendered))
    yield expect("ctl.resv", ROLE_HEAD, _reservations(plan))
    yield from _accounting(plan)
    yield from _users(plan, ROLE_HEAD, None)
    yield from _any_machine(plan, ROLE_HEAD, STATE_SAVE, on_head=True)


def _reservations(plan: SlurmPlan) -> reservations.Reservations:
    nodes = {one.name: one.node_names(plan.pools) for one in plan.partitions}
    return reservations.Reservations(planned=plan.slurm.reservations, partitions=nodes)


def _login(plan: SlurmPlan, bundle: str) -> Iterator[Expectation]:
    """After the cloud's answer, which says whether the machines run."""
    for name in login_expectations.machines(plan):
        if isinstance(plan, SlurmOnAws):
            for check, want in login_expectations.of_login(plan, bundle):
                yield expect(check, name, want)
        yield from _users(plan, name, None)
        yield from _any_machine(plan, name, names.STATE_DIR)


def _standby(plan: SlurmPlan, bundle: str) -> Iterator[Expectation]:
    """After the cloud's answer, too."""
    for name in standby_expectations.machines(plan):
        for check, want in standby_expectations.of_standby(plan, bundle, STATE_SAVE):
            yield expect(check, name, want)
        yield from _users(plan, name, None)
        yield from _any_machine(plan, name, STATE_SAVE, on_head=True)


def _users(plan: SlurmPlan, target: str, pool: Pool | None) -> Iterator[Expectation]:
    """Before the checks that run a command as a user."""
    for check, want in user_expectations.of_machine(plan, on_head=target == ROLE_HEAD, pool=pool):
        yield expect(check, target, want)


def _accounting(plan: SlurmPlan) -> Iterator[Expectation]:
    wanted = plan.slurm.accounting
    if wanted is None:
        yield expect("acct.log", ROLE_HEAD, accounting.JobLog(path=names.JOB_COMPLETIONS))
        return
    yield expect("acct.db", ROLE_HEAD, accounting.Database(cluster=plan.name, units=_accounting_units(plan)))
    if wanted.enforced:
        tree = accounting.Tree(cluster=plan.name, accounting=wanted)
        yield expect("acct.qos", ROLE_HEAD, tree)
        yield expect("acct.tree", ROLE_HEAD, tree)


def _accounting_units(plan: SlurmPlan) -> tuple[str, ...]:
    wanted = plan.slurm.accounting
    if wanted is None:
        return ()
    return ("mariadb", "slurmdbd") if isinstance(wanted.database, LocalDatabase) else ("slurmdbd",)


def _hook(plan: SlurmPlan) -> hooks.HookWant:
    node = next(node for pool in plan.pools for span in pool.slots for node in span)
    return hooks.HookWant(program=f"{names.HOOK_DIR}/resume", user="slurm", node=node, spool=names.SPOOL)


def _node(plan: SlurmPlan, node: str) -> Iterator[Expectation]:
    pool = plan.pool_of(node)
    return iter(()) if pool is None else _pool_node(plan, node, pool)


def _pool_node(plan: SlurmPlan, target: str, pool: Pool) -> Iterator[Expectation]:
    units = ("munge", "slurmd", "gpucluster-agent")
    wanted = machine.Units(units=_units(units, plan, daemon=False), at_boot=unit_expectations.at_boot(plan))
    yield expect("svc.active", target, wanted)
    yield expect("auth.rt", target, munge.Munge())
    files_of_slurm = node_expectations.slurm_files(plan, CONF_CACHE, on_head=False)
    yield expect("cfg.same", target, files.Files(sha256=files_of_slurm))
    yield expect("files.modes", target, file_expectations.of_node(plan, tuple(files_of_slurm), NODE_SPOOL))
    yield expect("node.limits", target, _limits(plan))
    if plan.slurm.containers is not None:
        yield expect("ctr.run", target, CONTAINER_PROGRAMS[plan.slurm.containers])
    yield expect("net.ports", target, running_expectations.ports_of_node(plan))
    yield expect(
        "slurmd.ping",
        target,
        slurmctld.Slurmd(
            release=plan.slurm.version, least=running_expectations.least_release(plan.slurm.version)
        ),
    )
    admins = (
        () if plan.hosts is None else (plan.hosts.ssh_user,)
    )  # Ansible's session ends some seconds after its run
    yield expect("node.strays", target, strays.StraysWant(base=plan.slurm.private_tmp or "", admins=admins))
    yield expect("clock.sync", target, machine.MachineClock())
    if not _overridden(plan):
        yield expect("hw.real", target, node_expectations.board(pool))
    if pool.shape.gpu_count:
        yield expect("gpu.count", target, hardware.Gpus(count=pool.shape.gpu_count))
    if plan.health is not None:
        found = health_wants.settings(plan, pool, target, {})
        answers = tuple(check.id for check, _ in node_health.wanted(found))
        yield expect("node.health", target, health_program.Program(path=names.HEALTH_CHECK, checks=answers))
    yield from _users(plan, target, pool)
    yield from _any_machine(plan, target, NODE_SPOOL, pool=pool)


def _any_machine(
    plan: SlurmPlan, target: str, spool: str, *, on_head: bool = False, pool: Pool | None = None
) -> Iterator[Expectation]:
    if plan.aws is not None:
        users = guard_rules.HEAD_USERS if on_head else guard_rules.NODE_USERS
        yield expect("svc.agent", target, agent_process.AgentProcess())
        yield expect("imds.guard", target, guard.Guard(users=users))
    below = () if plan.hosts is None else machine_files.OF_HOSTS
    yield expect("files.ours", target, programs.ProgramsWant(below=below))
    for check, want in added_expectations.of_machine(plan, target, pool):
        yield expect(check, target, want)
    blocked = plan.aws is not None and not _overridden(plan)  # a rehearsal has the kernel of its host
    yield expect("net.protocols", target, protocols.ProtocolsWant(blocked=blocked))
    yield expect("net.resolve", target, running_expectations.names_resolved(plan))
    yield expect("net.names", target, running_expectations.addresses(plan))
    wanted = [*ALWAYS, *mount_wants.wanted(plan, on_head=on_head)]
    if on_head:
        own = mount_wants.of_volumes(plan) if target == ROLE_HEAD else ()
        wanted += [*own, *mount_wants.of_state(plan)]
    asked = tuple(mount.path for mount in wanted if mount not in ALWAYS)
    exports = storage_mounts.exports(plan) if target == ROLE_HEAD else ()
    written = tuple(dict.fromkeys((*machine.SYSTEM_PATHS, spool)))
    yield expect(
        "fs.mount",
        target,
        mounts.Mounts(mounts=tuple(wanted), asked=asked, exports=exports, written=written),
    )
    paths = (*written, *node_expectations.scratch(plan))
    storage = tuple(path for path in asked if path not in paths)
    yield expect("disk", target, machine.Disks(paths=paths, storage=storage))


def _pool_jobs(plan: SlurmPlan) -> Iterator[Expectation]:
    for job in pool_jobs(plan):
        yield expect("job.multi", job.pool, jobs.MultiNode(nodes=job.nodes))


def _job_nodes(plan: SlurmPlan) -> Iterator[Expectation]:
    """Checks on nodes that may be off, during our own job."""
    pools = {pool.name: pool for pool in plan.pools}
    for job in pool_jobs(plan):
        if job.elastic:
            for target in node_targets(job):
                yield from _pool_node(plan, target, pools[job.pool])


def _job_checks(plan: SlurmPlan) -> Iterator[Expectation]:
    leaf = {node: leaf.name for leaf in plan.leaves for span in leaf.slots for node in span}
    pools = {pool.name: pool for pool in plan.pools}
    for job in pool_jobs(plan):
        if leaf:
            mine = {node: leaf[node] for node in pools[job.pool].node_names if node in leaf}
            yield expect("topo.place", job.pool, jobs.Leaves(leaf=mine, nodes=job.nodes))
        if job.gpus:
            gres = jobs.Gres(count=job.gpus, isolated=_isolated(plan), stand_ins=_overridden(plan))
            yield expect("job.gres", job.pool, gres)
        yield expect("job.limits", job.pool, _limits(plan))
        if plan.users and user_expectations.makes_homes(plan):
            yield expect("job.home", job.pool, user_files.JobHomeWant(nodes=job.nodes))
        if shared := tuple(mount_wants.wanted(plan, on_head=False)):
            yield expect("job.mounts", job.pool, job_mounts.JobMountsWant(mounts=shared, nodes=job.nodes))
        if plan.slurm.private_tmp is not None:
            yield expect("job.tmp", job.pool, jobs.PrivateFolders(paths=jobs.PRIVATE_FOLDERS))
    for partition in plan.partitions:
        yield expect("job.part", partition.name, small_job(plan, partition))
    for job in pool_jobs(plan):
        if job.elastic:
            yield expect("burst.rt", job.pool, power_cycle(plan, pools[job.pool]))


def _cloud(plan: SlurmPlan, bindings: Bindings | None) -> Iterator[Expectation]:
    if plan.aws is not None:
        for check, want in cloud_expectations.of_cluster(plan, bindings):
            yield expect(check, CLOUD, want)


def _as_rehearsed(one: Expectation) -> Expectation:
    if one.check == "net.resolve":
        return replace(one, want=replace(one.want, dns=()))
    if one.check not in ("fs.mount", "job.mounts"):
        return one
    found = (m if m in ALWAYS else replace(m, types=(), source="", has=()) for m in one.want.mounts)
    return replace(one, want=replace(one.want, mounts=tuple(found)))


def _units(units: tuple[str, ...], plan: SlurmPlan, *, daemon: bool) -> tuple[str, ...]:
    ours = () if plan.aws is None else ("gpucluster-guard", *(("gpucluster-elastic",) if daemon else ()))
    return tuple(f"{unit}.service" for unit in (*units, *ours))


def _overridden(plan: SlurmPlan) -> bool:
    """Whether slurmd takes its hardware from slurm.conf: then `slurmd -C` proves nothing, and GPUs are device files without a driver."""
    return any(
        line.key == "SlurmdParameters" and "config_overrides" in (line.value or "")
        for line in plan.slurm.lines
    )


def _limits(plan: SlurmPlan) -> limits.LimitsWant:
    """A machine of a rehearsal has at most the limits of its host."""
    return limits.LimitsWant(open_files=limits.OPEN_FILES, as_machine=_overridden(plan))


def _isolated(plan: SlurmPlan) -> bool:
    """Whether Slurm constrains devices; a rehearsal can turn this off."""
    lines = plan.slurm.lines
    return not any(line.key == "ConstrainDevices" and line.value == "no" for line in lines)

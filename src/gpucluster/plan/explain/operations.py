"""Decisions of the plan on termination, breakers, prices and the budget."""

from collections.abc import Iterator

from gpucluster.catalog import Prices
from gpucluster.plan import defaults, gres, names
from gpucluster.plan.defaults import Note, of_default
from gpucluster.plan.model import (
    AwsPool,
    Budget,
    HostPool,
    Mig,
    Mps,
    Pool,
    Shards,
    SlurmOnAws,
    SlurmPlan,
    SlurmSetting,
)
from gpucluster.plan.model.values import Market
from gpucluster.slurm import reservations
from gpucluster.slurm.owned_keys import REPLACES, RESTART, SITE_WIDE
from gpucluster.spec.health import Health as HealthSpec
from gpucluster.spec.model import Pool as PoolSpec
from gpucluster.spec.model import Slurm
from gpucluster.spec.money import Budget as BudgetSpec
from gpucluster.spec.operations import Breaker as BreakerSpec
from gpucluster.spec.operations import Termination as TerminationSpec
from gpucluster.text import format_money, format_rate


def of_pool(requested: PoolSpec, pool: AwsPool) -> Iterator[Note]:
    """The fields of one pool's operation that the spec does not set."""
    at = f"pools[{pool.name}]"
    yield from _termination(at, requested.termination, pool)
    if pool.job_heartbeat is None:
        yield Note(
            f"{at}.job_heartbeat",
            "never",
            "the spec has no `job_heartbeat`: the daemon does not watch the heartbeat files of jobs",
        )
    yield from _breaker(at, requested.breaker, pool)
    for one in pool.on_boot:
        yield of_default(f"{at}.on_boot[{one.url}].limit", one.limit_s, defaults.BOOT_SCRIPT_S)


def of_software(plan: SlurmPlan) -> Iterator[Note]:
    """Where login shells find software."""
    if plan.slurm.software is not None:
        why = f"login shells on login machines and nodes read {names.PROFILE}; a user installs the software itself"
        for key in ("modules", "conda"):
            if path := getattr(plan.slurm.software, key):
                yield Note(f"slurm.software.{key}", path, why)


def of_reservations(plan: SlurmPlan) -> Iterator[Note]:
    """The names of reservations in Slurm, and what they do to nodes that are powered down."""
    for one in plan.slurm.reservations:
        why = "the head keeps it in slurmctld. It powers up no node, and a job that could run into it does not start on its nodes"
        yield Note(f"slurm.reservations[{one.name}]", reservations.slurm_name(one), why)


def of_containers(plan: SlurmPlan) -> Iterator[Note]:
    """Where the container runtime comes from."""
    found = plan.slurm.containers
    if found is None:
        return
    if plan.aws is None:
        yield Note(
            "slurm.containers", found, "the site installs it on every host: Debian has no package of it"
        )
    else:
        yield Note("slurm.containers", found, f"the image has it: `gpucluster image build --with {found}`")


def of_environment(pool: Pool) -> Iterator[Note]:
    """The variables of NCCL and the fabric, in the file that users read on nodes."""
    for one in pool.environment.set:
        yield Note(f"pools[{pool.name}].env.{one.name}", one.value, one.reason)


def of_prices(plan: SlurmOnAws, prices: Prices) -> Iterator[Note]:
    """The hourly prices in the daemon's ledger; each machine, market and `max_price` once."""
    found = dict[tuple[str, Market, int], int | None]()
    for pool in plan.pools:
        limits = {source.position: source.max_price or 0 for source in pool.sources}
        found |= {(t.machine, t.market, limits[t.source]): t.price for t in pool.templates}
    for (machine, market, most), price in sorted(found.items()):
        value = "unknown" if price is None else format_rate(price)
        capped = bool(most) and price == most
        limit = f" at most {format_rate(most)}" if most else ""
        why = "the `max_price` of the source" if capped else _why(market, price, prices)
        yield Note(f"prices[{market} {machine}{limit}]", value, why)


def of_budget(requested: BudgetSpec | None, budget: Budget | None) -> Iterator[Note]:
    """The amounts of the budget, and the costs that count against them."""
    if requested is None or budget is None:
        return
    if requested.warn_at is None:
        yield Note("budget.warn_at", format_money(budget.warn_at), _part(defaults.BUDGET_WARN_PERCENT))
    if requested.stop_scaling_at is None:
        amount = format_money(budget.stop_scaling_at)
        yield Note("budget.stop_scaling_at", amount, _part(defaults.BUDGET_STOP_PERCENT))
    why = "hours of Slurm's nodes in the daemon's ledger, for each calendar month (UTC); without the head, storage, traffic and nodes of Kubernetes"
    yield Note("budget.counted", "the pools' nodes", why)


def _termination(at: str, requested: TerminationSpec | None, pool: AwsPool) -> Iterator[Note]:
    settings, found = requested or TerminationSpec(), pool.termination
    if settings.signal is None:
        yield Note(f"{at}.termination.signal", found.signal, defaults.TERMINATION_SIGNAL_REASON)
    if settings.lead is None:
        yield of_default(f"{at}.termination.lead", found.lead_s, defaults.TERMINATION_LEAD_S)
    if settings.grace is None:
        yield of_default(f"{at}.termination.grace", found.grace_s, defaults.TERMINATION_GRACE_S)


def _breaker(at: str, requested: BreakerSpec | None, pool: AwsPool) -> Iterator[Note]:
    settings, found = requested or BreakerSpec(), pool.breaker
    if settings.boots is None:
        yield Note(f"{at}.breaker.boots", str(found.boots), defaults.BREAKER_BOOTS.reason)
    if settings.cooldown is None:
        yield of_default(f"{at}.breaker.cooldown", found.cooldown_s, defaults.BREAKER_COOLDOWN_S)


def _why(market: Market, price: int | None, prices: Prices) -> str:
    if market is Market.CAPACITY_BLOCK:
        return "prepaid: its hours do not count"
    if price is None:
        return f"the catalog has no price for it ({prices.region}, {prices.date}): its hours do not count"
    if market is Market.SPOT:
        return f"the on-demand price of {prices.date}: spot never costs more"
    return f"the on-demand price of {prices.date}"


def _part(rule: defaults.Default) -> str:
    return f"{rule.value:g} % of the month's budget: {rule.reason}"


def of_sharing(pool: AwsPool | HostPool) -> Iterator[Note]:
    """What a job requests in a pool whose GPUs are shared."""
    at, shape = f"pools[{pool.name}].gres", pool.shape
    if isinstance(shape.sharing, Mig):
        why = f"MIG slices; a job requests them by profile: --gres=gpu:{shape.sharing.slices[0].profile}:1. A slice has its own memory, and neither NVLink nor peer-to-peer"
        yield Note(at, gres.of_node(shape), why)
    elif isinstance(shape.sharing, Shards):
        why = f"{shape.sharing.each} shards of each GPU; a job requests them with --gres=shard:1. Slurm counts shards; nothing limits the memory that a job takes of its GPU"
        yield Note(at, gres.of_node(shape), why)
    elif isinstance(shape.sharing, Mps):
        why = f"{shape.sharing.each} parts of each GPU; a job with --gres=mps:1 gets {100 // shape.sharing.each} % of the threads of one GPU, by NVIDIA's MPS. Nothing limits the memory that it takes. An MPS server has one user, so all jobs on a node are of one user"
        yield Note(at, gres.of_node(shape), why)


def of_health(requested: HealthSpec | None, plan: SlurmPlan) -> Iterator[Note]:
    """When the checks run, and how many nodes of each pool they may keep drained."""
    if requested is None or plan.health is None:
        yield Note("health", "none", "the spec has no `health`: no program checks the nodes")
        return
    if requested.every is None:
        yield of_default("health.every", plan.health.every_s, defaults.HEALTH_EVERY_S)
    rule = defaults.HEALTH_AT_MOST_PERCENT
    reason = (
        f"{rule.value:g} % {rule.reason}"
        if requested.at_most is None
        else f"{requested.at_most} of the pool's {{}} nodes"
    )
    for pool in plan.pools:
        yield Note(f"health.at_most[{pool.name}]", f"{pool.health_limit} nodes", reason.format(pool.max))
    yield from _replacements(requested, plan)


def _replacements(requested: HealthSpec, plan: SlurmPlan) -> Iterator[Note]:
    """How many unhealthy instances the daemon replaces in an hour. It replaces no existing host."""
    if plan.aws is None:
        return
    why = (
        "as many as may be drained at one time: a false alarm replaces no pool over and over"
        if requested.replace_per_hour is None
        else f"{requested.replace_per_hour} of the pool's nodes"
    )
    for pool in plan.pools:
        at = f"health.replace_per_hour[{pool.name}]"
        yield Note(at, f"{pool.replacements_per_hour} instances", why)


def of_isolation(requested: Slurm, plan: SlurmPlan) -> Iterator[Note]:
    """How jobs of one node are kept apart, where the spec names nothing."""
    path = plan.slurm.private_tmp
    if path is not None and (requested.private_tmp is None or requested.private_tmp.path != path):
        disks = path.endswith(f"/{names.PRIVATE_TMP_ON_DISKS}")
        where = (
            "the machine's own disks"
            if disks
            else "the root disk, because the spec mounts no own disks (`nvme`)"
        )
        why = f"each job has its own /tmp, /var/tmp and /dev/shm, on {where}; Slurm limits no size, and /dev/shm counts as memory of the job"
        yield Note("slurm.private_tmp.path", path, why)
    if requested.node_ssh is None:
        yield Note(
            "slurm.node_ssh", "with a job", "a user logs in to a node only while a job of the user runs there"
        )


def _why_left_out(plan: SlurmPlan, one: SlurmSetting) -> str:
    """The key that replaces a default of ours on this line or for the whole site, or the field `remove`."""
    low = one.key.lower()
    for other in plan.slurm.settings:
        name = other.key.lower()
        if other.value is None:
            continue
        if (other.kind, other.of) == (one.kind, one.of) and REPLACES.get((one.kind, name)) == low:
            return f"{other.key} of the {_LINE[one.kind]} takes its place"
        if (other.kind, one.kind) == ("slurm.conf", "partition") and SITE_WIDE.get(name) == low:
            return f"{other.key} of slurm.conf holds for every partition"
    return "left out by the spec: Slurm's own default holds"


_LINE = {"slurm.conf": "file", "node": "pool", "partition": "partition"}


def of_settings(plan: SlurmPlan) -> Iterator[Note]:
    """Each key that the spec sets or leaves out by itself."""
    at = {"slurm.conf": "slurm", "node": "pools", "partition": "partitions"}
    for one in plan.slurm.settings:
        place = f"{at[one.kind]}[{one.of}]" if one.of else at[one.kind]
        how = "a restart of slurmctld" if one.key.lower() in RESTART else "`scontrol reconfigure`"
        if one.value is None:
            yield Note(f"{place}.remove", one.key, f"{_why_left_out(plan, one)}, after {how}")
        else:
            yield Note(f"{place}.extra.{one.key}", one.value, f"set by the spec, after {how}")

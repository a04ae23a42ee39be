"""Site reservations: their nodes, who may use them, and two that hold one node at the same time."""

from collections.abc import Iterator
from itertools import combinations
from math import gcd

from gpucluster.catalog import Catalog
from gpucluster.plan import names
from gpucluster.spec.decode import did_you_mean
from gpucluster.spec.model import ClusterSpec, Pool
from gpucluster.spec.part import AbsentError, require
from gpucluster.spec.pools import of_slurm
from gpucluster.spec.problem import Finding
from gpucluster.spec.reservations import PERIODS, Reservation
from gpucluster.spec.rules.findings import Path, error, repeated
from gpucluster.text import format_duration, quoted

AT: Path = ("slurm", "reservations")


def names_once(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    found = [one.name for one in require(spec.slurm).reservations]
    for index, name in enumerate(found):
        if name in found[:index]:
            message = f"{quoted(name)} is already the name of slurm.reservations[{found.index(name)}]"
            yield error(*AT, index, "name", id="duplicate-name", message=message)


def nodes(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Require known pools, or known nodes."""
    pools = {pool.name: pool for pool in of_slurm(spec)}
    for index, one in enumerate(require(spec.slurm).reservations):
        at = (*AT, index)
        if bool(one.pools) == (one.nodes is not None):
            message = "write the nodes that it holds: either `pools` or `nodes`"
            yield error(*at, id="reservation-nodes", message=message)
        yield from repeated(one.pools, (*at, "pools"), "the pool")
        for place, name in enumerate(one.pools):
            if name not in pools:
                near = did_you_mean(name, pools) or f"; there are {', '.join(pools)}"
                message = f"{quoted(name)} is not a pool of Slurm{near}"
                yield error(*at, "pools", place, id="unknown-pool", message=message)
        known = (
            {node for pool in pools.values() for node in _nodes_of(spec, pool)} if one.nodes else set[str]()
        )
        unknown = next((node for node in one.nodes or () if node not in known), None)
        if unknown is not None:
            near = did_you_mean(unknown, sorted(known))
            message = f"{quoted(unknown)} is not a node of Slurm{near}"
            yield error(*at, "nodes", id="unknown-node", message=message)


def times(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    for index, one in enumerate(require(spec.slurm).reservations):
        period = PERIODS.get(one.repeat or "")
        if period is not None and one.duration >= period:
            message = f"{format_duration(one.duration)} is not shorter than the time after which it repeats, {format_duration(period)}: it would never end"
            yield error(*AT, index, "duration", id="reservation-time", message=message)


def members(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Require somebody who may use it, and known users, accounts and partitions."""
    slurm = require(spec.slurm)
    people = [user.name for user in spec.users]
    accounts = [account.name for account in spec.accounts]
    for index, one in enumerate(slurm.reservations):
        at = (*AT, index)
        if not (one.users or one.accounts or one.maint):
            message = "nobody may use it: write `users`, `accounts` or `maint: true`"
            yield error(*at, id="reservation-members", message=message)
        if spec.directory is None:
            yield from _known(one.users, people, (*at, "users"), "one of `users`", "unknown-user")
        if one.accounts and slurm.accounting is None:
            message = "accounts need `slurm.accounting`"
            yield error(*at, "accounts", id="needs-accounting", message=message)
        elif one.accounts:
            yield from _known(
                one.accounts, accounts, (*at, "accounts"), "one of `accounts`", "unknown-account"
            )


def partitions(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """The partition has every node of the reservation: slurmctld refuses others."""
    pools = {pool.name: pool for pool in of_slurm(spec)}
    known = {one.name: one for one in spec.partitions}
    for index, one in enumerate(require(spec.slurm).reservations):
        at = (*AT, index, "partition")
        if one.partition is None:
            continue
        if one.partition not in known:
            near = did_you_mean(one.partition, known) or f"; there are {', '.join(known)}"
            yield error(
                *at, id="unknown-partition", message=f"{quoted(one.partition)} is not a partition{near}"
            )
            continue
        here = {
            n for name in known[one.partition].pools if name in pools for n in _nodes_of(spec, pools[name])
        }
        outside = next((node for node in _held(spec, one) if node not in here), None)
        if outside is not None:
            message = f"the partition '{one.partition}' does not have the node {outside} of the reservation"
            yield error(*at, id="reservation-partition", message=message)


def overlaps(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Refuse two reservations that hold one node at the same time: slurmctld takes it only for maintenance."""
    for (_, first), (index, second) in combinations(enumerate(require(spec.slurm).reservations), 2):
        if first.maint or second.maint or not _meet(first, second):
            continue
        both = next((node for node in _held(spec, second) if node in set(_held(spec, first))), None)
        if both is not None:
            message = f"it holds {both} at a time when '{first.name}' holds it: move one of them, or take other nodes"
            yield error(*AT, index, id="reservation-overlap", message=message)


def _known(found: tuple[str, ...], known: list[str], at: Path, what: str, problem: str) -> Iterator[Finding]:
    yield from repeated(found, at, "the name")
    for place, name in enumerate(found):
        if name not in known:
            message = f"{quoted(name)} is not {what}{did_you_mean(name, known)}"
            yield error(*at, place, id=problem, message=message)


def _held(spec: ClusterSpec, one: Reservation) -> tuple[str, ...]:
    if one.nodes is not None:
        return one.nodes
    return tuple(node for pool in of_slurm(spec) if pool.name in one.pools for node in _nodes_of(spec, pool))


def _nodes_of(spec: ClusterSpec, pool: Pool) -> Iterator[str]:
    """The names of the pool's nodes. None if a part that they depend on is absent, which is reported elsewhere."""
    try:
        if spec.hosts is not None:
            yield from require(pool.hosts)
            return
        site = require(spec.aws)
        most = require(pool.nodes).max
        used = {zone for source in pool.capacity for zone in source.zones or site.network.places}
        for zone in site.network.places:
            if zone in used:
                prefix = names.slot_prefix(pool.name, site.region, zone)
                yield from (f"{prefix}{number}" for number in range(1, most + 1))
    except AbsentError:
        return


def _meet(first: Reservation, second: Reservation) -> bool:
    """Whether both are active at one time, at any repetition."""
    one, other = (PERIODS.get(r.repeat or "", 0) for r in (first, second))
    if one and other:
        apart = (second.start - first.start) % gcd(one, other)
        return apart < first.duration or gcd(one, other) - apart < second.duration
    once, again = (second, first) if one else (first, second)
    period = one or other
    begins = again.start
    if period and once.start > begins:  # the last repetition that begins before it
        begins += (once.start - begins) // period * period
    starts = (begins, begins + period) if period else (begins,)
    return any(once.start < at + again.duration and at < once.start + once.duration for at in starts)

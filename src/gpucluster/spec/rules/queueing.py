"""Kueue: borrowing limits, shares, preemption and priorities of the teams."""

from collections.abc import Iterator, Mapping, Sequence

from gpucluster.catalog import Catalog
from gpucluster.plan import names
from gpucluster.plan.model.values import quantity
from gpucluster.spec.kubernetes import Runs, Team
from gpucluster.spec.model import ClusterSpec
from gpucluster.spec.part import require
from gpucluster.spec.pools import of_kubernetes, run_by
from gpucluster.spec.problem import Finding
from gpucluster.spec.queueing import NEVER
from gpucluster.spec.resources import in_unit
from gpucluster.spec.rules.findings import error, or_none, same_names
from gpucluster.spec.rules.kubernetes import offered
from gpucluster.spec.rules.places import places_of, unpromised, zone_parts
from gpucluster.text import quoted

MAX_FLAVORS = 64  # of a resource group, in the schemas of ClusterQueue and Cohort (Kueue v0.19.2)


def borrowing_limits(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    """Check that a limit is of a team that may borrow, names resources of its quota, and limits something."""
    offers = offered(spec, catalog)
    for index, team in enumerate(require(spec.kubernetes).teams):
        if or_none(lambda team=team: team.borrowing_limit) is None:
            continue
        path = ("kubernetes", "teams", index, "borrowing_limit")
        if not team.may_borrow:
            message = "the team borrows nothing; write `may_borrow: true`, or remove this key"
            yield error(*path, id="borrows-nothing", message=message)
            continue
        yield from _limits(team, offers, path)


def _limits(team: Team, offers: Mapping[str, int], path: tuple[str | int, ...]) -> Iterator[Finding]:
    for resource, written in (team.borrowing_limit or {}).items():
        amount = in_unit(resource, written)
        if resource not in team.quota:
            message = f"the team has no quota of {resource}, so it cannot borrow it; `{resource}: 0` in 'quota' lets it"
            yield error(*path, resource, id="unknown-resource", message=message)
        elif resource not in offers:
            continue  # `quotas` reports it
        elif amount is None:
            yield error(*path, resource, id="bad-amount", message=f"{resource} is counted in whole numbers")
        elif amount + (in_unit(resource, team.quota[resource]) or 0) >= offers[resource]:
            most = quantity(resource, offers[resource])
            message = f"quota and limit reach all {most} of {resource}, so the limit has no effect; remove it"
            yield error(*path, resource, id="limit-without-effect", message=message)


def shares(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Check that a share has an effect: Kueue weighs only what a team borrows."""
    part = require(spec.kubernetes)
    for index, team in enumerate(part.teams):
        if or_none(lambda team=team: team.share) is None:
            continue
        path = ("kubernetes", "teams", index, "share")
        if not part.fair_sharing:
            message = "without fair sharing Kueue does not use it; remove this key or `fair_sharing: false`"
            yield error(*path, id="share-without-effect", message=message)
        elif not team.may_borrow:
            message = "it divides what teams borrow, and the team borrows nothing; write `may_borrow: true`, or remove this key"
            yield error(*path, id="share-without-effect", message=message)


def queue_sizes(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    """Check that no queue has more pools than Kueue takes. A pool with EFA in several zones counts once for each."""
    for team in require(spec.kubernetes).teams:
        mine = [place.pool for place in places_of(team.name, spec, catalog)]
        if len(mine) > MAX_FLAVORS:
            yield _too_many(spec, mine, f"the queue of the team {quoted(team.name)}")
            return
    spare = unpromised(spec, catalog)
    if len(spare) > MAX_FLAVORS:
        yield _too_many(spec, spare, "the cohort, which lends what is in no quota,")


def part_names(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    """Check that no pool has the name of another pool's part: runtimes and tests of NCCL write `a.1a` as `a-1a`."""
    require(spec.kubernetes)
    region, found = require(spec.aws).region, dict[str, str]()
    for pool in of_kubernetes(spec):
        for part in or_none(lambda pool=pool: zone_parts(pool, spec, catalog)) or ():
            if part.zone is not None:
                name = names.zone_part(pool.name, region, part.zone)
                found.setdefault(name.replace(".", "-"), name)
    for index, pool in enumerate(spec.pools):
        name = or_none(lambda pool=pool: pool.name)
        if name in found and run_by(spec, pool) is Runs.KUBERNETES:
            message = f"{quoted(name)} is the name of a runtime and a test of '{found[name]}', the part of a pool in one zone"
            yield error("pools", index, "name", id="duplicate-name", message=message)


def _too_many(spec: ClusterSpec, pools: Sequence[str], what: str) -> Finding:
    beyond = pools[MAX_FLAVORS]
    index = [pool.name for pool in spec.pools].index(beyond.partition(".")[0])
    message = f"Kueue takes at most {MAX_FLAVORS} pools in a queue, and a pool with EFA counts once in each zone; {what} has {len(pools)}, and {quoted(beyond)} is the first beyond"
    return error("pools", index, "name", id="too-many-pools", message=message)


def preemption(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    part = require(spec.kubernetes)
    found = require(part.preemption)
    path = ("kubernetes", "preemption", "borrow_within_cohort")
    if found.borrow_within_cohort == NEVER:
        return
    if part.fair_sharing:  # ClusterQueuePreemption in Kueue's API says so (v0.19.2)
        message = "Kueue uses it only without fair sharing, which decides by `share`; remove it, or write `fair_sharing: false`"
        yield error(*path, id="bad-preemption", message=message)
    elif found.reclaim_within_cohort == NEVER:  # a rule of Kueue's schema
        message = "Kueue refuses it with `reclaim_within_cohort: never`"
        yield error(*path, id="bad-preemption", message=message)


def priority_names(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    read = [lambda one=one: one.name for one in require(spec.kubernetes).priorities]
    for finding in same_names(read, "priorities"):
        yield error("kubernetes", *finding.path, id=finding.id, message=finding.message)

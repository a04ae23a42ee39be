"""What a plan takes for there: capacity bought ahead, buckets of the site. The sandbox's cloud must have it, too, or refuse."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from gpucluster.plan.model import ClusterPlan, Market


class Orders(Protocol):
    """What of `SandboxControl` it takes."""

    def reserve(self, machine: str, zone: str, count: int, *, id: str, block: bool) -> object: ...  # noqa: A002 - the order's word


class Buckets(Protocol):
    """What of an S3 client it takes."""

    def create_bucket(self, *, Bucket: str) -> object: ...  # noqa: N803 - S3's word


@dataclass(frozen=True, slots=True, kw_only=True)
class Bought:
    """A reservation or a block with room for all that the plan may launch into it."""

    id: str
    machine: str
    zone: str
    count: int
    block: bool


def bought(plan: ClusterPlan) -> tuple[Bought, ...]:
    """What the plan names, sorted by id; pools that share one have room for both."""
    found: dict[str, Bought] = {}
    for one in _named(plan):
        known = found.get(one.id)
        found[one.id] = one if known is None else replace(known, count=known.count + one.count)
    return tuple(found[i] for i in sorted(found))


def make(plan: ClusterPlan, control: Orders) -> None:
    """Order them of the sandbox's cloud."""
    for one in bought(plan):
        control.reserve(one.machine, one.zone, one.count, id=one.id, block=one.block)


def buckets(plan: ClusterPlan) -> tuple[str, ...]:
    """The site's buckets that a Lustre follows; FSx refuses a link to one that is not there (T45)."""
    links = (link for mount in plan.storage if mount.lustre is not None for link in mount.lustre.links)
    return tuple(sorted({link.s3.removeprefix("s3://").partition("/")[0] for link in links}))


def make_buckets(plan: ClusterPlan, client: Buckets) -> None:
    """Make them, empty."""
    for name in buckets(plan):
        client.create_bucket(Bucket=name)


def explain(plan: ClusterPlan) -> tuple[str, ...]:
    """Each as a sentence, for people who rehearse."""
    stores = tuple(f"bucket {name}: made here, empty" for name in buckets(plan))
    return stores + tuple(
        f"{'capacity block' if one.block else 'capacity reservation'} {one.id} ({one.count} x {one.machine} in "
        f"{one.zone}): made here as the plan names it, {'without an end' if one.block else 'empty and active'}"
        for one in bought(plan)
    )


def _named(plan: ClusterPlan) -> Iterator[Bought]:
    for pool in plan.pools:
        for source in pool.sources:
            if source.reservation is not None:
                yield Bought(
                    id=source.reservation,
                    machine=source.machines[0],
                    zone=source.zones[0],
                    count=pool.max if source.max is None else source.max,
                    block=source.market is Market.CAPACITY_BLOCK,
                )

"""Which nodes and partitions a new plan takes from Slurm's files: slots, always-on nodes, hosts, hardware, addresses."""

from dataclasses import replace

import pytest
from support.builders import a_plan, a_spec_text
from support.expert_pairs import LAB
from support.reviewed import a_side

from gpucluster.plan.model import SlurmOnAws, SlurmOnHosts
from gpucluster.plan.removals import Removals, removals
from gpucluster.slurm import hostlist

TWO = "[us-east-2a, us-east-2b]"
STEADY = ("nodes: {min: 0, max: 16}", "nodes: 6")
CPU = "  - {name: cpu, nodes: {min: 0, max: 2}, capacity: [{from: on-demand, machines: [m7i.large]}]}\npartitions:"
SECOND = (("partitions:", CPU), ("pools: [h200]", "pools: [h200, cpu]"))


def found(old: SlurmOnAws, new: SlurmOnAws) -> tuple[str, str, tuple[str, ...]]:
    one = removals(old, new)
    return hostlist.fold(one.removed), hostlist.fold(one.changed), one.partitions


@pytest.mark.parametrize(
    ("old", "new", "removed", "changed"),
    [
        ((), (), "", ""),
        ((), (("max: 16", "max: 17"),), "", ""),
        ((), (("max: 16", "max: 15"),), "h200-2a-16,h200-2b-16", ""),
        ((STEADY,), ((STEADY[0], "nodes: 4"),), "h200-2a-[5-6],h200-2b-[5-6]", ""),
        ((), (("min: 0", "min: 2"),), "", ""),
        ((("min: 0", "min: 2"),), (), "", ""),  # always-on nodes that become elastic stay in Slurm's files
        ((), ((TWO, "[us-east-2a]"),), "h200-2b-[1-16]", ""),
        (SECOND, (), "cpu-2a-[1-2],cpu-2b-[1-2]", ""),
        (SECOND, (*SECOND, ("m7i.large", "m7i.xlarge")), "", "cpu-2a-[1-2],cpu-2b-[1-2]"),
        ((), (("idle: 5m", "idle: 9m"),), "", ""),
    ],
)  # fmt: skip
def test_slots_that_leave_or_change(old, new, removed, changed):
    assert found(a_plan(*old), a_plan(*new)) == (removed, changed, ())


def test_a_removed_partition_is_found():
    plan = a_plan()
    other = replace(plan.partitions[0], name="other", default=False)
    assert found(replace(plan, partitions=(*plan.partitions, other)), plan) == ("", "", ("other",))
    assert not removals(plan, replace(plan, partitions=(*plan.partitions, other)))


def hosts(text: str) -> SlurmOnHosts:
    plan = a_side(text).plan
    assert isinstance(plan, SlurmOnHosts)
    return plan


def test_hosts_that_leave_move_or_change():
    """A host that changes its pool, or its place in the list, stays the same node."""
    old = hosts(LAB)
    pool = old.pools[0]
    first, last = pool.hosts()[0], pool.hosts()[-1]
    shorter = replace(
        pool,
        slots=(*pool.slots[:-1], replace(pool.slots[-1], last=pool.slots[-1].last - 1)),
        addresses=pool.addresses[:-1],
    )
    assert removals(old, replace(old, pools=(shorter, *old.pools[1:]))) == Removals(
        removed=(last[0],), kept=("gpu",)
    )
    moved = replace(pool, addresses=("192.0.2.99", *pool.addresses[1:]))
    assert removals(old, replace(old, pools=(moved, *old.pools[1:]))) == Removals(
        changed=(first[0],), kept=("gpu",)
    )
    renamed = replace(pool, name="another")
    assert not removals(old, replace(old, pools=(renamed, *old.pools[1:])))


def test_a_change_of_other_parts_removes_nothing():
    assert not removals(a_plan(), a_side(a_spec_text(("max_time: 1d", "max_time: 2d"))).plan)  # type: ignore[arg-type]

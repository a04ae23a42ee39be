"""A twin of a site: fewer hosts in each pool, and a plan that still renders."""

from pathlib import Path

import pytest
from support.builders import a_lab_plan

from gpucluster import catalog
from gpucluster.errors import GpuclusterError
from gpucluster.importer.run import import_files
from gpucluster.plan.model import Blocks, SlurmOnHosts
from gpucluster.plan.resolve import resolve
from gpucluster.sandbox import scale
from gpucluster.slurm.config.render import render
from gpucluster.spec import inspect_text

SITES = Path(__file__).parents[2] / "support/sites"


def _site(name: str) -> SlurmOnHosts:
    text = import_files([SITES / name], version="24.11").text
    plan = resolve(inspect_text(text, "x.yaml", catalog.load()).result(), catalog.load())
    assert isinstance(plan, SlurmOnHosts)
    return plan


def _hosts(plan: SlurmOnHosts) -> dict[str, int]:
    return {pool.name: pool.max for pool in plan.pools}


def test_small_plan_stays_as_it_is() -> None:
    assert scale.fit(a_lab_plan(), room=20) == (a_lab_plan(), ())


def test_asked_number_of_hosts_is_the_most_of_each_pool() -> None:
    plan, told = scale.fit(a_lab_plan(), room=20, hosts=3)
    assert plan.pools[0].hosts() == (
        ("gpu01", "192.0.2.11"),
        ("gpu02", "192.0.2.12"),
        ("gpu03", "192.0.2.13"),
    )
    assert told == ("pool h100: 3 of its 4 hosts",)
    assert [[span.hostlist for span in leaf.slots] for leaf in plan.leaves] == [["gpu[01-02]"], ["gpu03"]]


def test_leaf_without_hosts_leaves_with_the_switch_above_it() -> None:
    plan, _ = scale.fit(a_lab_plan(), room=20, hosts=2)
    assert [leaf.name for leaf in plan.leaves] == ["leaf1"]
    assert [spine.switches for spine in plan.spines] == [("leaf1",)]


def test_large_site_becomes_a_few_machines_by_itself() -> None:
    plan, told = scale.fit(_site("block"), room=50)
    assert _hosts(plan) == {"gb": 2}
    assert told == ("pool gb: 2 of its 36 hosts", "block sizes 2, 4 instead of 18, 36")
    (blocks,) = plan.topologies
    assert isinstance(blocks, Blocks)
    assert [block.name for block in blocks.blocks] == ["b01"]


def test_pools_leave_only_if_the_machines_do_not_suffice() -> None:
    site = _site("partitions")
    whole, _ = scale.fit(site, room=50)
    assert _hosts(whole) == {pool.name: 1 for pool in site.pools}
    assert [one.name for one in whole.partitions] == [one.name for one in site.partitions]
    few, told = scale.fit(site, room=5)
    assert sum(_hosts(few).values()) + 1 <= 5
    assert {"preempt", "normal"} <= {one.name for one in few.partitions}
    assert any(line.startswith("partitions without a pool are left out: ") for line in told)


@pytest.mark.parametrize("name", sorted(path.name for path in SITES.iterdir()))
@pytest.mark.parametrize("room", [3, 9, 40])
def test_twin_of_each_style_renders_and_fits(name: str, room: int) -> None:
    plan, _ = scale.fit(_site(name), room=room)
    assert 1 + sum(pool.max for pool in plan.pools) <= room
    assert render(plan)


def test_more_than_the_room_is_refused_with_the_next_step() -> None:
    with pytest.raises(
        GpuclusterError, match="5 machines remain, and this machine has room for 4"
    ) as refused:
        scale.fit(a_lab_plan(), room=4, hosts=4)
    assert "--scale 1" in str(refused.value)

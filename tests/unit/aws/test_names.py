"""A resource's name is its identity: an edit of a spec adds and removes only the resources that it names."""

from dataclasses import replace

import pytest
from support.aws_plans import (
    APPS,
    DATA,
    HOME,
    LOGIN,
    STATE,
    Change,
    declared_of,
    head,
    mounts,
    pools,
    research,
    top,
)
from support.builders import a_plan

from gpucluster.plan.model import Access, AwsPool, SlurmOnAws


def names(plan: SlurmOnAws) -> set[tuple[str, str]]:
    """Return type and name of every resource of the plan. The bundle is stubbed, because it needs a renderer."""
    return {(r.type.rpartition(":")[2], r.name) for r in declared_of(plan) if r.name}


def another(name: str, plan: SlurmOnAws) -> AwsPool:
    """A second pool with its own names."""
    (pool,) = plan.pools
    slots = tuple(replace(s, prefix=s.prefix.replace(pool.name, name)) for s in pool.slots)
    templates = tuple(replace(t, key=t.key.replace(pool.name, name)) for t in pool.templates)
    return replace(pool, name=name, slots=slots, templates=templates)


def zones(plan: SlurmOnAws, *wanted: str) -> SlurmOnAws:
    """The same network in other zones, in this order."""
    text = ", ".join(wanted)
    return a_plan(("zones: [us-east-2a, us-east-2b]", f"zones: [{text}]"))


def with_pool_first(plan: SlurmOnAws) -> SlurmOnAws:
    return pools(lambda found: (another("a100", plan), *found))(plan)


def reordered(plan: SlurmOnAws) -> SlurmOnAws:
    return pools(lambda found: (*reversed(found),))(with_pool_first(plan))


def of_pool(name: str) -> set[tuple[str, str]]:
    templates = {
        ("LaunchTemplate", f"burst-{name}-{rest}")
        for rest in ("spot-p5en.48xlarge", "spot-p5e.48xlarge", "on-demand-p5en.48xlarge")
    }
    return templates | {("PlacementGroup", f"burst-{name}-us-east-2{letter}") for letter in "ab"}


OF_ZONE = {
    *((kind, "burst-us-east-2c") for kind in ("Subnet", "RouteTable", "RouteTableAssociation")),
    *((kind, "burst-public-us-east-2c") for kind in ("Subnet", "RouteTableAssociation")),
    ("Route", "burst-nat-us-east-2c"),
    ("PlacementGroup", "burst-h200-us-east-2c"),
}
ROWS: list[tuple[str, Change, set[tuple[str, str]], set[tuple[str, str]]]] = [
    ("a pool before the others", with_pool_first, of_pool("a100"), set()),
    ("pools in another order", reordered, of_pool("a100"), set()),
    ("a third zone", lambda p: zones(p, "us-east-2a", "us-east-2b", "us-east-2c"), OF_ZONE, set()),
    (
        "a third zone in between",
        lambda p: zones(p, "us-east-2a", "us-east-2c", "us-east-2b"),
        OF_ZONE,
        set(),
    ),
    ("a disk more", head(volumes=(STATE,)), {("Volume", "burst-state"), ("VolumeAttachment", "burst-state")}, set()),
    ("another size of a pool", pools(lambda found: (replace(found[0], max=8),)), set(), set()),
]  # fmt: skip


@pytest.mark.parametrize(("change", "more", "less"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_edit_only_adds_and_removes_resources(
    change: Change, more: set[tuple[str, str]], less: set[tuple[str, str]]
) -> None:
    before = a_plan()
    had, has = names(before), names(change(before))
    assert (has - had, had - has) == (more, less)


def test_order_of_mounts_login_ranges_and_disks_changes_no_name() -> None:
    plan = research()
    turned = replace(
        plan,
        storage=plan.storage[::-1],
        access=replace(plan.access, ssh_from=plan.access.ssh_from[::-1]),
        head=replace(plan.head, volumes=(APPS, STATE)),
    )
    assert names(turned) == names(plan)


def test_every_address_range_has_its_own_rule() -> None:
    one = top(login=LOGIN, access=Access(ssh_from=("192.0.2.0/25",)))
    two = top(login=LOGIN, access=Access(ssh_from=("192.0.2.128/25", "192.0.2.0/25")))
    more = names(two(a_plan())) - names(one(a_plan()))
    assert more == {("SecurityGroupIngressRule", "burst-login-ssh-192.0.2.128-25")}


def test_no_two_resources_of_a_type_share_a_name() -> None:
    plan = mounts(replace(HOME, path="/a/b"), replace(HOME, path="/a-b"), replace(DATA, path="/"))(research())
    found = [(r.type, r.name) for r in declared_of(plan) if r.name]
    assert sorted(found) == sorted(set(found))

"""Security group rules: the whole table for each kind of cluster, and what it must not contain."""

from dataclasses import replace

import pytest
from support.aws_plans import (
    DATA,
    HOME,
    LOGIN,
    Change,
    both,
    exports,
    mounts,
    network,
    research,
    standby,
    top,
)
from support.builders import a_plan

from gpucluster.aws.security_groups import DESCRIPTIONS
from gpucluster.plan.model import Access, SiteEfs, SiteLustre, SlurmOnAws
from gpucluster.plan.security_rules import ANYWHERE, Rule, roles, rules


def said(rule: Rule) -> str:
    """`head < node 6817`: the head accepts connections from nodes on that port. `>` is egress."""
    ports = "all" if rule.ports is None else "-".join(str(p) for p in sorted(set(rule.ports)))
    return f"{rule.group} {'>' if rule.out else '<'} {rule.peer} {ports}"


def table(plan: SlurmOnAws) -> set[str]:
    return {said(rule) for rule in rules(plan)}


def no_fabric(plan: SlurmOnAws) -> SlurmOnAws:
    plain = tuple(
        replace(p, templates=tuple(replace(t, interfaces=()) for t in p.templates)) for p in plan.pools
    )
    return replace(plan, pools=plain)


PLAIN = {
    "head < node 6817",
    "head < node 6890",
    "head < node 60001-63000",
    "node < head 6818",
    "node < node all",
    "head > 0.0.0.0/0 all",
    "node > 0.0.0.0/0 all",
}
OF_LOGIN = {
    "head < login 6817",
    "head < login 6890",
    "node < login 22",
    "node < login 6818",
    "login < head 60001-63000",
    "login < node 60001-63000",
    "login > 0.0.0.0/0 all",
}
SSH = top(login=LOGIN, access=Access(ssh_from=("198.51.100.0/24", "203.0.113.7/32")))
ROWS: list[tuple[str, Change, set[str]]] = [
    ("nothing but Slurm", top(), set()),
    ("a login by Session Manager has no open port", top(login=LOGIN, access=Access(ssm=True)), OF_LOGIN),
    (
        "ssh from the named ranges alone",
        SSH,
        OF_LOGIN | {"login < 198.51.100.0/24 22", "login < 203.0.113.7/32 22"},
    ),
    ("the head exports", exports, {"head < node 2049"}),
    (
        "the head exports to login, too",
        both(exports, top(login=LOGIN)),
        OF_LOGIN | {"head < node 2049", "head < login 2049"},
    ),
    ("an EFS", mounts(HOME), {"efs < head 2049", "efs < node 2049"}),
    ("the site's EFS is the site's to open", mounts(replace(HOME, source=SiteEfs(id="fs-1"))), set()),
    (
        "a Lustre, both ways, and among its servers",
        mounts(DATA),
        {
            *(f"lustre < {peer} {ports}" for peer in ("head", "node", "lustre") for ports in ("988", "1018-1023")),
            *(f"{peer} < lustre {ports}" for peer in ("head", "node") for ports in ("988", "1018-1023")),
            "lustre > 0.0.0.0/0 all",
        },
    ),
    (
        "the site's Lustre is the site's to open",
        mounts(replace(DATA, source=SiteLustre(id="fs-1", zone="us-east-2a"))),
        set(),
    ),
    (
        "two heads",
        standby,
        {"head < head 6817", "head < head 6890", "efs < head 2049", "efs < node 2049"},
    ),
    (
        "endpoints",
        network(endpoints=("ec2", "sqs")),
        {"endpoints < head 443", "endpoints < node 443"},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("change", "more"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_table(change: Change, more: set[str]) -> None:
    assert table(change(no_fabric(a_plan()))) == PLAIN | more


def test_t30_security_group_of_a_fabric_allows_itself_both_ways() -> None:
    assert table(a_plan()) - table(no_fabric(a_plan())) == {"node > node all"}
    assert "node < node all" in table(a_plan())


def test_t45_all_ports_of_lustre_are_open() -> None:
    open_ports = {r.ports for r in rules(research()) if r.group == "lustre" and r.peer == "node"}
    assert open_ports == {(988, 988), (1018, 1023)}


@pytest.mark.parametrize("plan", [a_plan(), research(), standby(research())])
def test_only_ssh_comes_from_a_range(plan: SlurmOnAws) -> None:
    from_ranges = [r for r in rules(plan) if r.peer not in DESCRIPTIONS and not r.out]
    assert {(r.group, r.ports) for r in from_ranges} <= {("login", (22, 22))}
    assert {r.peer for r in from_ranges} <= set(plan.access.ssh_from)
    assert ANYWHERE not in {r.peer for r in rules(plan) if not r.out}


@pytest.mark.parametrize("plan", [a_plan(), research(), standby(research())])
def test_rules_refer_to_existing_groups_and_have_unique_names(plan: SlurmOnAws) -> None:
    found = rules(plan)
    spoken = {r.group for r in found} | {r.peer for r in found if r.peer in DESCRIPTIONS}
    assert spoken <= set(roles(plan))
    assert len({r.name for r in found}) == len(found)
    assert len({(r.group, r.peer, r.ports, r.out) for r in found}) == len(found), "EC2 refuses a rule twice"


def test_ports_follow_the_plan() -> None:
    moved = replace(a_plan(), head=replace(a_plan().head, controller_port=7000, registration_port=7001))
    assert {"head < node 7000", "head < node 7001"} <= table(moved)

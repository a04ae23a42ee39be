"""The site's own network: what does not fit is told with the field of the spec, before anything is made."""

from dataclasses import replace
from functools import partial

import pytest
from aws_plans import LOGIN as ONE_LOGIN
from aws_plans import OTHER_ZONE, ZONE, Change, both, declared_of, head, research, site_vpc, standby, top
from builders import a_plan
from declared import declared_by

from gpucluster.aws.program import declare
from gpucluster.aws.site_vpc import Seen, Wanted, faults, private_wish, public_wish, shortage
from gpucluster.plan.model import Access, ClusterPlan

SITE = site_vpc(a_plan())
GOOD = Seen(id="subnet-a", vpc="vpc-1", zone=ZONE, cidr="10.42.0.0/19", free=8000)


@pytest.mark.parametrize(
    ("sentence", "seen", "wanted"),
    [
        ("as the spec says", GOOD, ""),
        (
            "of another VPC",
            replace(GOOD, vpc="vpc-2"),
            "aws.network.subnets.us-east-2a: subnet-a is in vpc-2, expected one of aws.network.vpc, vpc-1",
        ),
        (
            "in another zone",
            replace(GOOD, zone="us-east-2c"),
            "aws.network.subnets.us-east-2a: subnet-a is in us-east-2c, expected one in us-east-2a",
        ),
        (
            "without the head's address",
            replace(GOOD, cidr="10.43.0.0/19"),
            "head.address: 10.42.0.10 is not in subnet-a, which has 10.43.0.0/19",
        ),
        (
            "too small at its emptiest",
            replace(GOOD, cidr="10.42.0.0/28", free=11),
            "aws.network.subnets.us-east-2a: subnet-a has 11 addresses, expected 17: pool h200 16, head 1",
        ),
        (
            "full",
            replace(GOOD, free=0),
            "aws.network.subnets.us-east-2a: subnet-a has no free address, expected 17: pool h200 16, head 1",
        ),
    ],
)
def test_a_subnet(sentence: str, seen: Seen, wanted: str) -> None:
    assert "\n".join(faults(seen, private_wish(SITE, ZONE))) == wanted, sentence


def test_every_fault_of_a_subnet_is_told_at_once() -> None:
    wrong = replace(GOOD, vpc="vpc-2", zone="us-east-2c", cidr="10.43.0.0/28", free=0)
    assert len(list(faults(wrong, private_wish(SITE, ZONE)))) == 4


def test_a_subnet_that_running_nodes_fill_is_no_fault_but_told() -> None:
    tight, wish = replace(GOOD, free=3), private_wish(SITE, ZONE)
    assert list(faults(tight, wish)) == []
    assert shortage(GOOD, wish) is None
    assert shortage(tight, wish) == (
        "aws.network.subnets.us-east-2a: subnet-a has 3 free addresses, the cluster takes up to 17: "
        "pool h200 16, head 1"
    )


def test_an_efa_only_interface_takes_no_address_and_a_standby_one() -> None:
    plan = standby(SITE)
    assert private_wish(plan, OTHER_ZONE).need == {"pool h200": 16, "standby": 1}
    assert private_wish(plan, OTHER_ZONE).fixed == {"head.standby.address": "10.42.32.10"}


def test_login_stands_in_the_public_one() -> None:
    wish = public_wish(top(login=ONE_LOGIN)(SITE), ZONE)
    assert (wish.field, dict(wish.need)) == ("aws.network.public.us-east-2a", {"login": 1})


def kinds(plan: ClusterPlan) -> set[str]:
    return {r.type.rpartition(":")[2] for r in declared_of(plan)}


def test_nothing_of_a_network_is_made_in_the_sites() -> None:
    made = kinds(site_vpc(research()))
    gone = {"Vpc", "Subnet", "InternetGateway", "NatGateway", "RouteTable", "Route", "VpcEndpoint"}
    assert made & gone == set()
    assert {"getVpc", "getSubnet", "SecurityGroup", "MountTarget"} <= made


def test_machines_stand_in_the_sites_subnets() -> None:
    plan = both(site_vpc, top(login=ONE_LOGIN, access=Access(ssh_from=("192.0.2.0/24",))))(a_plan())
    found = {r.name: r.inputs for r in declared_of(plan) if r.type.endswith(":Instance")}
    assert {name: i["subnetId"] for name, i in found.items()} == {
        "burst-head": "subnet-a",
        "burst-login-1": "subnet-pa",
    }


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (head(address="10.99.0.10"), "head.address: 10.99.0.10 is not in subnet-a"),
        (head(zone=OTHER_ZONE), "head.address: 10.42.0.10 is not in subnet-b"),
    ],
)
def test_the_program_ends_with_the_field(change: Change, says: str) -> None:
    with pytest.raises(Exception, match=says):
        declared_by(partial(declare, change(SITE)))


def test_a_wish_for_nothing_holds() -> None:
    nobody = Wanted(field="aws.network.public.us-east-2a", vpc="vpc-1", zone=ZONE, need={}, fixed={})
    assert list(faults(replace(GOOD, free=1), nobody)) == []

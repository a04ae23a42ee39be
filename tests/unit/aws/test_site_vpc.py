"""An existing VPC: a mismatch is reported with the field of the spec, before any resource is created."""

import re
from dataclasses import replace
from functools import partial

import pytest
from support.aws_plans import LOGIN as ONE_LOGIN
from support.aws_plans import (
    OTHER_ZONE,
    ZONE,
    Change,
    both,
    declared_of,
    head,
    research,
    site_vpc,
    standby,
    top,
)
from support.builders import a_plan
from support.declared import ACCOUNT, NETWORK_OWNER, declared_by

from gpucluster.aws.program import declare
from gpucluster.aws.site_vpc import (
    SubnetFacts,
    SubnetRequirement,
    faults,
    private_requirement,
    public_requirement,
    require_vpc,
    shortage,
)
from gpucluster.plan.model import Access, SiteNetwork, SlurmOnAws

SITE = site_vpc(a_plan())
GOOD = SubnetFacts(id="subnet-a", vpc="vpc-1", zone=ZONE, cidr="10.42.0.0/19", free=8000)


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
def test_faults_of_a_subnet(sentence: str, seen: SubnetFacts, wanted: str) -> None:
    assert "\n".join(faults(seen, private_requirement(SITE, "vpc-1", ZONE))) == wanted, sentence


def test_all_faults_of_a_subnet_are_reported_together() -> None:
    wrong = replace(GOOD, vpc="vpc-2", zone="us-east-2c", cidr="10.43.0.0/28", free=0)
    assert len(list(faults(wrong, private_requirement(SITE, "vpc-1", ZONE)))) == 4


def test_subnet_without_enough_free_addresses_is_a_warning() -> None:
    tight, wish = replace(GOOD, free=3), private_requirement(SITE, "vpc-1", ZONE)
    assert list(faults(tight, wish)) == []
    assert shortage(GOOD, wish) is None
    assert shortage(tight, wish) == (
        "aws.network.subnets.us-east-2a: subnet-a has 3 free addresses, the cluster takes up to 17: "
        "pool h200 16, head 1"
    )


def test_efa_only_interface_needs_no_address_and_standby_needs_one() -> None:
    plan = standby(SITE)
    assert private_requirement(plan, "vpc-1", OTHER_ZONE).need == {"pool h200": 16, "standby": 1}
    assert private_requirement(plan, "vpc-1", OTHER_ZONE).fixed == {"head.standby.address": "10.42.32.10"}


def test_login_uses_the_public_subnet() -> None:
    wish = public_requirement(top(login=ONE_LOGIN)(SITE), "vpc-1", ZONE)
    assert (wish.field, dict(wish.need)) == ("aws.network.public.us-east-2a", {"login": 1})


def kinds(plan: SlurmOnAws) -> set[str]:
    return {r.type.rpartition(":")[2] for r in declared_of(plan)}


def test_existing_vpc_gets_no_network_resources() -> None:
    made = kinds(site_vpc(research()))
    gone = {"Vpc", "Subnet", "InternetGateway", "NatGateway", "RouteTable", "Route", "VpcEndpoint"}
    assert made & gone == set()
    assert {"getCallerIdentity", "getVpc", "getSubnet", "SecurityGroup", "MountTarget"} <= made


def test_machines_use_the_existing_subnets() -> None:
    plan = both(site_vpc, top(login=ONE_LOGIN, access=Access(ssh_from=("192.0.2.0/24",))))(a_plan())
    found = {r.name: r.inputs for r in declared_of(plan) if r.type.endswith(":Instance")}
    assert {name: i["subnetId"] for name, i in found.items()} == {
        "burst-head": "subnet-a",
        "burst-login-1": "subnet-pa",
    }


def test_head_policy_in_a_shared_vpc_names_the_owner_only_in_subnets() -> None:
    """A network account shares its subnets: instances, volumes and templates belong to the caller (T50)."""
    plan = site_vpc(research())
    found = next(r for r in declared_of(plan) if r.type.endswith(":RolePolicy") and r.name == "burst-head")
    arns = re.findall(r"arn:aws:[a-z0-9]+:[a-z0-9-]*:([0-9*]*):([a-z-]+)", found.inputs["policy"])
    of_owner = {kind for account, kind in arns if account == NETWORK_OWNER}
    assert of_owner == {"subnet"}
    ours = {kind for account, kind in arns if account == ACCOUNT}
    assert {"instance", "launch-template", "network-interface", "volume", "role"} <= ours


WITH_ENDPOINTS = replace(SITE.aws.network, endpoints=("ec2", "sqs"))


def test_endpoints_in_a_vpc_of_another_account_end_the_program() -> None:
    """Only the owner of a shared VPC can create endpoints in it (T50): without this check `up` ends in the middle."""
    says = (
        f"aws.network.endpoints: vpc-1 belongs to the account {NETWORK_OWNER}, and only the owner of a VPC can create its "
        "endpoints. Remove the field, and ask the owner for endpoints of ec2, sqs"
    )
    plan = replace(SITE, aws=replace(SITE.aws, network=WITH_ENDPOINTS))
    with pytest.raises(Exception, match=re.escape(says)):
        declared_by(partial(declare, plan))


def test_endpoints_in_a_vpc_of_the_callers_account_are_made() -> None:
    answer = {"id": "vpc-1", "support": True, "hostnames": True, "owner": ACCOUNT, "account": ACCOUNT}
    assert isinstance(WITH_ENDPOINTS, SiteNetwork)
    assert require_vpc(WITH_ENDPOINTS, answer) == "vpc-1"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (head(address="10.99.0.10"), "head.address: 10.99.0.10 is not in subnet-a"),
        (head(zone=OTHER_ZONE), "head.address: 10.42.0.10 is not in subnet-b"),
    ],
)
def test_program_error_names_the_field(change: Change, says: str) -> None:
    with pytest.raises(Exception, match=says):
        declared_by(partial(declare, change(SITE)))


def test_subnet_without_machines_has_no_fault() -> None:
    nobody = SubnetRequirement(
        field="aws.network.public.us-east-2a", vpc="vpc-1", zone=ZONE, need={}, fixed={}
    )
    assert list(faults(replace(GOOD, free=1), nobody)) == []

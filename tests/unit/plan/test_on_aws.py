"""What a plan on AWS decides of networks, interfaces, placement, volumes and images."""

import ipaddress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.aws_rows import SITE, at_top, of_head, of_network, of_pool, storage
from support.builders import a_plan, image_name_of, on_aws

from gpucluster import catalog, spec
from gpucluster.plan.aws import MOST_CUT, head_address, public_of, standby_address, subnet_of, usable
from gpucluster.plan.model import ImageById, InterfaceKind, OwnNetwork, SiteNetwork, SiteSubnet, SlurmOnAws
from gpucluster.plan.names import image_name, placement_key
from gpucluster.plan.resolve import resolve
from gpucluster.plan.resolve.aws import interfaces_of

STACKS = Path(__file__).parents[3] / "stacks"
MACHINES = catalog.load().machines
ZONES = tuple(f"us-east-1{letter}" for letter in "abcdef")


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_interfaces_are_one_a_card_and_an_efa_alone_never_primary(name: str) -> None:
    machine = MACHINES[name]
    found = interfaces_of(machine)
    fabric = [one for one in found if one.kind is InterfaceKind.EFA_ONLY]
    assert len(fabric) == machine.efa
    assert len({(one.card, one.device) for one in found}) == len(found)
    assert {one.card for one in fabric} <= set(machine.efa_cards)
    assert all(one.device < machine.card_interfaces for one in found)
    assert [one.kind for one in found if (one.card, one.device) == (0, 0)] == [InterfaceKind.ENA] * bool(
        found
    )


@pytest.mark.parametrize(
    ("name", "efa", "first"),
    [("p5.48xlarge", 32, (0, 1)), ("p5en.48xlarge", 16, (0, 1)), ("p6-b200.48xlarge", 8, (0, 1)),
     ("p6-b300.48xlarge", 16, (1, 0)), ("p4d.24xlarge", 4, (0, 1)), ("g6e.48xlarge", 4, (0, 1))],
)  # fmt: skip
def test_the_first_fabric_interface_stands_where_t29_puts_it(
    name: str, efa: int, first: tuple[int, int]
) -> None:
    """Card 0 of a p6-b300 takes no EFA."""
    fabric = [one for one in interfaces_of(MACHINES[name]) if one.kind is InterfaceKind.EFA_ONLY]
    assert (len(fabric), (fabric[0].card, fabric[0].device)) == (efa, first)


@given(st.integers(min_value=16, max_value=25))
def test_no_public_subnet_overlaps_another_or_a_private_one(length: int) -> None:
    cidr = f"10.42.0.0/{length}"
    private = [subnet_of(cidr, zone) for zone in ZONES]
    public = [one for zone in ZONES if (one := public_of(cidr, zone, ZONES[0])) is not None]
    assert len(public) == (len(ZONES) if length <= MOST_CUT else 1)
    ranges = [ipaddress.IPv4Network(one) for one in (*private, *public)]
    assert all(one.prefixlen <= 28 for one in ranges)
    assert not any(a.overlaps(b) for i, a in enumerate(ranges) for b in ranges[:i])


def test_fixed_addresses_are_usable_in_the_least_subnet() -> None:
    subnet = "10.42.0.16/28"
    assert usable(subnet, head_address(subnet))
    assert usable(subnet, standby_address(subnet))
    assert not any(
        usable(subnet, address) for address in ("10.42.0.16", "10.42.0.19", "10.42.0.31", "10.42.1.20")
    )


@pytest.mark.parametrize(
    ("wish", "nat", "endpoints", "public"),
    [
        ("nat: one", ("us-east-2a",), (), True),
        ("nat: per-zone", ("us-east-2a", "us-east-2b"), (), True),
        ("nat: none", (), ("ec2", "secretsmanager", "sqs"), False),
        ("nat: none\n    endpoints: [logs]", (), ("ec2", "logs", "secretsmanager", "sqs"), False),
        ("endpoints: [sqs]", ("us-east-2a",), ("sqs",), True),
    ],
)  # fmt: skip
def test_ways_out(wish: str, nat: tuple[str, ...], endpoints: tuple[str, ...], public: bool) -> None:
    network = a_plan(of_network(wish)).aws.network
    assert isinstance(network, OwnNetwork)
    assert (network.nat, network.endpoints) == (nat, endpoints)
    assert all(subnet.has_public is public for subnet in network.subnets)


def test_jobs_with_a_role_reach_sts_without_nat() -> None:
    """The agent asks it for their keys."""
    wish = (
        "  region: us-east-2\n",
        "  region: us-east-2\n  jobs: {read: ['s3://bucket/', 's3://a-bucket/sets/']}\n",
    )
    site = a_plan(of_network("nat: none"), wish).aws
    assert site.network.endpoints == ("ec2", "secretsmanager", "sqs", "sts")
    assert site.jobs is not None
    assert site.jobs.read == ("s3://a-bucket/sets", "s3://bucket"), (
        "by name, and without the slash at its end"
    )
    assert a_plan(wish).aws.network.endpoints == ()


def test_session_manager_without_nat_has_its_endpoints() -> None:
    network = a_plan(of_network("nat: none"), at_top("access: {ssm: true}")).aws.network
    assert network.endpoints == ("ec2", "ec2messages", "secretsmanager", "sqs", "ssm", "ssmmessages")


def test_a_vpc_that_is_there_keeps_its_subnets_and_has_nothing_of_ours() -> None:
    plan = a_plan(SITE, of_head("address: 10.9.0.77"))
    network = plan.aws.network
    assert network == SiteNetwork(
        vpc="vpc-0123456789abcdef0",
        subnets=(
            SiteSubnet(zone="us-east-2a", id="subnet-0123456789abcdef0"),
            SiteSubnet(zone="us-east-2b", id="subnet-0fedcba9876543210"),
        ),
    )
    assert (plan.head.zone, plan.head.address) == ("us-east-2a", "10.9.0.77")


@pytest.mark.parametrize(
    ("changes", "placed"),
    [
        ((), True),
        ((of_pool("placement: none"),), False),
        ((("max: 16", "max: 1"), (", max: 4}", "}")), False),
        (
            (
                ("[p5en.48xlarge, p5e.48xlarge]", "[g6e.xlarge]"),
                ("machines: [p5en.48xlarge], max", "machines: [g6e.xlarge], max"),
            ),
            False,
        ),
    ],
    ids=["EFA and several nodes", "as wished", "one node", "no EFA"],
)
def test_a_group_only_where_it_helps(changes: tuple[tuple[str, str], ...], placed: bool) -> None:
    assert a_plan(*changes).pools[0].placement is placed


def _research() -> SlurmOnAws:
    return on_aws(resolve(spec.load(STACKS / "research.yaml"), catalog.load()))


def test_what_was_bought_ahead_is_never_placed() -> None:
    placed = {pool.name: pool.placement for pool in _research().pools}
    assert placed == {"h100": False, "h200": True, "small": False}


def test_the_heads_volumes_are_named_and_sized() -> None:
    found = [(one.key, one.size_gib, one.path) for one in _research().head.volumes]
    assert found == [("state", 100, "/srv/gpucluster-state"), ("nfs-apps", 200, "/apps")]


def test_with_a_standby_the_state_lies_on_the_shared_mount() -> None:
    wish = "standby: {machine: m7i.xlarge, zone: us-east-2b, state: /data}"
    both = storage("{mount: /home, efs: {}}", "{mount: /data, nfs: {server: 192.0.2.5, export: /d}}")
    no_accept = ("{id: head-state, because: it lives as long as a test}, ", "")
    head = a_plan(of_head(wish), both, no_accept).head
    standby = head.standby
    assert standby is not None
    assert (head.volumes, standby.zone, standby.address, standby.state) == (
        (),
        "us-east-2b",
        "10.42.32.11",
        "/data",
    )


def test_a_pools_image_stands_beside_the_clusters() -> None:
    plan = a_plan(of_pool("image: {ami: ami-0123456789abcdef0}"))
    assert plan.pools[0].image == ImageById(os="ubuntu-24.04", id="ami-0123456789abcdef0")
    assert image_name_of(plan) == image_name("ubuntu-24.04", "24.11")


def test_storage_of_every_kind_is_one_kind_each() -> None:
    found = {one.path: one.source.kind for one in _research().storage}
    assert found == {
        "/home": "efs",
        "/data": "fsx-lustre",
        "/apps": "nfs-from-head",
        "/scratch": "nvme",
        "/archive": "other",
    }
    assert placement_key("h200", "us-east-1a") == "h200/us-east-1a"

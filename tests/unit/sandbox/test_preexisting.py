"""Prepaid capacity of a plan exists in the sandbox's cloud. Without it no node could be launched."""

import hashlib
import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from support.builders import on_aws

from gpucluster.cli.context import resolve_file
from gpucluster.cloud.port import Reservation
from gpucluster.plan.model import BootScript, FsxLustre, LustreLink, Market, Mount, SiteNetwork, SiteSubnet
from gpucluster.sandbox import preexisting
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.scenario import Scenario

STEADY = Path(__file__).parents[3] / "stacks/steady.yaml"
NOWHERE = Path("/nonexistent")


class Orders:
    """A stand-in of the operator's client, without HTTP."""

    def __init__(self, model):
        self.scenario, self.vpcs, self.keys = Scenario(model), [], []

    def make_vpc(self, vpc, cidr, subnets, *, owner):
        self.vpcs.append((vpc, cidr, [(one["id"], one["zone"], one["cidr"]) for one in subnets], owner))

    def make_key(self, name):
        self.keys.append(name)

    def reserve(self, machine, zone, count, **more):
        body = json.dumps({"machine": machine, "zone": zone, "count": count, **more}).encode()
        self.scenario.answer("POST", "/_gpucluster/reserve", body, 0.0)


def steady():
    return on_aws(resolve_file(STEADY).plan)


def test_each_reservation_of_the_plan_exists_with_enough_capacity():
    model = CloudModel(random.Random(1))  # noqa: S311 - dice that fall the same each time
    preexisting.make(steady(), Orders(model))
    assert model.reservations(("cr-0123456789abcdef0",), 0.0) == (
        Reservation(
            id="cr-0123456789abcdef0",
            state="active",
            machine="p5.48xlarge",
            zone="us-east-1a",
            total=2,
            free=2,
        ),
    )


def a_site():
    subnets = (
        SiteSubnet(zone="us-east-1b", id="subnet-b", public_id="subnet-pb"),
        SiteSubnet(zone="us-east-1a", id="subnet-a", public_id=None),
    )
    plan = steady()
    aws = replace(plan.aws, network=SiteNetwork(vpc="vpc-1", subnets=subnets), kms_key="alias/site")
    return replace(plan, aws=aws, head=replace(plan.head, zone="us-east-1a", address="10.60.20.10"))


def test_site_vpc_and_key_are_made_with_a_range_that_holds_the_heads_address():
    orders = Orders(CloudModel(random.Random(1)))  # noqa: S311 - dice that fall the same each time
    preexisting.make(a_site(), orders)
    spans = [
        ("subnet-b", "us-east-1b", "10.60.0.0/20"),
        ("subnet-pb", "us-east-1b", "10.60.32.0/20"),
        ("subnet-a", "us-east-1a", "10.60.16.0/20"),
    ]
    assert orders.vpcs == [("vpc-1", "10.60.0.0/16", spans, preexisting.OWNER)]
    assert orders.keys == ["alias/site"]
    told = "\n".join(preexisting.explain(a_site(), NOWHERE))
    for part in (
        "VPC vpc-1 10.60.0.0/16",
        "KMS key alias/site",
        f"shared by the account {preexisting.OWNER}",
    ):
        assert part in told


def test_plan_with_its_own_network_needs_none():
    assert preexisting.site_vpc(steady()) is None
    assert not [line for line in preexisting.explain(steady(), NOWHERE) if line.startswith(("VPC", "KMS"))]


def test_scenario_reset_keeps_prepaid_capacity():
    model = CloudModel(random.Random(1))  # noqa: S311 - dice that fall the same each time
    preexisting.make(steady(), Orders(model))
    model.clear()
    assert model.reservations(("cr-0123456789abcdef0",), 0.0)


def test_pools_that_share_a_reservation_have_room_for_both_and_a_source_takes_no_more_than_its_max():
    plan = steady()
    first = plan.pools[0]
    bounded = replace(first.sources[0], max=1)
    two = replace(plan, pools=(first, replace(first, name="other", sources=(bounded,))))
    assert [one.count for one in preexisting.reservations(two)] == [3]


@pytest.mark.parametrize(
    ("market", "word"),
    [(Market.RESERVATION, "capacity reservation cr-"), (Market.CAPACITY_BLOCK, "capacity block cr-")],
)
def test_each_prepaid_capacity_is_reported(market, word):
    plan = steady()
    pool = plan.pools[0]
    source = replace(pool.sources[0], market=market)
    said = preexisting.explain(replace(plan, pools=(replace(pool, sources=(source,)),)), NOWHERE)
    assert [line.startswith(word) for line in said] == [True]


class Store:
    """A stand-in of the S3 client."""

    def __init__(self):
        self.made, self.objects = [], {}

    def create_bucket(self, *, Bucket):  # noqa: N803
        self.made.append(Bucket)

    def put_object(self, *, Bucket, Key, Body):  # noqa: N803
        self.objects[f"s3://{Bucket}/{Key}"] = Body


def test_buckets_of_lustre_imports_are_created_once():
    lustre = Mount(
        path="/data",
        source=FsxLustre(
            zone="us-east-1a",
            size_gib=1200,
            links=tuple(LustreLink(path=f"/{n}", s3=f"s3://sets/{n}") for n in "ab"),
        ),
    )
    plan, store = replace(steady(), storage=(lustre,)), Store()
    preexisting.make_buckets(plan, store, NOWHERE)
    assert (store.made, store.objects) == (["sets"], {})
    assert any("bucket sets" in line for line in preexisting.explain(plan, NOWHERE))


def test_boot_script_is_found_by_its_hash_and_put_into_its_bucket(tmp_path):
    """Without it each boot of the pool fails; nobody can put it there before the head launches the first node."""
    body = b"#!/bin/sh\ntrue\n"
    (tmp_path / "any-name").write_bytes(body)
    (tmp_path / "other").write_bytes(b"#!/bin/sh\nfalse\n")
    (tmp_path / "folder").mkdir()
    there = BootScript(bucket="site", key="a/boot.sh", sha256=hashlib.sha256(body).hexdigest())
    absent = BootScript(bucket="site", key="absent.sh", sha256="0" * 64)
    plan, store = steady(), Store()
    plan = replace(plan, pools=tuple(replace(pool, on_boot=(there, absent)) for pool in plan.pools))
    preexisting.make_buckets(plan, store, tmp_path)
    assert (store.made, store.objects) == (["site"], {"s3://site/a/boot.sh": body})
    said = preexisting.explain(plan, tmp_path)
    assert f"s3://site/a/boot.sh: a copy of {tmp_path}/any-name" in said
    (missing,) = [line for line in said if line.startswith("s3://site/absent.sh is missing")]
    assert f"Nodes of {', '.join(pool.name for pool in plan.pools)} cannot boot" in missing


def test_boot_scripts_of_our_stacks_are_beside_them():
    for stack in STEADY.parent.glob("*.yaml"):
        plan = resolve_file(stack).plan
        assert None not in preexisting.boot_scripts(plan, stack.parent / preexisting.SCRIPTS).values(), stack

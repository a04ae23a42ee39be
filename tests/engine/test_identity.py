"""A spec edit changes only the resources that it names: the engine's preview over one stack.

The stack is deployed once. Each row is a preview of an edited spec. Dependent changes are checked separately: the
content of the bundle, which contains template versions, and policy texts.
"""

import stat
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest
from support.builders import changed, on_aws
from support.engine_stack import OPERATOR, Cluster, a_cluster

from gpucluster import catalog
from gpucluster.engine.events import Outcome
from gpucluster.plan.model import SlurmOnAws
from gpucluster.plan.resolve import resolve
from gpucluster.spec import inspect_text

SPEC = """\
schema: 1
name: burst
aws:
  region: us-east-2
  network: {cidr: 10.42.0.0/16, zones: [us-east-2a, us-east-2b]}
access: {ssh_from: [198.51.100.0/24]}
users:
  - {name: vision, uid: 5001}
slurm: {version: "24.11"}
head: {machine: m7i.2xlarge, state: 20GiB}
login: {machine: m7i.xlarge, count: 1}
storage:
  - {mount: /home, efs: {}}
pools:
  - name: h200
    nodes: {min: 0, max: 16}
    idle: 5m
    capacity:
      - {from: spot, machines: [p5en.48xlarge], zones: [us-east-2a]}
  - name: small
    nodes: {min: 0, max: 4}
    idle: 15m
    capacity: [{from: on-demand, machines: [g6e.2xlarge]}]
partitions:
  - {name: gpu, pools: [h200], default: true, max_time: 1d}
  - {name: debug, pools: [small], max_time: 4h}
"""


def a_plan_of(*changes: tuple[str, str]) -> SlurmOnAws:
    spec = inspect_text(changed(SPEC, *changes), "spec.yaml", catalog.load()).result()
    return on_aws(resolve(spec, catalog.load()))


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory, pulumi: Path) -> Generator[Cluster]:
    with a_cluster(tmp_path_factory.mktemp("identity") / "state", pulumi, a_plan_of()) as cluster:
        cluster.up()
        cluster.client("ec2").register_image(Name="another", RootDeviceName="/dev/sda1")
        yield cluster


def another_image(cluster: Cluster) -> str:
    (found,) = cluster.client("ec2").describe_images(Filters=[{"Name": "name", "Values": ["another"]}])[
        "Images"
    ]
    return found["ImageId"]


def changed_resources(outcome: Outcome) -> set[str]:
    """Return `+ Type name`, `~ Type name`, `- Type name`; `±` for a replacement."""
    signs = {"create": "+", "update": "~", "delete": "-"}
    return {
        f"{signs.get(c.op, '±')} {c.type.rpartition(':')[2]} {c.name}"
        for c in outcome.changes
        if not c.follows
    }


def following(outcome: Outcome) -> set[str]:
    return {f"{c.type.rpartition(':')[2]} {c.name}" for c in outcome.changes if c.follows}


BUNDLE = "~ BucketObjectv2 burst-bundle"
LARGE = """\
  - name: large
    nodes: {min: 0, max: 2}
    idle: 5m
    capacity: [{from: spot, machines: [g6e.48xlarge], zones: [us-east-2a]}]
partitions:
"""
SMALL = SPEC[SPEC.index("  - name: small") : SPEC.index("partitions:")]

FOLLOWS = "BucketObjectv2 burst-bundle"  # it contains the others' ids and versions
# description -> edit, own changes, dependent changes besides the bundle
EDITS: dict[str, tuple[tuple[tuple[str, str], ...], set[str], set[str]]] = {
    "nothing": ((), set(), set()),
    "another order of the pools": (((SMALL, ""), ("pools:\n", f"pools:\n{SMALL}")), {BUNDLE}, set()),
    "a pool added": (
        (("partitions:\n", LARGE), ("[small]", "[small, large]")),
        {
            "+ LaunchTemplate burst-large-spot-g6e.48xlarge",
            "+ PlacementGroup burst-large-us-east-2a",
            "~ RolePolicy burst-head",  # it names the machine types of the plan
        },
        set(),
    ),
    "a pool removed": (
        ((SMALL, ""), ("  - {name: debug, pools: [small], max_time: 4h}\n", "")),
        {"- LaunchTemplate burst-small-on-demand-g6e.2xlarge", "~ RolePolicy burst-head", BUNDLE},
        set(),
    ),
    "a pool resized": ((("max: 16", "max: 12"),), {BUNDLE}, set()),
    "a machine more in a pool": (
        (("[p5en.48xlarge]", "[p5en.48xlarge, p5e.48xlarge]"),),
        {"+ LaunchTemplate burst-h200-spot-p5e.48xlarge", "~ RolePolicy burst-head"},  # now a fleet request
        set(),
    ),
    "a source added before the others": (
        (("      - {from: spot,", "      - {from: on-demand, machines: [p5en.48xlarge], zones: [us-east-2a]}\n      - {from: spot,"),),
        {"+ LaunchTemplate burst-h200-on-demand-p5en.48xlarge"},
        set(),
    ),
    "a second source of one market": (
        (("zones: [us-east-2a]}\n", "zones: [us-east-2a]}\n      - {from: spot, machines: [p5en.48xlarge], zones: [us-east-2b]}\n"),),
        {"+ PlacementGroup burst-h200-us-east-2b", BUNDLE},
        set(),
    ),
    "another image": (
        (("aws:\n", "aws:\n  image: {ami: ami-OTHER}\n"),),
        {
            "~ LaunchTemplate burst-h200-spot-p5en.48xlarge",
            "~ LaunchTemplate burst-small-on-demand-g6e.2xlarge",
            "~ RolePolicy burst-head",
            "± Instance burst-head",
            "± Instance burst-login-1",
            "± VolumeAttachment burst-state",
        },
        {"Eip burst-login-1"},
    ),
    "another image of one pool": (
        (("    idle: 15m\n", "    idle: 15m\n    image: {ami: ami-OTHER}\n"),),
        {"~ LaunchTemplate burst-small-on-demand-g6e.2xlarge", "~ RolePolicy burst-head"},
        set(),
    ),
    "a partition changed": ((("max_time: 4h", "max_time: 5h"),), {BUNDLE}, set()),
    "a user added": ((("slurm:", "  - {name: speech, uid: 5002}\nslurm:"),), {BUNDLE}, set()),
    "a zone added": (
        (("us-east-2b]", "us-east-2b, us-east-2c]"),),
        {
            "+ MountTarget burst-efs-home-us-east-2c",
            "+ Route burst-nat-us-east-2c",
            "+ RouteTable burst-us-east-2c",
            "+ RouteTableAssociation burst-public-us-east-2c",
            "+ RouteTableAssociation burst-us-east-2c",
            "+ Subnet burst-public-us-east-2c",
            "+ Subnet burst-us-east-2c",
        },
        {"RolePolicy burst-head", "VpcEndpoint burst-s3"},
    ),
    "a login machine added": (
        (("count: 1", "count: 2"),), {"+ Eip burst-login-2", "+ Instance burst-login-2", BUNDLE}, set()),
    "a file system added": (
        (("pools:\n", "  - {mount: /sets, efs: {}}\npools:\n"),),
        {
            "+ AccessPoint burst-efs-sets",
            "+ FileSystem burst-efs-sets",
            "+ FileSystemPolicy burst-efs-sets",
            "+ MountTarget burst-efs-sets-us-east-2a",
            "+ MountTarget burst-efs-sets-us-east-2b",
        },
        {"RolePolicy burst-head", "RolePolicy burst-login", "RolePolicy burst-node"},  # each may mount it
    ),
    "a disk of the head added": (
        (("pools:\n", "  - {mount: /apps, nfs: {from: head, size: 20GiB}}\npools:\n"),),
        {
            "+ SecurityGroupIngressRule burst-head-login-nfs",
            "+ SecurityGroupIngressRule burst-head-node-nfs",
            "+ Volume burst-nfs-apps",
            "+ VolumeAttachment burst-nfs-apps",
        },
        set(),
    ),
    "a larger head": ((("m7i.2xlarge", "m7i.4xlarge"),), {"~ Instance burst-head", BUNDLE}, set()),
    "one more range for login": (
        (("198.51.100.0/24]", "198.51.100.0/24, 203.0.113.0/24]"),),
        {"+ SecurityGroupIngressRule burst-login-ssh-203.0.113.0-24", BUNDLE},
        set(),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "own", "followers"), list(EDITS.values()), ids=list(EDITS))
def test_edit_changes_only_what_it_names(
    shared_cluster: Cluster, changes: tuple[tuple[str, str], ...], own: set[str], followers: set[str]
) -> None:
    plan = a_plan_of(
        *((old, new.replace("ami-OTHER", another_image(shared_cluster))) for old, new in changes)
    )
    seen = replace(shared_cluster, plan=plan).preview()
    assert changed_resources(seen) == own
    if own == {BUNDLE}:
        assert [c.properties for c in seen.changes] == [("contentBase64",)]
    assert following(seen) - {FOLLOWS} == followers


def test_each_kind_of_edit_that_the_specification_names_has_a_row() -> None:
    words = ("added", "removed", "resized", "image", "partition", "user", "zone", "login", "file system")
    assert [word for word in words if not any(word in sentence for sentence in EDITS)] == []


def test_state_has_no_secret_and_private_files(shared_cluster: Cluster) -> None:
    state_dir = shared_cluster.target.state_dir
    secrets = (OPERATOR[1].encode(), shared_cluster.target.passphrase.read_bytes())
    leaks = [
        path
        for path in state_dir.rglob("*")
        if path.is_file()
        and path != shared_cluster.target.passphrase
        and any(s in path.read_bytes() for s in secrets)
    ]
    assert leaks == []
    assert stat.S_IMODE(shared_cluster.target.passphrase.stat().st_mode) == 0o600
    assert stat.S_IMODE(state_dir.stat().st_mode) == 0o700
    assert OPERATOR[1] not in repr(shared_cluster.target)

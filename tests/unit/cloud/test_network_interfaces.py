"""What is in a cluster's network is found by network, not by tag, and each part says what to type about it."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from support.clouds import REGION, RunningCloud, a_network, running_cloud
from support.clouds import Network as Site

from gpucluster.cloud.network_interfaces import (
    AwsOccupants,
    Blocker,
    Declared,
    Network,
    Occupant,
    blockers,
    ids_in,
)
from gpucluster.plan import names
from gpucluster.sandbox.aws.ec2.state.values import Timing

pytestmark = pytest.mark.loopback
TAGS = {names.TAG_CLUSTER: "burst", names.TAG_ROLE: names.ROLE_NODE}


@pytest.fixture(scope="module")
def cloud() -> Iterator[RunningCloud]:
    with running_cloud(timing=Timing(pending_s=0.0, ending_s=5.0)) as found:
        yield found


@pytest.fixture
def site(cloud: RunningCloud) -> Site:
    return a_network(cloud.fresh())


def launch(
    cloud: RunningCloud, site: Site, tags: dict[str, str], *, template: bool = True, group: str = ""
) -> str:
    about = [{"Key": key, "Value": value} for key, value in tags.items()]
    origin: dict[str, Any] = {"LaunchTemplate": {"LaunchTemplateId": site.template, "Version": "1"}}
    if not template:
        origin = {"ImageId": site.image, "InstanceType": "m7i.large"}
    if group:
        origin["SecurityGroupIds"] = [group]
    made = cloud.client("ec2").run_instances(
        **origin, SubnetId=site.subnets["us-east-1a"], MinCount=1, MaxCount=1,
        **({"TagSpecifications": [{"ResourceType": "instance", "Tags": about}]} if about else {}),
    )  # fmt: skip
    return made["Instances"][0]["InstanceId"]


def declared(site: Site, *ids: str) -> Declared:
    return Declared(cluster="burst", region=REGION, ids=frozenset(ids), templates=frozenset({site.template}))


def found(cloud: RunningCloud, network: Network, about: Declared) -> tuple[Blocker, ...]:
    return blockers(AwsOccupants(REGION, lambda: cloud.client("ec2")).occupants(network), about)


def whole(site: Site) -> Network:
    return Network(vpcs=(site.vpc,), subnets=tuple(site.subnets.values()), groups=(site.group,))


def test_nodes_and_machines_of_the_state_are_not_in_the_way(cloud: RunningCloud, site: Site) -> None:
    head = launch(cloud, site, {names.TAG_CLUSTER: "burst", names.TAG_ROLE: names.ROLE_HEAD})
    launch(cloud, site, TAGS)
    assert found(cloud, whole(site), declared(site, head)) == ()


INTERFACE_OF_EKS = Occupant(interface="eni-1", description="Amazon EKS burst", attached=True, tags={})


@pytest.mark.parametrize(("eks", "in_the_way"), [({"burst"}, 0), ({"other"}, 1), (set[str](), 1)])
def test_interfaces_of_the_control_plane_go_with_its_cluster(eks: set[str], in_the_way: int) -> None:
    about = Declared(cluster="burst", region=REGION, ids=frozenset(), eks=frozenset(eks))
    assert len(blockers([INTERFACE_OF_EKS], about)) == in_the_way


def test_node_without_its_cluster_tag_is_found_and_known_by_its_template(
    cloud: RunningCloud, site: Site
) -> None:
    node = launch(cloud, site, TAGS)
    cloud.client("ec2").delete_tags(Resources=[node], Tags=[{"Key": names.TAG_CLUSTER}])
    (blocker,) = found(cloud, whole(site), declared(site))
    assert str(blocker) == (
        f"{node} (p5.48xlarge, running, without the tag gpucluster:cluster, launched from this cluster's template)"
    )
    assert blocker.step == (
        f"aws ec2 create-tags --region us-east-1 --resources {node} --tags Key=gpucluster:cluster,Value=burst "
        "Key=gpucluster:role,Value=node"
    )
    assert not blocker.ends


def test_node_without_its_role_is_found(cloud: RunningCloud, site: Site) -> None:
    node = launch(cloud, site, TAGS)
    cloud.client("ec2").delete_tags(Resources=[node], Tags=[{"Key": names.TAG_ROLE}])
    (blocker,) = found(cloud, whole(site), declared(site))
    assert "without the tag gpucluster:role" in str(blocker)


FOREIGN = {
    "without tags": ({}, "m7i.large, running, without the tag gpucluster:cluster"),
    "of another cluster": ({**TAGS, names.TAG_CLUSTER: "lab"}, "m7i.large, running, of the cluster lab"),
    "with the tag and another role": ({**TAGS, names.TAG_ROLE: "web"}, "m7i.large, running, tagged gpucluster:role=web"),
}  # fmt: skip


@pytest.mark.parametrize(("tags", "words"), FOREIGN.values(), ids=FOREIGN)
def test_foreign_instance_is_named_with_its_end(
    cloud: RunningCloud, site: Site, tags: dict[str, str], words: str
) -> None:
    other = launch(cloud, site, tags, template=False)
    (blocker,) = found(cloud, whole(site), declared(site))
    assert (str(blocker), blocker.step) == (
        f"{other} ({words})",
        f"aws ec2 terminate-instances --region us-east-1 --instance-ids {other}",
    )


def test_stopped_instance_is_in_the_way_and_an_ending_one_ends_by_itself(
    cloud: RunningCloud, site: Site
) -> None:
    stopped, ending = (launch(cloud, site, {}, template=False) for _ in range(2))
    ec2 = cloud.client("ec2")
    ec2.stop_instances(InstanceIds=[stopped])
    cloud.clock.move(60)
    ec2.terminate_instances(InstanceIds=[ending])
    ends = {str(one): one.ends for one in found(cloud, whole(site), declared(site))}
    assert ends == {
        f"{stopped} (m7i.large, stopped, without the tag gpucluster:cluster)": False,
        f"{ending} (m7i.large, shutting-down)": True,
    }


def test_interface_of_nothing_is_named_with_its_deletion(cloud: RunningCloud, site: Site) -> None:
    made = cloud.client("ec2").create_network_interface(
        SubnetId=site.subnets["us-east-1b"], Description="a colleague's"
    )
    name = made["NetworkInterface"]["NetworkInterfaceId"]
    (blocker,) = found(cloud, whole(site), declared(site))
    assert (str(blocker), blocker.step, blocker.ends) == (
        f"{name} (a colleague's, attached to nothing)",
        f"aws ec2 delete-network-interface --region us-east-1 --network-interface-id {name}",
        True,
    )
    assert found(cloud, whole(site), declared(site, name)) == ()


def test_mount_target_belongs_to_its_file_system(cloud: RunningCloud, site: Site) -> None:
    efs = cloud.client("efs")
    system = efs.create_file_system(CreationToken=site.vpc)["FileSystemId"]
    cloud.clock.move(60)
    target = efs.create_mount_target(
        FileSystemId=system, SubnetId=site.subnets["us-east-1a"], SecurityGroups=[site.group]
    )["MountTargetId"]
    (blocker,) = found(cloud, whole(site), declared(site))
    assert target in str(blocker)
    assert blocker.step == f"delete the resource that holds {blocker.id}"
    assert found(cloud, whole(site), declared(site, target)) == ()


def test_only_the_groups_count_in_a_network_of_the_site(cloud: RunningCloud, site: Site) -> None:
    """Instances of others are no fault there, unless they use a group of the cluster."""
    ours = Network(groups=(site.group,))
    other = cloud.client("ec2").create_security_group(GroupName="site", Description="site", VpcId=site.vpc)[
        "GroupId"
    ]
    launch(cloud, site, {}, template=False, group=other)
    assert found(cloud, ours, declared(site)) == ()
    using = launch(cloud, site, {}, template=False, group=site.group)
    assert [one.id for one in found(cloud, ours, declared(site))] == [using]


def test_ids_are_found_anywhere_in_outputs() -> None:
    outputs = {"networkInterfaceIds": ["eni-0123456789abcdef0"], "x": {"y": "mount target fsmt-12345678"}}
    assert ids_in([outputs, {"z": "meni-1"}]) == {"eni-0123456789abcdef0", "fsmt-12345678"}


def test_each_instance_is_named_once(cloud: RunningCloud, site: Site) -> None:
    launch(cloud, site, {}, template=False)
    port = AwsOccupants(REGION, lambda: cloud.client("ec2"))
    (one,) = port.occupants(whole(site))
    assert len(blockers((one, replace(one, interface="eni-2")), declared(site))) == 1


def test_tags_of_the_template_are_ec2s_own(cloud: RunningCloud, site: Site) -> None:
    """They stay, whatever a user does (T54)."""
    node = launch(cloud, site, TAGS)
    ec2 = cloud.client("ec2")
    with pytest.raises(ec2.exceptions.ClientError, match="reserved"):
        ec2.delete_tags(Resources=[node], Tags=[{"Key": names.TAG_TEMPLATE}])
    shown = ec2.describe_instances(InstanceIds=[node])["Reservations"][0]["Instances"][0]["Tags"]
    of_ec2 = {tag["Key"]: tag["Value"] for tag in shown if tag["Key"].startswith("aws:")}
    assert of_ec2 == {names.TAG_TEMPLATE: site.template, names.TAG_TEMPLATE_VERSION: "1"}
    by_tag = [{"Name": f"tag:{names.TAG_TEMPLATE}", "Values": [site.template]}]
    assert len(ec2.describe_instances(Filters=by_tag)["Reservations"]) == 1

"""EKS over HTTP: states over time, and what the service refuses."""

import json
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from support.clouds import Network, RunningCloud, a_network, code_of, error_of, running_cloud

from gpucluster.sandbox.aws.ec2.state.values import Timing
from gpucluster.sandbox.aws.eks import clusters

pytestmark = pytest.mark.loopback
TIMING = Timing(pending_s=0.0, ending_s=1.0, cluster_s=600.0, nodegroup_s=120.0, addon_s=30.0, update_s=300.0)
NODE_POLICIES = ("AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly")
TRUST = {
    "cluster": ("eks.amazonaws.com", ["sts:AssumeRole"]),
    "node": ("ec2.amazonaws.com", ["sts:AssumeRole"]),
    "pods": ("pods.eks.amazonaws.com", ["sts:AssumeRole", "sts:TagSession"]),
}
ADMIN = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
ANYBODY = "arn:aws:iam::123456789012:user/anybody"


@dataclass
class Eks:
    """A cloud with roles and a network, and short forms of the calls."""

    cloud: RunningCloud
    network: Network
    roles: dict[str, str]
    name: str
    made: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def api(self) -> Any:
        return self.cloud.client("eks")

    def asked(self, **changes: Any) -> dict[str, Any]:
        """A request of CreateCluster that EKS takes; None leaves a part out."""
        vpc = {
            "subnetIds": [*self.network.subnets.values()],
            "endpointPrivateAccess": True,
            "endpointPublicAccess": False,
        }
        whole = {
            "name": self.name, "version": "1.35", "roleArn": self.roles["cluster"], "resourcesVpcConfig": vpc,
            "accessConfig": {"authenticationMode": "API"}, **changes,
        }  # fmt: skip
        return {k: v for k, v in whole.items() if v is not None}

    def up(self, **changes: Any) -> None:
        self.api.create_cluster(**self.asked(**changes))
        self.cloud.clock.move(600)

    def group_asked(self, **changes: Any) -> dict[str, Any]:
        scaling = {"minSize": 2, "maxSize": 2, "desiredSize": 2}
        whole = {
            "clusterName": self.name, "nodegroupName": "serve", "nodeRole": self.roles["node"], "scalingConfig": scaling,
            "subnets": [*self.network.subnets.values()], "instanceTypes": ["p5.48xlarge"], **changes,
        }  # fmt: skip
        return {k: v for k, v in whole.items() if v is not None}

    def group(self, **changes: Any) -> None:
        self.api.create_nodegroup(**self.group_asked(**changes))
        self.cloud.clock.move(120)
        self.state("serve")
        self.cloud.clock.move(1)

    def state(self, group: str = "") -> str:
        if group:
            return self.api.describe_nodegroup(clusterName=self.name, nodegroupName=group)["nodegroup"][
                "status"
            ]
        return self.api.describe_cluster(name=self.name)["cluster"]["status"]

    def nodes(self) -> list[dict[str, Any]]:
        wanted = [{"Name": "tag:eks:cluster-name", "Values": [self.name]}, {"Name": "instance-state-name", "Values": ["pending", "running"]}]  # fmt: skip
        pages = self.cloud.client("ec2").describe_instances(Filters=wanted)["Reservations"]
        return [one for page in pages for one in page["Instances"]]

    def template(self, **content: Any) -> dict[str, str]:
        made = self.cloud.client("ec2").create_launch_template(
            LaunchTemplateName=f"{self.name}-{len(self.made)}", LaunchTemplateData=content
        )["LaunchTemplate"]
        self.made[made["LaunchTemplateId"]] = made
        return {"id": made["LaunchTemplateId"], "version": "1"}


@pytest.fixture(scope="module")
def running() -> Generator[tuple[RunningCloud, Network], None, None]:
    with running_cloud(timing=TIMING) as cloud:
        yield cloud, a_network(cloud)


@pytest.fixture(scope="module")
def roles(running: tuple[RunningCloud, Network]) -> dict[str, str]:
    iam = running[0].client("iam")
    found = dict[str, str]()
    for name, (service, actions) in TRUST.items():
        statement = {"Effect": "Allow", "Principal": {"Service": service}, "Action": actions}
        trust = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        found[name] = iam.create_role(RoleName=name, AssumeRolePolicyDocument=trust)["Role"]["Arn"]
    iam.attach_role_policy(RoleName="cluster", PolicyArn="arn:aws:iam::aws:policy/AmazonEKSClusterPolicy")
    for name in NODE_POLICIES:
        iam.attach_role_policy(RoleName="node", PolicyArn=f"arn:aws:iam::aws:policy/{name}")
    return found


@pytest.fixture
def eks(cloud: RunningCloud, network: Network, roles: dict[str, str]) -> Iterator[Eks]:
    made = Eks(cloud, network, roles, f"kube-{cloud.model.draw()}")
    yield made
    api = made.api
    if made.name in api.list_clusters()["clusters"]:
        cloud.clock.move(10_000)
        for group in api.list_nodegroups(clusterName=made.name)["nodegroups"]:
            api.delete_nodegroup(clusterName=made.name, nodegroupName=group)
        for _ in range(4):
            cloud.clock.move(1_000)
            api.list_clusters()
        api.delete_cluster(name=made.name)
        cloud.clock.move(1_000)
        assert made.name not in api.list_clusters()["clusters"]


# --- clusters -----------------------------------------------------------------------------------


def test_cluster_comes_and_goes_over_time(eks: Eks) -> None:
    made = eks.api.create_cluster(**eks.asked(tags={"team": "a"}))["cluster"]
    assert (made["status"], "endpoint" in made) == ("CREATING", False)
    eks.cloud.clock.move(599)
    assert eks.state() == "CREATING"
    eks.cloud.clock.move(1)
    seen = eks.api.describe_cluster(name=eks.name)["cluster"]
    assert (seen["status"], seen["version"], seen["tags"]) == ("ACTIVE", "1.35", {"team": "a"})
    assert seen["endpoint"].startswith("https://")
    assert seen["certificateAuthority"]["data"]
    assert seen["accessConfig"] == {"authenticationMode": "API"}, "EKS does not repeat the creator's right"
    vpc = seen["resourcesVpcConfig"]
    assert (vpc["vpcId"], vpc["publicAccessCidrs"]) == (eks.network.vpc, [])
    ec2 = eks.cloud.client("ec2")
    assert code_of(ec2.delete_security_group, GroupId=vpc["clusterSecurityGroupId"]) == "DependencyViolation"
    assert eks.api.delete_cluster(name=eks.name)["cluster"]["status"] == "DELETING"
    eks.cloud.clock.move(600)
    assert code_of(eks.api.describe_cluster, name=eks.name) == "ResourceNotFoundException"
    groups = ec2.describe_security_groups(Filters=[{"Name": "vpc-id", "Values": [eks.network.vpc]}])
    assert vpc["clusterSecurityGroupId"] not in [one["GroupId"] for one in groups["SecurityGroups"]]


def test_private_api_server_lets_in_whom_a_rule_of_its_group_names(eks: Eks) -> None:
    ec2 = eks.cloud.client("ec2")
    group = ec2.create_security_group(GroupName=eks.name, Description="x", VpcId=eks.network.vpc)["GroupId"]
    vpc = {**eks.asked()["resourcesVpcConfig"], "securityGroupIds": [group]}
    eks.up(resourcesVpcConfig=vpc)

    def reached() -> bool:
        return clusters.reached(eks.cloud.model.eks.clusters[eks.name], eks.cloud.api.moto)

    def let_in(**peer: Any) -> None:
        rule = {"IpProtocol": "tcp", "FromPort": 443, "ToPort": 443, **peer}
        ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[rule])

    assert not reached()
    let_in(UserIdGroupPairs=[{"GroupId": group}])
    assert not reached(), "a machine that is no node is in no such group"
    let_in(IpRanges=[{"CidrIp": "10.0.0.0/16"}])
    assert reached()


def _vpc(**changes: Any) -> Any:
    return lambda eks: {"resourcesVpcConfig": {**eks.asked()["resourcesVpcConfig"], **changes}}


ONE_ZONE = "Subnets specified must be in at least two different AZs"
NO_POLICY = "The provided role doesn't have the Amazon EKS Managed Policies associated with it"
KEY = [{"provider": {"keyArn": "arn:aws:kms:us-east-1:123456789012:key/none"}, "resources": ["secrets"]}]
REFUSED_CLUSTERS: Mapping[str, tuple[Any, str, str]] = {
    "a version that is gone": (lambda _: {"version": "1.22"}, "InvalidParameterException", "unsupported Kubernetes version"),
    "one zone": (lambda eks: _vpc(subnetIds=[eks.network.subnets["us-east-1a"]])(eks), "InvalidParameterException", ONE_ZONE),
    "no such subnet": (_vpc(subnetIds=["subnet-0", "subnet-1"]), "InvalidParameterException", "The subnet ID 'subnet-0' does not exist"),
    "no such group": (_vpc(securityGroupIds=["sg-0"]), "InvalidParameterException", "The security group 'sg-0' does not exist"),
    "no endpoint": (_vpc(endpointPrivateAccess=False), "InvalidParameterException", "Private and public endpoint access cannot be false"),
    "a private range": (_vpc(endpointPublicAccess=True, publicAccessCidrs=["10.0.0.0/8"]), "InvalidParameterException", "not allowed in publicAccessCidrs"),
    "no such role": (lambda _: {"roleArn": "arn:aws:iam::123456789012:role/none"}, "InvalidParameterException", "does not exist"),
    "another trust": (lambda eks: {"roleArn": eks.roles["node"]}, "InvalidParameterException", "the trusted entity is not correct"),
    "no such key": (lambda _: {"encryptionConfig": KEY}, "InvalidParameterException", "is invalid"),
    "what the sandbox has not": (lambda _: {"upgradePolicy": {"supportType": "STANDARD"}}, "UnsupportedOperation", "upgradePolicy"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED_CLUSTERS)
def test_cluster_that_eks_refuses(eks: Eks, case: str) -> None:
    changes, code, text = REFUSED_CLUSTERS[case]
    error = error_of(eks.api.create_cluster, **eks.asked(**changes(eks))).response["Error"]
    assert error["Code"] == code
    assert text in error["Message"]
    assert eks.name not in eks.api.list_clusters()["clusters"]


def test_role_of_a_control_plane_needs_the_policy_of_aws(eks: Eks) -> None:
    iam = eks.cloud.client("iam")
    iam.detach_role_policy(RoleName="cluster", PolicyArn="arn:aws:iam::aws:policy/AmazonEKSClusterPolicy")
    try:
        assert NO_POLICY in str(error_of(eks.api.create_cluster, **eks.asked()))
    finally:
        iam.attach_role_policy(RoleName="cluster", PolicyArn="arn:aws:iam::aws:policy/AmazonEKSClusterPolicy")


def test_second_cluster_of_a_name_is_refused(eks: Eks) -> None:
    eks.up()
    assert code_of(eks.api.create_cluster, **eks.asked()) == "ResourceInUseException"


def test_upgrade_is_one_minor_version_and_the_only_update(eks: Eks) -> None:
    eks.up(version="1.34")
    skips = error_of(eks.api.update_cluster_version, name=eks.name, version="1.36")
    assert "Unsupported Kubernetes minor version update from 1.34 to 1.36" in str(skips)
    assert "from 1.34 to 1.34" in str(error_of(eks.api.update_cluster_version, name=eks.name, version="1.34"))
    update = eks.api.update_cluster_version(name=eks.name, version="1.35")["update"]
    assert (update["status"], update["type"]) == ("InProgress", "VersionUpdate")
    assert eks.state() == "UPDATING"
    logs = {"clusterLogging": [{"types": ["audit"], "enabled": True}]}
    second = error_of(eks.api.update_cluster_config, name=eks.name, logging=logs)
    assert second.response["Error"]["Code"] == "ResourceInUseException"
    assert f"Cannot LoggingUpdate because cluster {eks.name} currently has update {update['id']} in progress" in str(second)  # fmt: skip
    assert code_of(eks.api.delete_cluster, name=eks.name) == "ResourceInUseException"
    eks.cloud.clock.move(300)
    done = eks.api.describe_update(name=eks.name, updateId=update["id"])["update"]
    assert done["status"] == "Successful"
    assert eks.state() == "ACTIVE"


def test_one_call_changes_one_thing(eks: Eks) -> None:
    eks.up()
    logs = {"clusterLogging": [{"types": ["audit"], "enabled": True}]}
    only = "Only one type of update can be allowed."
    both = {"logging": logs, "resourcesVpcConfig": {"endpointPublicAccess": True}}
    assert only in str(error_of(eks.api.update_cluster_config, name=eks.name, **both))
    mixed = {"endpointPublicAccess": True, "subnetIds": [*eks.network.subnets.values()]}
    assert only in str(error_of(eks.api.update_cluster_config, name=eks.name, resourcesVpcConfig=mixed))
    same = {"endpointPublicAccess": False}
    already = error_of(eks.api.update_cluster_config, name=eks.name, resourcesVpcConfig=same)
    assert "already at the desired configuration" in str(already)
    eks.api.update_cluster_config(name=eks.name, logging=logs)
    eks.cloud.clock.move(300)
    rows = eks.api.describe_cluster(name=eks.name)["cluster"]["logging"]["clusterLogging"]
    assert rows[0] == {"types": ["audit"], "enabled": True}


def test_subnets_of_a_control_plane_are_in_the_zones_of_its_creation(eks: Eks) -> None:
    """No zone more and none less. Regression: fewer were taken."""
    ec2, first = eks.cloud.client("ec2"), [*eks.network.subnets.values()]

    def subnet(zone: str, cidr: str) -> str:
        made = ec2.create_subnet(VpcId=eks.network.vpc, CidrBlock=cidr, AvailabilityZone=zone)
        return made["Subnet"]["SubnetId"]

    third, last = subnet("us-east-1c", "10.42.224.0/24"), subnet("us-east-1d", "10.42.225.0/24")
    eks.up(**_vpc(subnetIds=[*first, third])(eks))
    for others in ([*first, third, last], first):
        error = error_of(eks.api.update_cluster_config, name=eks.name, resourcesVpcConfig={"subnetIds": others})  # fmt: skip
        assert "Provided subnets belong to the AZs" in str(error)
    another = subnet("us-east-1c", "10.42.226.0/24")
    eks.api.update_cluster_config(name=eks.name, resourcesVpcConfig={"subnetIds": [*first, another]})


def test_key_of_the_secrets_is_added_once(eks: Eks) -> None:
    eks.up()
    key = eks.cloud.client("kms").create_key()["KeyMetadata"]["Arn"]
    asked = {
        "clusterName": eks.name,
        "encryptionConfig": [{"provider": {"keyArn": key}, "resources": ["secrets"]}],
    }
    eks.api.associate_encryption_config(**asked)
    eks.cloud.clock.move(300)
    assert code_of(eks.api.associate_encryption_config, **asked) == "InvalidParameterException"


# --- node groups --------------------------------------------------------------------------------


def test_node_group_launches_its_nodes_over_its_subnets(eks: Eks) -> None:
    eks.up()
    made = eks.api.create_nodegroup(**eks.group_asked(labels={"pool": "serve"}))["nodegroup"]
    assert made["status"] == "CREATING"
    eks.cloud.clock.move(120)
    eks.state("serve")
    eks.cloud.clock.move(1)
    assert eks.state("serve") == "ACTIVE"
    nodes = eks.nodes()
    assert sorted(one["SubnetId"] for one in nodes) == sorted(eks.network.subnets.values())
    assert {one["IamInstanceProfile"]["Arn"].rpartition("/")[2] for one in nodes} == {
        made["resources"]["autoScalingGroups"][0]["name"].removesuffix("-asg")
    }
    entry = eks.api.describe_access_entry(clusterName=eks.name, principalArn=eks.roles["node"])["accessEntry"]
    assert (entry["type"], entry["kubernetesGroups"]) == ("EC2_LINUX", ["system:nodes"])
    ended = nodes[0]["InstanceId"]
    eks.cloud.client("ec2").terminate_instances(InstanceIds=[ended])
    eks.state("serve")
    eks.cloud.clock.move(1)
    assert eks.state("serve") == "ACTIVE"
    assert len(eks.nodes()) == 2, "the group replaces a node that is gone"
    assert code_of(eks.api.delete_cluster, name=eks.name) == "ResourceInUseException"
    eks.api.delete_nodegroup(clusterName=eks.name, nodegroupName="serve")
    assert eks.state("serve") == "DELETING"
    eks.cloud.clock.move(120)
    eks.api.list_clusters()
    assert code_of(eks.state, group="serve") == "ResourceNotFoundException"
    assert eks.nodes() == []


def test_node_group_without_capacity_fails_and_says_so(eks: Eks) -> None:
    eks.up()
    eks.cloud.model.set_capacity("p5.48xlarge", free=0)
    eks.group()
    seen = eks.api.describe_nodegroup(clusterName=eks.name, nodegroupName="serve")["nodegroup"]
    (issue,) = seen["health"]["issues"]
    assert (seen["status"], issue["code"]) == ("CREATE_FAILED", "AsgInstanceLaunchFailures")
    assert "InsufficientInstanceCapacity" in issue["message"]


def test_whole_group_that_loses_a_node_for_good_is_degraded(eks: Eks) -> None:
    eks.up()
    eks.group()
    assert eks.state("serve") == "ACTIVE"
    eks.cloud.model.set_capacity("p5.48xlarge", free=0)
    eks.cloud.client("ec2").terminate_instances(InstanceIds=[eks.nodes()[0]["InstanceId"]])
    assert eks.state("serve") == "DEGRADED"
    eks.cloud.model.clear()
    eks.state("serve")
    eks.cloud.clock.move(1)
    assert eks.state("serve") == "ACTIVE"


def test_minimal_update_ends_a_node_first_and_needs_no_other_machine(eks: Eks) -> None:
    eks.up()
    template = eks.template(InstanceType="p5.48xlarge")
    config = {"maxUnavailable": 1, "updateStrategy": "MINIMAL"}
    eks.group(instanceTypes=None, launchTemplate=template, updateConfig=config)
    before = {one["InstanceId"] for one in eks.nodes()}
    content = {"InstanceType": "p5.48xlarge", "EbsOptimized": True}
    eks.cloud.client("ec2").create_launch_template_version(
        LaunchTemplateId=template["id"], LaunchTemplateData=content
    )
    asked = {"clusterName": eks.name, "nodegroupName": "serve"}
    eks.api.update_nodegroup_version(**asked, launchTemplate={**template, "version": "2"})
    most, least = 0, len(before)
    for _ in range(20):
        eks.state("serve")
        eks.cloud.clock.move(2)
        living = {one["InstanceId"] for one in eks.nodes()}
        most, least = max(most, len(living)), min(least, len(living))
    eks.cloud.clock.move(TIMING.update_s)
    assert eks.state("serve") == "ACTIVE"
    assert not before & {one["InstanceId"] for one in eks.nodes()}
    assert (most, least) == (2, 1)


def test_update_launches_before_it_ends_a_node(eks: Eks) -> None:
    """A group without spare capacity cannot be replaced: the update fails, and the old nodes stay."""
    eks.up()
    template = eks.template(InstanceType="p5.48xlarge")
    eks.group(instanceTypes=None, launchTemplate=template)
    before = {one["InstanceId"] for one in eks.nodes()}
    ec2 = eks.cloud.client("ec2")
    content = {"InstanceType": "p5.48xlarge", "EbsOptimized": True}
    ec2.create_launch_template_version(LaunchTemplateId=template["id"], LaunchTemplateData=content)
    eks.cloud.model.set_capacity("p5.48xlarge", free=0)
    asked = {
        "clusterName": eks.name,
        "nodegroupName": "serve",
        "launchTemplate": {**template, "version": "2"},
    }
    failing = eks.api.update_nodegroup_version(**asked)["update"]["id"]
    assert code_of(eks.api.update_nodegroup_version, **asked) == "ResourceInUseException"
    eks.cloud.clock.move(120)
    eks.state("serve")
    seen = eks.api.describe_update(name=eks.name, nodegroupName="serve", updateId=failing)["update"]
    assert (seen["status"], seen["errors"][0]["errorCode"]) == ("Failed", "NodeCreationFailure")
    assert {one["InstanceId"] for one in eks.nodes()} == before
    eks.cloud.model.clear()
    eks.cloud.clock.move(1)
    eks.api.update_nodegroup_version(**asked)
    for _ in range(8):
        eks.cloud.clock.move(60)
        eks.state("serve")
    assert eks.state("serve") == "ACTIVE"
    assert not before & {one["InstanceId"] for one in eks.nodes()}
    assert len(eks.nodes()) == 2


def _content(**content: Any) -> Any:
    return lambda eks: {"launchTemplate": eks.template(**content), "instanceTypes": None}


REFUSED_GROUPS: Mapping[str, tuple[Any, str, str]] = {
    "a profile in the template": (_content(IamInstanceProfile={"Name": "x"}), "InvalidRequestException", "should not specify an instance profile"),
    "a subnet in the template": (_content(NetworkInterfaces=[{"DeviceIndex": 0, "SubnetId": "subnet-1"}]), "InvalidRequestException", "should not specify a subnet"),
    "a shutdown behaviour": (_content(InstanceInitiatedShutdownBehavior="terminate"), "InvalidRequestException", "shutdown behavior"),
    "a spot request in the template": (_content(InstanceMarketOptions={"MarketType": "spot"}), "InvalidRequestException", "Remove Spot instance requests"),
    "machines twice": (lambda eks: {"launchTemplate": eks.template(InstanceType="p5.48xlarge")}, "InvalidRequestException", "Cannot specify instance types in launch template and API Request"),
    "a block without its template": (lambda _: {"capacityType": "CAPACITY_BLOCK"}, "InvalidParameterException", "needs a launch template"),
    "a block without its reservation": (lambda eks: {"capacityType": "CAPACITY_BLOCK", "instanceTypes": None, "launchTemplate": eks.template(InstanceType="p5.48xlarge", InstanceMarketOptions={"MarketType": "capacity-block"})}, "InvalidParameterException", "its reservation"),
    "a template that is not there": (lambda _: {"launchTemplate": {"id": "lt-0", "version": "1"}}, "InvalidParameterException", "lt-0"),
    "more wanted than at most": (lambda _: {"scalingConfig": {"minSize": 0, "maxSize": 1, "desiredSize": 2}}, "InvalidParameterException", "desired capacity 2 can't be greater than max size 1"),
    "fewer wanted than at least": (lambda _: {"scalingConfig": {"minSize": 3, "maxSize": 4, "desiredSize": 2}}, "InvalidParameterException", "Minimum capacity 3 can't be greater than desired size 2"),
    "newer than the cluster": (lambda _: {"version": "1.36"}, "InvalidParameterException", "does not fit"),
    "a release of another version": (lambda _: {"releaseVersion": "1.34.10-20260903"}, "InvalidParameterException", "Requested release version"),
    "the role of the cluster": (lambda eks: {"nodeRole": eks.roles["cluster"]}, "InvalidParameterException", "Following required service principals"),
    "a subnet of nobody": (lambda _: {"subnets": ["subnet-0"]}, "InvalidParameterException", "subnet-0"),
    "what the sandbox has not": (lambda _: {"remoteAccess": {"ec2SshKey": "k"}}, "UnsupportedOperation", "remoteAccess"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED_GROUPS)
def test_node_group_that_eks_refuses(eks: Eks, case: str) -> None:
    eks.up()
    changes, code, text = REFUSED_GROUPS[case]
    error = error_of(eks.api.create_nodegroup, **eks.group_asked(**changes(eks))).response["Error"]
    assert error["Code"] == code
    assert text in error["Message"]
    assert eks.api.list_nodegroups(clusterName=eks.name)["nodegroups"] == []


def test_user_data_that_is_no_mime_is_found_only_when_nodes_come(eks: Eks) -> None:
    eks.up()
    template = eks.template(UserData="IyEvYmluL3NoCg==")  # a shell script
    eks.group(launchTemplate=template)
    seen = eks.api.describe_nodegroup(clusterName=eks.name, nodegroupName="serve")["nodegroup"]
    assert seen["status"] == "CREATE_FAILED"
    assert seen["health"]["issues"][0]["code"] == "Ec2LaunchTemplateInvalidConfiguration"


@pytest.mark.parametrize("policy", NODE_POLICIES)
def test_nodes_do_not_join_without_a_right_of_their_role(eks: Eks, policy: str) -> None:
    """nodeadm asks EC2 for the name of the node before the kubelet starts, and the kubelet pulls images."""
    iam, arn = eks.cloud.client("iam"), f"arn:aws:iam::aws:policy/{policy}"
    eks.up()
    iam.detach_role_policy(RoleName="node", PolicyArn=arn)
    try:
        eks.group()
    finally:
        iam.attach_role_policy(RoleName="node", PolicyArn=arn)
    seen = eks.api.describe_nodegroup(clusterName=eks.name, nodegroupName="serve")["nodegroup"]
    assert (seen["status"], seen["health"]["issues"][0]["code"]) == ("CREATE_FAILED", "NodeCreationFailure")
    assert seen["health"]["issues"][0]["message"] == "Instances failed to join the kubernetes cluster"


def test_labels_taints_and_size_change_in_place(eks: Eks) -> None:
    eks.up()
    eks.group(labels={"a": "1"}, taints=[{"key": "gpu", "value": "yes", "effect": "NO_SCHEDULE"}])
    before = {one["InstanceId"] for one in eks.nodes()}
    asked = {"clusterName": eks.name, "nodegroupName": "serve"}
    eks.api.update_nodegroup_config(
        **asked,
        labels={"addOrUpdateLabels": {"b": "2"}, "removeLabels": ["a"]},
        taints={
            "addOrUpdateTaints": [],
            "removeTaints": [{"key": "gpu", "value": "yes", "effect": "NO_SCHEDULE"}],
        },
        scalingConfig={"minSize": 1, "maxSize": 3, "desiredSize": 3},
    )
    for _ in range(3):
        eks.cloud.clock.move(120)
        eks.state("serve")
    seen = eks.api.describe_nodegroup(**asked)["nodegroup"]
    assert (seen["labels"], seen["taints"], seen["status"]) == ({"b": "2"}, [], "ACTIVE")
    now = {one["InstanceId"] for one in eks.nodes()}
    assert before < now
    assert len(now) == 3


# --- add-ons ------------------------------------------------------------------------------------


def test_addon_whose_pods_need_nodes_is_degraded_without_them(eks: Eks) -> None:
    eks.up()
    for name in ("coredns", "vpc-cni"):
        eks.api.create_addon(clusterName=eks.name, addonName=name)
    eks.cloud.clock.move(30)

    def seen(name: str) -> dict[str, Any]:
        return eks.api.describe_addon(clusterName=eks.name, addonName=name)["addon"]

    assert (seen("vpc-cni")["status"], seen("coredns")["status"]) == ("ACTIVE", "DEGRADED")
    assert seen("coredns")["health"]["issues"][0]["code"] == "InsufficientNumberOfReplicas"
    eks.group()
    assert seen("coredns")["status"] == "ACTIVE"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"addonName": "kubecost"}, "Addon kubecost specified is not supported in 1.35 kubernetes version"),
        ({"addonVersion": "v9.9.9-eksbuild.1"}, "Addon version specified is not supported"),
        ({"configurationValues": '{"enableNetworkPolicy": true}'}, "[$.enableNetworkPolicy: boolean found, string expected]"),
        ({"configurationValues": "[]"}, "no JSON object"),
        ({"podIdentityAssociations": [{"roleArn": "node", "serviceAccount": "aws-node"}]}, "Trust policy of the role provided is invalid"),
    ],
)  # fmt: skip
def test_addon_that_eks_refuses(eks: Eks, changes: dict[str, Any], text: str) -> None:
    eks.up()
    rows = [{**r, "roleArn": eks.roles[r["roleArn"]]} for r in changes.get("podIdentityAssociations", ())]
    whole = {"clusterName": eks.name, "addonName": "vpc-cni", **changes}
    whole |= {"podIdentityAssociations": rows} if rows else {}
    error = error_of(eks.api.create_addon, **whole).response["Error"]
    assert error["Code"] == "InvalidParameterException"
    assert text in error["Message"]


def test_addon_owns_its_pod_identity(eks: Eks) -> None:
    eks.up()
    row = {"roleArn": eks.roles["pods"], "serviceAccount": "aws-node"}
    arns = eks.api.create_addon(clusterName=eks.name, addonName="vpc-cni", podIdentityAssociations=[row])[
        "addon"
    ]["podIdentityAssociations"]
    asked = {"clusterName": eks.name, "associationId": arns[0].rpartition("/")[2]}
    assert eks.api.describe_pod_identity_association(**asked)["association"]["namespace"] == "kube-system"
    assert code_of(eks.api.delete_pod_identity_association, **asked) == "InvalidRequestException"
    assert (
        code_of(eks.api.create_addon, clusterName=eks.name, addonName="vpc-cni") == "ResourceInUseException"
    )
    eks.cloud.clock.move(30)
    eks.api.delete_addon(clusterName=eks.name, addonName="vpc-cni")
    eks.cloud.clock.move(30)
    assert code_of(eks.api.describe_pod_identity_association, **asked) == "ResourceNotFoundException"


# --- who comes in -------------------------------------------------------------------------------


def test_creator_comes_in_if_the_cluster_says_so(eks: Eks) -> None:
    mode = {"authenticationMode": "API", "bootstrapClusterCreatorAdminPermissions": False}
    eks.up(accessConfig=mode)
    assert eks.api.list_access_entries(clusterName=eks.name)["accessEntries"] == []


def test_access_entry_has_policies_and_a_second_one_is_refused(eks: Eks) -> None:
    eks.up()
    (creator,) = eks.api.list_access_entries(clusterName=eks.name)["accessEntries"]
    assert creator == eks.cloud.api.operator.principal.arn
    asked = {"clusterName": eks.name, "principalArn": ANYBODY}
    assert code_of(eks.api.associate_access_policy, **asked, policyArn=ADMIN, accessScope={"type": "cluster"}) == "ResourceNotFoundException"  # fmt: skip
    eks.api.create_access_entry(**asked, kubernetesGroups=["readers"])
    assert code_of(eks.api.create_access_entry, **asked) == "ResourceInUseException"
    eks.api.associate_access_policy(**asked, policyArn=ADMIN, accessScope={"type": "cluster"})
    (row,) = eks.api.list_associated_access_policies(**asked)["associatedAccessPolicies"]
    assert (row["policyArn"], row["accessScope"]["type"]) == (ADMIN, "cluster")
    eks.api.update_access_entry(**asked, kubernetesGroups=["writers"])
    assert eks.api.describe_access_entry(**asked)["accessEntry"]["kubernetesGroups"] == ["writers"]
    eks.api.delete_access_entry(**asked)
    assert code_of(eks.api.describe_access_entry, **asked) == "ResourceNotFoundException"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"principalArn": "arn:aws:iam::123456789012:role/none"}, "invalid principal"),
        ({"principalArn": "arn:aws:sts::123456789012:assumed-role/node/x"}, "invalid principal"),
        ({"kubernetesGroups": ["system:masters"]}, "system:masters"),
        ({"type": "EC2_LINUX", "kubernetesGroups": ["a"]}, "cannot be specified for type EC2_LINUX"),
    ],
)
def test_access_entry_that_eks_refuses(eks: Eks, changes: dict[str, Any], text: str) -> None:
    eks.up()
    error = error_of(
        eks.api.create_access_entry, **{"clusterName": eks.name, "principalArn": ANYBODY, **changes}
    )
    assert error.response["Error"]["Code"] == "InvalidParameterException"
    assert text in str(error)


def test_service_account_has_one_pod_identity(eks: Eks) -> None:
    eks.up()
    asked = {"clusterName": eks.name, "namespace": "a", "serviceAccount": "b", "roleArn": eks.roles["pods"]}
    made = eks.api.create_pod_identity_association(**asked)["association"]
    again = error_of(eks.api.create_pod_identity_association, **asked)
    assert f"Association already exists: {made['associationId']}" in str(again)
    wrong = error_of(eks.api.create_pod_identity_association, **{**asked, "serviceAccount": "c", "roleArn": eks.roles["node"]})  # fmt: skip
    assert "Trust policy of the role provided is invalid" in str(wrong)


def test_tags_of_everything(eks: Eks) -> None:
    eks.up(tags={"a": "1"})
    arn = eks.api.describe_cluster(name=eks.name)["cluster"]["arn"]
    eks.api.tag_resource(resourceArn=arn, tags={"b": "2"})
    eks.api.untag_resource(resourceArn=arn, tagKeys=["a"])
    assert eks.api.list_tags_for_resource(resourceArn=arn)["tags"] == {"b": "2"}
    assert (
        code_of(eks.api.tag_resource, resourceArn=arn + "x", tags={"b": "2"}) == "ResourceNotFoundException"
    )
    assert code_of(eks.api.tag_resource, resourceArn=arn, tags={"aws:x": "2"}) == "InvalidParameterException"

"""The checks of the cloud side over the sandbox's EC2: each sabotage is found by one check, and its remedy heals it."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from botocore.exceptions import ClientError
from support import builders
from support.aws_cli import AwsCli, aws_cli
from support.aws_plans import LOGIN
from support.cloud_network import make_network
from support.cloud_roles import declare_roles
from support.cloud_stores import make_stores
from support.clouds import REGION, RunningCloud, running_cloud

from gpucluster.checks import daemon_journal
from gpucluster.checks.check import CheckResult, CheckStatus, Location, QueryOutput
from gpucluster.checks.table import CHECKS
from gpucluster.plan import names
from gpucluster.plan.model import Bindings, ImageById, SlurmOnAws
from gpucluster.plan.model.bindings import TemplateBinding
from gpucluster.plan.security_rules import roles, rules
from gpucluster.plan.user_data import encoded, user_data
from gpucluster.sandbox.aws.ec2.state.values import Timing
from gpucluster.validate.cloud_expectations import of_cluster
from gpucluster.validate.cloud_reader import CloudReader, NoCloudError

pytestmark = pytest.mark.loopback
GUARDED = {"HttpEndpoint": "enabled", "HttpTokens": "required", "HttpPutResponseHopLimit": 1}


@pytest.fixture(scope="module")
def cloud() -> Iterator[RunningCloud]:
    with running_cloud(timing=Timing(pending_s=0.0, ending_s=5.0)) as found:
        yield found


@pytest.fixture(scope="module")
def aws(cloud: RunningCloud, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AwsCli]:
    """The real AWS CLI with the operator's key."""
    with aws_cli(cloud, tmp_path_factory.mktemp("home")) as found:
        yield found


@dataclass
class Deployed:
    """A plan's network, groups, templates, head and one node, made as the program makes them."""

    cloud: RunningCloud
    plan: SlurmOnAws
    bindings: Bindings
    vpc: str
    groups: dict[str, str]
    image: str
    head: str = ""
    node: str = ""

    @property
    def ec2(self) -> Any:
        return self.cloud.client("ec2")

    @property
    def subnet(self) -> str:
        return next(iter(self.bindings.subnets.values()))

    def launch(self, **more: Any) -> str:
        made = self.ec2.run_instances(SubnetId=self.subnet, MinCount=1, MaxCount=1, **more)
        return made["Instances"][0]["InstanceId"]

    def launch_head(self, **more: Any) -> str:
        asked: dict[str, Any] = {
            "ImageId": self.image,
            "InstanceType": self.plan.head.machine,
            "SecurityGroupIds": [self.groups[names.ROLE_HEAD]],
            "IamInstanceProfile": {"Name": "burst-head-1234567"},
            "MetadataOptions": GUARDED,
            "BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"Encrypted": True}}],
            "TagSpecifications": tagged(
                Name="burst-head", **{names.TAG_ROLE: "head", names.TAG_CLUSTER: "burst"}
            ),
        }
        return self.launch(**{**asked, **more})

    def launch_node(self, **more: Any) -> str:
        template = next(iter(self.bindings.templates.values()))
        asked: dict[str, Any] = {
            "LaunchTemplate": {"LaunchTemplateId": template.id, "Version": "1"},
            "TagSpecifications": tagged(**node_tags(self.plan)),
        }
        return self.launch(**{**asked, **more})

    def checked(self) -> dict[str, CheckResult]:
        """Run the checks of the cloud side, as a session does. The daemon's journal knows the node."""
        reader = CloudReader("burst", self.cloud.client)
        living = [{"id": self.node, "slot": "h200-2a-1", "age_s": 600.0}]
        journal = json.dumps({"open": [], "launched": [self.node], "living": living})
        found: dict[str, CheckResult] = {}
        for name, want in of_cluster(self.plan, self.bindings):
            check = CHECKS[name]
            got = tuple(
                QueryOutput(code=0, stdout=json.dumps(reader.read(query.argv), default=str))
                if query.at is Location.CLOUD
                else QueryOutput(code=0, stdout=journal if query is daemon_journal.QUERY else self.head)
                for query in check.query(want)
            )
            found[name] = check.evaluate(check.parse(got), want)
        return found


def tagged(**tags: str) -> list[dict[str, Any]]:
    return [{"ResourceType": "instance", "Tags": [{"Key": k, "Value": v} for k, v in tags.items()]}]


def node_tags(plan: SlurmOnAws) -> dict[str, str]:
    return {names.TAG_CLUSTER: "burst", names.TAG_ROLE: "node", names.TAG_POOL: plan.pools[0].name}


def groups_of(ec2: Any, plan: SlurmOnAws, vpc: str) -> dict[str, str]:
    """The plan's groups with its rules alone: the default rule of a new group is removed."""
    made = {
        role: ec2.create_security_group(GroupName=f"burst-{role}-1234567", Description=role, VpcId=vpc)[
            "GroupId"
        ]
        for role in roles(plan)
    }
    for group in made.values():
        default = ec2.describe_security_groups(GroupIds=[group])["SecurityGroups"][0]["IpPermissionsEgress"]
        ec2.revoke_security_group_egress(GroupId=group, IpPermissions=default)
    for rule in rules(plan):
        add = ec2.authorize_security_group_egress if rule.out else ec2.authorize_security_group_ingress
        add(GroupId=made[rule.group], IpPermissions=[permission(rule.ports, rule.peer, made)])
    return made


def permission(ports: tuple[int, int] | None, peer: str, groups: dict[str, str]) -> dict[str, Any]:
    shape: dict[str, Any] = {"IpProtocol": "tcp" if ports else "-1"}
    if ports:
        shape |= {"FromPort": ports[0], "ToPort": ports[1]}
    if peer in groups:
        return {**shape, "UserIdGroupPairs": [{"GroupId": groups[peer]}]}
    return {**shape, "IpRanges": [{"CidrIp": peer}]}


def with_one_interface(plan: SlurmOnAws) -> SlurmOnAws:
    """The same plan without fabric, so that a launch names only the subnet."""
    pools = (
        replace(p, templates=tuple(replace(one, interfaces=()) for one in p.templates)) for p in plan.pools
    )
    return replace(plan, pools=tuple(pools))


@pytest.fixture
def burst(cloud: RunningCloud) -> Deployed:
    plan, ec2 = with_one_interface(builders.a_plan()), cloud.fresh().client("ec2")
    network = make_network(cloud, plan)
    vpc, subnets = network.vpc, network.private
    groups = groups_of(ec2, plan, vpc)
    image = cloud.api.moto.register_image("gpucluster-ubuntu-24.04-slurm-24.11")
    made = make_stores(cloud, "burst")
    bindings = Bindings(
        schema=1, region=REGION, bucket=made.bucket, secret=made.secret, queue=made.queue, subnets=subnets, templates={},
        groups={names.ROLE_NODE: groups[names.ROLE_NODE]},
    )  # fmt: skip
    declare_roles(cloud, plan, bindings)
    templates: dict[str, TemplateBinding] = {}
    for pool in plan.pools:
        for one in pool.templates:
            told = user_data(
                cluster="burst", region=plan.aws.region, bucket=made.bucket, role=names.ROLE_NODE
            )
            data: dict[str, Any] = {
                "ImageId": image,
                "InstanceType": one.machine,
                "UserData": encoded(told),
                "SecurityGroupIds": [groups[names.ROLE_NODE]],
                "IamInstanceProfile": {"Name": "burst-node-1234567"},
                "InstanceInitiatedShutdownBehavior": "terminate",
                "MetadataOptions": GUARDED,
                "BlockDeviceMappings": [
                    {"DeviceName": "/dev/xvda", "Ebs": {"Encrypted": True, "VolumeSize": one.root_gib}}
                ],
            }
            launch = ec2.create_launch_template(
                LaunchTemplateName=f"{one.key}-{vpc}", LaunchTemplateData=data
            )
            templates[one.key] = TemplateBinding(id=launch["LaunchTemplate"]["LaunchTemplateId"], version=1)
    bindings = replace(bindings, templates=templates)
    found = Deployed(cloud, plan, bindings, vpc, groups, image)
    found.head, found.node = found.launch_head(), found.launch_node()
    return found


def unhealthy(found: dict[str, CheckResult]) -> dict[str, CheckResult]:
    return {name: result for name, result in found.items() if result.verdict is not CheckStatus.PASS}


def test_healthy_cluster_passes(burst: Deployed) -> None:
    found = burst.checked()
    assert {name: result.verdict for name, result in found.items()} == {
        "cloud.orphans": CheckStatus.PASS,
        "cloud.journal": CheckStatus.PASS,
        "cloud.machines": CheckStatus.PASS,
        "cloud.images": CheckStatus.PASS,
        "cloud.templates": CheckStatus.PASS,
        "cloud.rules": CheckStatus.PASS,
        "cloud.network": CheckStatus.PASS,
        "cloud.bucket": CheckStatus.PASS,
        "cloud.queue": CheckStatus.PASS,
        "cloud.secret": CheckStatus.PASS,
        "cloud.roles": CheckStatus.PASS,
    }
    assert found["cloud.machines"].found == "1 machines and 1 nodes"
    assert found["cloud.images"].found == "1 images"
    assert found["cloud.templates"].found == "3 launch templates"
    assert found["cloud.rules"].found == f"{len(rules(burst.plan))} rules"


Do = Callable[[Deployed], object]


def hops(of: str) -> Do:
    return lambda b: b.ec2.modify_instance_metadata_options(
        InstanceId=getattr(b, of), HttpPutResponseHopLimit=2, HttpTokens="optional"
    )


def opened(b: Deployed, *, out: bool = False, **more: Any) -> None:
    rule = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "0.0.0.0/0"}], **more}
    add = b.ec2.authorize_security_group_egress if out else b.ec2.authorize_security_group_ingress
    add(GroupId=b.groups[names.ROLE_HEAD], IpPermissions=[rule])


def untag(of: str, key: str) -> Do:
    return lambda b: b.ec2.delete_tags(Resources=[getattr(b, of)], Tags=[{"Key": key}])


def foreign_node(b: Deployed) -> None:
    """The head's kind of launch, with a node's tags; the journal knows it."""
    b.ec2.terminate_instances(InstanceIds=[b.node])
    b.node = b.launch_head(TagSpecifications=tagged(**node_tags(b.plan)))


def newer_node(b: Deployed) -> None:
    template = next(iter(b.bindings.templates.values())).id
    (first,) = b.ec2.describe_launch_template_versions(LaunchTemplateId=template)["LaunchTemplateVersions"]
    data = {**first["LaunchTemplateData"], "EbsOptimized": True}
    b.ec2.create_launch_template_version(LaunchTemplateId=template, LaunchTemplateData=data)
    plain = [{"DeviceName": "/dev/xvda", "Ebs": {"Encrypted": False}}]
    b.ec2.terminate_instances(InstanceIds=[b.node])
    b.node = b.launch_node(
        LaunchTemplate={"LaunchTemplateId": template, "Version": "2"}, BlockDeviceMappings=plain
    )


def other_image(b: Deployed) -> None:
    """The plan's template, but with an image by hand in the call."""
    b.ec2.terminate_instances(InstanceIds=[b.node])
    b.node = b.launch_node(ImageId=b.cloud.api.moto.register_image("by-hand"))


def plain_volume(b: Deployed) -> None:
    """V6: its remedy was `pulumi up`, which changes no volume that it did not make."""
    (described,) = b.ec2.describe_instances(InstanceIds=[b.head])["Reservations"][0]["Instances"]
    zone = described["Placement"]["AvailabilityZone"]
    volume = b.ec2.create_volume(AvailabilityZone=zone, Size=1, Encrypted=False)["VolumeId"]
    b.ec2.attach_volume(VolumeId=volume, InstanceId=b.head, Device="/dev/sdz")


SABOTAGES: dict[str, tuple[str, Do, str]] = {
    "hop limit 2 on a node": ("cloud.machines", hops("node"), "NODE: metadata service enabled, tokens optional, hop limit 2"),
    "hop limit 2 on the head": ("cloud.machines", hops("head"), r"burst-head \(HEAD\): metadata service enabled, tokens optional, hop limit 2"),
    "the head has lost its role": ("cloud.machines", untag("head", names.TAG_ROLE), r"burst-head \(HEAD\) has the role none"),
    "a node has lost its pool": ("cloud.machines", untag("node", names.TAG_POOL), "NODE has the pool none"),
    "a node is stopped": ("cloud.machines", lambda b: b.ec2.stop_instances(InstanceIds=[b.node]), "NODE is stopp"),
    "a node of another template": ("cloud.machines", foreign_node, "i-[0-9a-f]+ is of no launch template of the plan"),
    "a node of a newer version of the template": ("cloud.machines", newer_node, "i-[0-9a-f]+ is of version 2 of its launch template, not 1"),
    "a node with a volume in plain text": ("cloud.machines", newer_node, "has volumes without encryption: vol-"),
    "a volume by hand in plain text on the head": ("cloud.machines", plain_volume, r"burst-head \(HEAD\) has a volume without encryption that is not of the plan: vol-"),
    "a node in the head's group": ("cloud.machines", lambda b: b.ec2.modify_instance_attribute(InstanceId=b.node, Groups=[b.groups["head"]]), "NODE has the groups burst-head-1234567"),
    "a group open to the world": ("cloud.rules", opened, r"head from 0.0.0.0/0: tcp 22-22 is not of the plan \(sgr-[0-9a-f]+\)"),
    "a group open to the world over UDP": ("cloud.rules", lambda b: opened(b, IpProtocol="udp"), "head from 0.0.0.0/0: udp 22-22 is not of the plan"),
    "a rule by hand for outgoing traffic": ("cloud.rules", lambda b: opened(b, out=True), "head to 0.0.0.0/0: tcp 22-22 is not of the plan"),
    "a node of another image": ("cloud.machines", other_image, "i-[0-9a-f]+ is of the image by-hand, not gpucluster-"),
    "the cluster tag of a node removed": ("cloud.orphans", untag("node", names.TAG_CLUSTER), r"NODE \(of the daemon, without the tag gpucluster:cluster\)"),
    "the head ends with its system": ("cloud.machines", lambda b: b.ec2.modify_instance_attribute(InstanceId=b.head, InstanceInitiatedShutdownBehavior={"Value": "terminate"}), r"burst-head \(HEAD\) ends when its system shuts down \(terminate\)"),
    "the role tag of a node removed": ("cloud.orphans", untag("node", names.TAG_ROLE), r"^without an owner: NODE \(of the daemon, its gpucluster:role is none, not node\)$"),
    "another role of a node": ("cloud.orphans", lambda b: b.ec2.create_tags(Resources=[b.node], Tags=[{"Key": names.TAG_ROLE, "Value": "login"}]), r"NODE \(of the daemon, its gpucluster:role is login, not node\)"),
}  # fmt: skip


@pytest.mark.parametrize(("check", "do", "words"), SABOTAGES.values(), ids=SABOTAGES)
def test_sabotage_is_found_by_one_check_whose_remedy_heals_it(
    aws: AwsCli, burst: Deployed, check: str, do: Do, words: str
) -> None:
    do(burst)
    bad = unhealthy(burst.checked())
    assert list(bad) == [check]
    result = bad[check]
    assert re.search(words.replace("NODE", burst.node).replace("HEAD", burst.head), result.found), (
        result.found
    )
    for step in result.remedy.split("; "):
        aws.typed(step)
    assert unhealthy(burst.checked()) == {}


def test_image_that_no_node_can_be_launched_from_is_found(burst: Deployed) -> None:
    """V2: the image was deregistered, and every check passed until the next node was launched."""
    burst.ec2.deregister_image(ImageId=burst.image)
    bad = unhealthy(burst.checked())
    assert list(bad) == ["cloud.images"]
    name = "gpucluster-ubuntu-24.04-slurm-24.11"
    assert bad["cloud.images"].found == (
        f"the image {name} ({burst.image}) of the launch templates of h200 does not exist: no node can be launched"
    )
    assert bad["cloud.images"].remedy.endswith("then pulumi up --stack burst")
    with pytest.raises(ClientError, match=r"InvalidAMIID\.NotFound"):
        burst.launch_node()


def test_launch_template_with_another_image_is_found(burst: Deployed) -> None:
    plan = replace(burst.plan, image=ImageById(os="ubuntu-24.04", id="ami-00000000000000001"))
    found = replace(burst, plan=plan).checked()["cloud.images"]
    assert found.found.endswith(f"({burst.image}), not ami-00000000000000001")


def test_node_without_its_role_is_compared_with_the_plan(aws: AwsCli, burst: Deployed) -> None:
    """Regression: without the tag a node with an open metadata service passed every check."""
    untag("node", names.TAG_ROLE)(burst)
    hops("node")(burst)
    bad = unhealthy(burst.checked())
    assert list(bad) == ["cloud.orphans", "cloud.machines"]
    assert bad["cloud.machines"].found.startswith(f"{burst.node}: metadata service enabled, tokens optional")
    for result in bad.values():
        aws.typed(result.remedy)
    assert unhealthy(burst.checked()) == {}


def test_head_without_tags_is_not_taken_for_a_node(burst: Deployed) -> None:
    """A node of no launch template is terminated by its remedy; the head is not."""
    for key in ("Name", names.TAG_ROLE):
        untag("head", key)(burst)
    result = burst.checked()["cloud.machines"]
    assert (result.found, result.remedy) == ("burst-head is missing", PULUMI)


PULUMI = "pulumi up --refresh --stack burst"


def revoke(b: Deployed) -> None:
    rule = next(r for r in rules(b.plan) if r.name == "head-controller")
    shape = permission(rule.ports, rule.peer, b.groups)
    b.ec2.revoke_security_group_ingress(GroupId=b.groups[rule.group], IpPermissions=[shape])


def last_template(b: Deployed) -> str:
    return max(b.bindings.templates.items())[1].id


def by_hand(**change: Any) -> Do:
    """The bindings name a version that is not of the program."""

    def do(b: Deployed) -> None:
        key, bound = max(b.bindings.templates.items())
        (first,) = b.ec2.describe_launch_template_versions(LaunchTemplateId=bound.id)[
            "LaunchTemplateVersions"
        ]
        data = {**first["LaunchTemplateData"], **change}
        b.ec2.create_launch_template_version(LaunchTemplateId=bound.id, LaunchTemplateData=data)
        b.bindings = replace(b.bindings, templates={**b.bindings.templates, key: replace(bound, version=2)})

    return do


def unbound(b: Deployed) -> None:
    key, _ = max(b.bindings.templates.items())
    b.bindings = replace(
        b.bindings, templates={k: one for k, one in b.bindings.templates.items() if k != key}
    )


def root(**ebs: Any) -> list[dict[str, Any]]:
    return [{"DeviceName": "/dev/xvda", "Ebs": {"Encrypted": True, "VolumeSize": 100, **ebs}}]


VERSION_2 = r"^version 2 of the launch template lt-[0-9a-f]+ \(h200, p5en?.48xlarge\) "
OF_PULUMI: dict[str, tuple[str, Do, str]] = {
    "the head is missing": ("cloud.machines", lambda b: b.ec2.terminate_instances(InstanceIds=[b.head]), "burst-head is missing"),
    "the head in the nodes' group": ("cloud.machines", lambda b: b.ec2.modify_instance_attribute(InstanceId=b.head, Groups=[b.groups["node"]]), r"burst-head \(HEAD\) has the groups burst-node-1234567"),
    "a template has no binding": ("cloud.templates", unbound, r"^the bindings name no launch template of h200 with p5en?.48xlarge \(spot\): the daemon cannot launch it$"),
    "a template of another machine": ("cloud.templates", by_hand(InstanceType="m7i.large"), VERSION_2 + "launches m7i.large$"),
    "a template with a key": ("cloud.templates", by_hand(KeyName="ada"), VERSION_2 + "has KeyName, which the plan has not$"),
    "a template with an end by hand": ("cloud.templates", by_hand(DisableApiTermination=True), VERSION_2 + "has DisableApiTermination, which the plan has not$"),
    "a template that stops": ("cloud.templates", by_hand(InstanceInitiatedShutdownBehavior="stop"), VERSION_2 + "has the shutdown behaviour stop, not terminate$"),
    "a template with an open metadata service": ("cloud.templates", by_hand(MetadataOptions={**GUARDED, "HttpPutResponseHopLimit": 2}), VERSION_2 + "has the metadata service enabled, tokens required, hop limit 2$"),
    "a template with other user data": ("cloud.templates", by_hand(UserData=encoded("#!/bin/sh")), VERSION_2 + "has other user data$"),
    "a template in another group": ("cloud.templates", lambda b: by_hand(SecurityGroupIds=[b.groups["head"]])(b), VERSION_2 + "has the groups sg-[0-9a-f]+$"),
    "a template with another profile": ("cloud.templates", by_hand(IamInstanceProfile={"Name": "burst-head-1234567"}), VERSION_2 + "has the instance profile burst-head-1234567$"),
    "a template with a volume in plain text": ("cloud.templates", by_hand(BlockDeviceMappings=root(Encrypted=False)), VERSION_2 + "has volumes without encryption: /dev/xvda$"),
    "a template with a small volume": ("cloud.templates", by_hand(BlockDeviceMappings=root(VolumeSize=8)), VERSION_2 + "has a root volume of 8 GiB, not 100$"),
    "a launch template is gone": ("cloud.templates", lambda b: b.ec2.delete_launch_template(LaunchTemplateId=last_template(b)), r"version 1 of the launch template lt-[0-9a-f]+ \(h200, .*\) is gone"),
    "a rule is missing": ("cloud.rules", revoke, "head from node: tcp 6817 is missing"),
}  # fmt: skip


@pytest.mark.parametrize(("check", "do", "words"), OF_PULUMI.values(), ids=OF_PULUMI)
def test_drift_of_pulumis_own_resource_is_healed_by_pulumi(
    burst: Deployed, check: str, do: Do, words: str
) -> None:
    do(burst)
    result = burst.checked()[check]
    assert (result.verdict, result.remedy) == (CheckStatus.FAIL, PULUMI)
    assert re.search(words.replace("HEAD", burst.head), result.found), result.found


def test_login_machine_without_its_address_is_found(burst: Deployed) -> None:
    """Regression: nobody reached the login machine by the name that they know, and everything was healthy."""
    burst.plan = replace(
        burst.plan, login=LOGIN, access=replace(burst.plan.access, ssh_from=("192.0.2.0/24",))
    )
    tags = tagged(Name="burst-login-1", **{names.TAG_ROLE: "login", names.TAG_CLUSTER: "burst"})
    machine = burst.launch_head(InstanceType=LOGIN.machine, TagSpecifications=tags)
    of_cluster_tag = [{"Key": names.TAG_CLUSTER, "Value": "burst"}]
    address = burst.ec2.allocate_address(
        Domain="vpc", TagSpecifications=[{"ResourceType": "elastic-ip", "Tags": of_cluster_tag}]
    )["AllocationId"]
    words = f"burst-login-1 ({machine}) has lost its Elastic IP address"
    assert words in burst.checked()["cloud.machines"].found
    joined = burst.ec2.associate_address(InstanceId=machine, AllocationId=address)["AssociationId"]
    assert words not in burst.checked()["cloud.machines"].found
    burst.ec2.disassociate_address(AssociationId=joined)
    result = burst.checked()["cloud.machines"]
    assert words in result.found
    assert PULUMI in result.remedy
    burst.plan = replace(burst.plan, access=replace(burst.plan.access, ssh_from=()))
    assert words not in burst.checked()["cloud.machines"].found


def test_stopped_head_is_started_by_its_remedy(aws: AwsCli, burst: Deployed) -> None:
    burst.ec2.stop_instances(InstanceIds=[burst.head])
    burst.cloud.clock.move(60)
    result = burst.checked()["cloud.machines"]
    assert result.found == f"burst-head ({burst.head}) is stopped"
    aws.typed(result.remedy)
    assert unhealthy(burst.checked()) == {}


def test_foreign_instance_in_the_vpc_is_an_orphan(aws: AwsCli, burst: Deployed) -> None:
    """Instances were listed by the cluster's tag alone."""
    plain = burst.launch(ImageId=burst.image, InstanceType="m7i.large")
    other = burst.launch(
        ImageId=burst.image, InstanceType="m7i.large", TagSpecifications=tagged(**{names.TAG_CLUSTER: "lab"})
    )
    bad = unhealthy(burst.checked())
    assert list(bad) == ["cloud.orphans"]
    assert f"{plain} (in the network, without the tag gpucluster:cluster)" in bad["cloud.orphans"].found
    assert f"{other} (in the network, of the cluster lab)" in bad["cloud.orphans"].found
    for one in (plain, other):
        aws.typed(CHECKS["cloud.orphans"].remedy.rpartition("owner: ")[2].replace("ID", one))
    assert unhealthy(burst.checked()) == {}


def test_node_that_ended_while_the_daemon_did_not_look_is_in_the_journal_alone(burst: Deployed) -> None:
    """A node that only stops or shuts down is not yet one: the daemon sees its end."""
    burst.ec2.terminate_instances(InstanceIds=[burst.node])
    assert unhealthy(burst.checked()) == {}
    burst.cloud.clock.move(60)
    bad = unhealthy(burst.checked())
    assert list(bad) == ["cloud.journal"]
    assert bad["cloud.journal"].found == f"h200-2a-1 ({burst.node}) is terminated"
    assert bad["cloud.journal"].remedy == CHECKS["cloud.journal"].remedy
    node, burst.node = burst.node, "i-0123456789abcdef0"
    assert (
        unhealthy(burst.checked())["cloud.journal"].found == f"h200-2a-1 ({burst.node}) is not listed by EC2"
    )
    burst.node = node


def test_list_that_ec2_refuses_is_an_error() -> None:
    with pytest.raises(NoCloudError, match="there is no access to AWS"):
        CloudReader("burst", None).read()
    with pytest.raises(NoCloudError, match="EC2 does not list volumes: ZeroDivisionError"):
        CloudReader("burst", lambda _: 1 / 0).read(("volumes", "cluster=burst"))

"""The whole program through the real engine and the stand-in provider.

Each test covers a whole scenario, because it creates 70 resources (3 s) and deletes them.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pulumi
import pulumi_aws as aws
import pytest
from support.builders import a_plan
from support.downs import emptied
from support.engine_stack import REGION, Cluster, a_place
from support.leftovers import await_none, pulumis_of

from gpucluster.artifacts import unpack
from gpucluster.checks.check import QueryOutput
from gpucluster.checks.table import CHECKS
from gpucluster.cloud.aws import AwsCloud
from gpucluster.cloud.control import S3Control
from gpucluster.cloud.port import LaunchCall, LaunchSpec
from gpucluster.engine import offline, run, user
from gpucluster.engine.events import Outcome, Progress
from gpucluster.engine.target import environment
from gpucluster.errors import GpuclusterError, StateError
from gpucluster.plan import codec
from gpucluster.plan.model import Bindings, ImageByName, Market
from gpucluster.plan.names import ROLE_NODE, TAG_CLUSTER, TAG_ROLE
from gpucluster.sandbox.provider.table import TYPES
from gpucluster.validate.cloud_expectations import of_cluster
from gpucluster.validate.cloud_reader import CloudReader

# the SDK drops the coroutines of a failed program
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def found(outcome: Outcome) -> list[tuple[str, str, str, tuple[str, ...]]]:
    """Return own changes; dependent changes are checked separately."""
    return [(c.op, c.type.rpartition(":")[2], c.name, c.properties) for c in outcome.changes if not c.follows]


def following(outcome: Outcome) -> list[str]:
    return [c.name for c in outcome.changes if c.follows]


def open_a_group(cluster: Cluster) -> None:
    ec2 = cluster.client("ec2")
    named = [{"Name": "group-name", "Values": ["burst-head-*"]}]
    (group,) = ec2.describe_security_groups(Filters=named)["SecurityGroups"]
    rule = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
    ec2.authorize_security_group_ingress(GroupId=group["GroupId"], IpPermissions=[rule])


def rules_in_state(cluster: Cluster) -> list[dict[str, Any]]:
    """The rules of the head's group as the last refresh read them."""
    deployed = run.deployed_resources(cluster.target)
    (group,) = [
        s for s in deployed if (s.type, s.name) == ("aws:ec2/securityGroup:SecurityGroup", "burst-head")
    ]
    return group.outputs["ingress"]


def differences(cluster: Cluster) -> dict[str, str]:
    """What `validate` finds in the cloud, but for the daemon's instances: the program's own work is no difference."""
    reader = CloudReader("burst", cluster.client)
    results: dict[str, str] = {}
    for name, want in of_cluster(cluster.plan, bindings(cluster)):
        check = CHECKS[name]
        if name not in ("cloud.orphans", "cloud.journal"):
            answers = (json.dumps(reader.read(query.argv), default=str) for query in check.query(want))
            got = tuple(QueryOutput(code=0, stdout=text) for text in answers)
            result = check.evaluate(check.parse(got), want)
            results |= {} if result.is_healthy else {name: result.found}
    return results


def delete_a_rule(cluster: Cluster) -> None:
    ec2 = cluster.client("ec2")
    rules = ec2.describe_security_group_rules()["SecurityGroupRules"]
    (rule,) = [r for r in rules if r.get("FromPort") == 6890]
    ec2.revoke_security_group_ingress(
        GroupId=rule["GroupId"], SecurityGroupRuleIds=[rule["SecurityGroupRuleId"]]
    )


def change_a_tag(cluster: Cluster) -> None:
    (subnet,) = cluster.client("ec2").describe_subnets(
        Filters=[{"Name": "tag:Name", "Values": ["burst-us-east-2b"]}]
    )["Subnets"]
    tag = {"Key": "Name", "Value": "someone-was-here"}
    cluster.client("ec2").create_tags(Resources=[subnet["SubnetId"]], Tags=[tag])


def edit_a_template(cluster: Cluster) -> None:
    ec2 = cluster.client("ec2")
    template = bindings(cluster).templates["h200-on-demand-p5en.48xlarge"].id
    latest = ec2.describe_launch_template_versions(LaunchTemplateId=template, Versions=["$Latest"])
    content = latest["LaunchTemplateVersions"][0]["LaunchTemplateData"]
    ec2.create_launch_template_version(
        LaunchTemplateId=template, LaunchTemplateData={**content, "KeyName": "someones-key"}
    )


def change_the_heads_volume(cluster: Cluster) -> None:
    ec2 = cluster.client("ec2")
    (volume,) = ec2.describe_volumes(Filters=[{"Name": "tag:Name", "Values": ["burst-head"]}])["Volumes"]
    ec2.modify_volume(VolumeId=volume["VolumeId"], VolumeType="io2")


def bindings(cluster: Cluster) -> Bindings:
    s3 = cluster.client("s3")
    bucket = next(s.id for s in run.deployed_resources(cluster.target) if s.type == "aws:s3/bucket:Bucket")
    body = s3.get_object(Bucket=bucket, Key="bundle.tar.gz")["Body"].read()
    files = {a.path: a.content for a in unpack(body)}
    return codec.loads(Bindings, files["bindings.json"])


RULE = ("SecurityGroupIngressRule", "burst-head-registration", ())
TAG = ("Subnet", "burst-us-east-2b", ("tags", "tagsAll"))
VOLUME = ("Instance", "burst-head", ("rootBlockDevice",))
TEMPLATE = ("LaunchTemplate", "burst-h200-on-demand-p5en.48xlarge", ("keyName",))


def test_only_drift_is_shown_and_destroy_removes_everything(cluster: Cluster) -> None:
    made = cluster.up()
    assert dict(made.counts) == {"create": 70}
    assert codec.loads(Bindings, made.outputs["bindings"]) == bindings(cluster)
    assert sorted(made.outputs) == sorted(offline.run("gpucluster.aws.program:declare", cluster.plan).outputs)
    for verb in (cluster.preview, cluster.refresh, cluster.preview):
        assert found(verb()) == [], f"{verb.__name__}: nothing was changed"
    assert_tagged(cluster)
    assert differences(cluster) == {}
    open_a_group(cluster)
    assert found(run.preview_refreshed(cluster.target, cluster.program)) == [], "decision 0008"
    assert list(differences(cluster)) == ["cloud.rules"]
    delete_a_rule(cluster)
    assert found(cluster.refresh()) == [("delete", *RULE)]
    assert ["0.0.0.0/0"] in [rule["cidrBlocks"] for rule in rules_in_state(cluster)], "an output only"
    change_a_tag(cluster)
    assert found(cluster.refresh()) == [("update", *TAG)]
    edit_a_template(cluster)
    change_the_heads_volume(cluster)  # in place: a new disk size must not replace the head
    wanted = [("update", *VOLUME), ("update", *TAG), ("create", *RULE), ("update", *TEMPLATE)]
    seen = run.preview_refreshed(cluster.target, cluster.program)
    assert (found(seen), following(seen)) == (wanted, ["burst-bundle"]), "the bundle names the mended version"
    assert found(cluster.refresh()) == [("update", *VOLUME), ("update", *TEMPLATE)]
    assert found(cluster.preview()) == wanted
    cluster.up()
    assert found(cluster.preview()) == [], "mended"
    assert bindings(cluster).templates["h200-on-demand-p5en.48xlarge"].version == 3
    assert dict(cluster.destroy().counts) == {"delete": 70}
    assert_empty(cluster)
    assert cluster.destroy().changes == (), "the second time there is nothing to do"


def assert_tagged(cluster: Cluster) -> None:
    """Every taggable resource has the cluster's tag in the cloud, including the head's volume."""
    carriers = [s for s in run.deployed_resources(cluster.target) if TYPES[s.type].tagged]
    assert len(carriers) == 40
    assert [s.name for s in carriers if s.outputs["tagsAll"].get("gpucluster:cluster") != "burst"] == []
    (head,) = [s for s in carriers if s.type == "aws:ec2/instance:Instance"]
    where = [{"Name": "attachment.instance-id", "Values": [head.id]}]
    for volume in cluster.client("ec2").describe_volumes(Filters=where)["Volumes"]:
        assert {"Key": "gpucluster:cluster", "Value": "burst"} in volume["Tags"]


def assert_empty(cluster: Cluster) -> None:
    ec2 = cluster.client("ec2")
    assert [v for v in ec2.describe_vpcs()["Vpcs"] if v["CidrBlock"] == "10.42.0.0/16"] == []
    states = {i["State"]["Name"] for r in ec2.describe_instances()["Reservations"] for i in r["Instances"]}
    assert states <= {"terminated"}
    assert ec2.describe_launch_templates()["LaunchTemplates"] == []
    assert cluster.client("s3").list_buckets()["Buckets"] == []
    assert cluster.client("secretsmanager").list_secrets()["SecretList"] == []
    iam = cluster.client("iam")
    assert (iam.list_roles()["Roles"], iam.list_instance_profiles()["InstanceProfiles"]) == ([], [])
    assert {e["State"] for e in ec2.describe_vpc_endpoints()["VpcEndpoints"]} <= {"deleted"}


def test_a_secret_input_stays_a_secret_in_the_state(cluster: Cluster) -> None:
    def program() -> None:
        provider = aws.Provider("aws", region=REGION)
        aws.secretsmanager.Secret(
            "one",
            description=pulumi.Output.secret("a-secret"),
            opts=pulumi.ResourceOptions(provider=provider),
        )

    run.up(cluster.target, program)
    (stack,) = (cluster.target.backend / ".pulumi" / "stacks").rglob("burst.json")
    assert "a-secret" not in stack.read_text()
    (made,) = cluster.client("secretsmanager").list_secrets()["SecretList"]
    assert made["Description"] == "a-secret"


def test_twelve_site_tags(cluster: Cluster) -> None:
    """An S3 object takes ten: with default tags on the bundle the first `pulumi up` failed."""
    twelve = ", ".join(f"site-{number}: yes-{number}" for number in range(12))
    tagged = replace(
        cluster, plan=a_plan(("  region: us-east-2\n", f"  region: us-east-2\n  tags: {{{twelve}}}\n"))
    )
    tagged.up()
    assert found(tagged.preview()) == []
    bucket = next(s for s in run.deployed_resources(cluster.target) if s.type == "aws:s3/bucket:Bucket")
    assert len(bucket.outputs["tagsAll"]) == 13
    (tag,) = cluster.client("s3").get_object_tagging(Bucket=bucket.id, Key="bundle.tar.gz")["TagSet"]
    assert tag == {"Key": "gpucluster:cluster", "Value": "burst"}


DATA_TAGS = {"Name": "data", "gpucluster:cluster": "burst"}


def a_machine_with_data(disk: Callable[[], dict[str, Any]]) -> Callable[[], None]:
    """Return a program: a machine, and a data disk of another resource that is attached to it."""

    def program() -> None:
        provider = aws.Provider("aws", region=REGION, default_tags={"tags": {"gpucluster:cluster": "burst"}})
        options = pulumi.ResourceOptions(provider=provider)
        found = aws.ec2.get_ami_output(
            owners=["self"],
            filters=[{"name": "name", "values": ["gpucluster-*"]}],
            opts=pulumi.InvokeOutputOptions(provider=provider),
        )
        vpc = aws.ec2.Vpc("one", cidr_block="10.1.0.0/16", enable_dns_hostnames=True, opts=options)
        zone = f"{REGION}a"
        subnet = aws.ec2.Subnet(
            "one", vpc_id=vpc.id, cidr_block="10.1.0.0/24", availability_zone=zone, opts=options
        )
        machine = aws.ec2.Instance(
            "one", ami=found.image_id, instance_type="m7i.large", subnet_id=subnet.id, opts=options, **disk()
        )
        data = aws.ebs.Volume(
            "data", availability_zone=zone, size=1, type="gp3", tags={"Name": "data"}, opts=options
        )
        aws.ec2.VolumeAttachment(
            "data", instance_id=machine.id, volume_id=data.id, device_name="/dev/xvdba", opts=options
        )

    return program


def tags_of_data_disk(cluster: Cluster) -> dict[str, str]:
    where = [{"Name": "size", "Values": ["1"]}]
    (volume,) = cluster.client("ec2").describe_volumes(Filters=where)["Volumes"]
    return {t["Key"]: t["Value"] for t in volume["Tags"]}


def test_t17_volume_tags_with_a_default_tag_never_settle(cluster: Cluster) -> None:
    """The reason why the program sets `root_block_device.tags` (hashicorp/terraform-provider-aws#36448)."""
    tags = {"Name": "one", "gpucluster:cluster": "burst"}
    program = a_machine_with_data(lambda: {"root_block_device": {"encrypted": True}, "volume_tags": tags})
    run.up(cluster.target, program)
    assert tags_of_data_disk(cluster) == DATA_TAGS
    again = ("update", "Instance", "one", ("volumeTags",))
    for _ in range(2):
        run.refresh(cluster.target, program)
        assert again in found(run.preview(cluster.target, program))
        run.up(cluster.target, program)
    assert tags_of_data_disk(cluster)["Name"] == "one", "the update wrote onto the data disk"


def test_t17_tags_of_the_root_volume_settle(cluster: Cluster) -> None:
    root = {"encrypted": True, "tags": {"Name": "one"}}
    program = a_machine_with_data(lambda: {"root_block_device": root})
    run.up(cluster.target, program)
    for verb in (run.refresh, run.preview):
        assert found(verb(cluster.target, program)) == []
    where = [{"Name": "attachment.device", "Values": ["/dev/xvda"]}]
    (volume,) = cluster.client("ec2").describe_volumes(Filters=where)["Volumes"]
    assert {t["Key"]: t["Value"] for t in volume["Tags"]} == {"Name": "one", "gpucluster:cluster": "burst"}
    assert tags_of_data_disk(cluster) == DATA_TAGS


def unknown_type(options: pulumi.ResourceOptions) -> None:
    aws.ec2.VpnGateway("vpn", opts=options)


def unknown_property(options: pulumi.ResourceOptions) -> None:
    aws.ec2.Vpc("vpc", cidr_block="10.0.0.0/16", ipv6_cidr_block="::/56", opts=options)


def unknown_source(options: pulumi.ResourceOptions) -> None:
    aws.ec2.get_vpcs_output(opts=pulumi.InvokeOutputOptions(provider=options.provider))


def keys_in_the_state(_: pulumi.ResourceOptions) -> None:
    aws.Provider("other", region=REGION, secret_key="s")


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (unknown_type, "does not know the resource type 'aws:ec2/vpnGateway:VpnGateway'"),
        (unknown_property, "does not know 'ipv6CidrBlock' of aws:ec2/vpc:Vpc"),
        (unknown_source, "unknown data source 'aws:ec2/getVpcs:getVpcs'"),
        (keys_in_the_state, "keys come from the environment"),
    ],
)
def test_unsupported_resource_is_rejected_by_name(
    cluster: Cluster, declare: Callable[[pulumi.ResourceOptions], None], message: str
) -> None:
    def program() -> None:
        declare(pulumi.ResourceOptions(provider=aws.Provider("aws", region=REGION)))

    with pytest.raises(GpuclusterError) as caught:
        run.preview(cluster.target, program)
    assert message in str(caught.value)


def test_refusal_is_reported_and_next_up_continues(cluster: Cluster) -> None:
    image = ImageByName(os="ubuntu-24.04", name="gpucluster-slurm-0.0")
    spoilt = replace(cluster, plan=replace(cluster.plan, image=image))
    with pytest.raises(
        GpuclusterError, match=r"no machine image fits name=gpucluster-slurm-0\.0 owners=self in us-east-2"
    ):
        spoilt.up()
    assert cluster.up().outputs["head"].startswith("i-")
    assert found(cluster.preview()) == []


def test_prepaid_capacity_is_in_template(cluster: Cluster) -> None:
    ahead = "      - {from: reservation, id: cr-0123456789abcdef0, machines: [p5en.48xlarge], zones: [us-east-2a]}\n"
    prepaid = replace(cluster, plan=a_plan(("    capacity:\n", f"    capacity:\n{ahead}")))
    prepaid.up()
    versions = prepaid.client("ec2").describe_launch_template_versions(Versions=["$Latest"])
    targets = [
        v["LaunchTemplateData"].get("CapacityReservationSpecification")
        for v in versions["LaunchTemplateVersions"]
    ]
    target = {"CapacityReservationTarget": {"CapacityReservationId": "cr-0123456789abcdef0"}}
    assert [one for one in targets if one] == [target]
    assert found(prepaid.preview()) == []


def test_user_stack_is_read_and_destroyed(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the user's project and environment by hand."""
    cluster.up()
    for name, value in environment(cluster.target).items():
        monkeypatch.setenv(name, value)
    work_dir = cluster.target.work_dir
    assert len(user.deployed_resources(work_dir, "burst", cluster.target.pulumi)) == 60
    with pytest.raises(StateError, match="there is no cluster 'nobody'"):
        user.deployed_resources(work_dir, "nobody", cluster.target.pulumi)
    assert user.stack_exists(work_dir, "burst", cluster.target.pulumi)
    assert not user.stack_exists(work_dir, "nobody", cluster.target.pulumi)
    assert dict(user.destroy(work_dir, "burst", cluster.target.pulumi).counts) == {"delete": 70}
    assert user.deployed_resources(work_dir, "burst", cluster.target.pulumi) == ()
    assert_empty(cluster)


def test_down_terminates_nodes_first(cluster: Cluster) -> None:
    made = cluster.up()
    cloud = AwsCloud(REGION, lambda _: cluster.client("ec2"))
    control = S3Control(REGION, made.outputs["bucket"], lambda: cluster.client("s3"))
    launch_two(cluster, cloud)
    place = replace(
        a_place(cluster),
        cloud=lambda _: cloud,
        control=lambda _, bucket: control if bucket == made.outputs["bucket"] else pytest.fail(bucket),
    )
    assert emptied(place).sentence("burst") == "burst is empty: 2 nodes terminated, 60 resources deleted"
    assert_empty(cluster)
    assert emptied(place).sentence("burst") == "burst is already empty"


def launch_two(cluster: Cluster, cloud: AwsCloud) -> None:
    """Launch nodes as the daemon does."""
    known = bindings(cluster)
    template = known.templates["h200-on-demand-p5en.48xlarge"]
    (interfaces,) = [
        t.interfaces
        for pool in cluster.plan.pools
        for t in pool.templates
        if t.key == "h200-on-demand-p5en.48xlarge"
    ]
    spec = LaunchSpec(
        machine="p5en.48xlarge",
        market=Market.ON_DEMAND,
        zone="us-east-2a",
        subnet_id=known.subnets["us-east-2a"],
        template_id=template.id,
        template_version=template.version,
        interfaces=interfaces,
        security_group=known.groups[ROLE_NODE],
    )
    tags = {TAG_CLUSTER: "burst", TAG_ROLE: ROLE_NODE}
    request = LaunchCall(token="one-life", count=2, spec=spec, tags=tags)
    assert len(cloud.launch(request)) == 2


CHILD = """
import json, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from functools import partial
from support.builders import a_plan
from gpucluster.aws.program import declare
from gpucluster.engine import run
from gpucluster.engine.target import Target
from gpucluster.sandbox.state_dir import ENGINE_PLUGINS
def say(step):
    print(step, flush=True)
target = Target(stack="burst", state_dir=Path({state!r}), pulumi=Path({pulumi!r}), environment=json.loads({env!r}), plugins=ENGINE_PLUGINS)
run.up(target, partial(declare, a_plan()), report=say)
"""


def a_child(cluster: Cluster) -> "subprocess.Popen[str]":
    """Run `up` in a separate process."""
    text = CHILD.format(
        tests=str(Path(__file__).parent.parent),
        state=str(cluster.target.state_dir),
        pulumi=str(cluster.target.pulumi),
        env=json.dumps(dict(cluster.target.environment)),
    )
    argv = ["env", "--default-signal=INT", sys.executable, "-c", text]  # a background shell ignores SIGINT
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_ctrl_c_stops_cleanly_and_next_up_continues(cluster: Cluster) -> None:
    with cluster.unfinished():
        child = a_child(cluster)
        assert child.stdout is not None
        for line in child.stdout:
            if line.startswith("Vpc burst: created"):
                child.send_signal(signal.SIGINT)
            elif "stopping: waiting for running operations" in line:
                break
        else:
            pytest.fail("the interrupted run does not say that it stops")
    _, err = child.communicate(timeout=900)
    assert "KeyboardInterrupt" in err
    await_none(cluster)
    assert not list(cluster.target.backend.rglob("locks/**/*.json")), "the lock is given back"
    cluster.up()
    assert found(cluster.preview()) == []
    cluster.destroy()
    assert_empty(cluster)


def test_next_run_removes_lock_of_killed_engine(cluster: Cluster) -> None:
    with cluster.unfinished():
        child = a_child(cluster)
        assert child.stdout is not None
        for line in child.stdout:
            if line.startswith("Vpc burst: created"):
                break
        for pid in pulumis_of(cluster):
            with contextlib.suppress(ProcessLookupError):  # the provider goes with its engine
                os.kill(pid, signal.SIGKILL)
        child.communicate(timeout=900)
    await_none(cluster)
    attributes = [str(path) for path in cluster.target.backend.rglob("*.attrs")]
    assert attributes == [], (
        "a kill leaves no truncated attribute file, with which each later run ends with `EOF`"
    )
    steps: list[Progress] = []
    run.up(cluster.target, cluster.program, report=steps.append)
    assert any("removed a leftover of a killed run" in str(step) for step in steps)
    assert found(cluster.preview()) == []

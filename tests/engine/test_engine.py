"""The whole program through the real engine and the stand-in provider.

One story a test, because each brings 68 resources up (3 s) and takes them down.
"""

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pulumi
import pulumi_aws as aws
import pytest
from builders import a_plan
from leftovers import await_none, pulumis_of
from stacked import OPERATOR, REGION, Cluster

from gpucluster.artifacts import unpack
from gpucluster.cli.down import Place, empty
from gpucluster.cloud.aws import AwsCloud
from gpucluster.cloud.control import S3Control
from gpucluster.cloud.port import LaunchRequest
from gpucluster.engine import run, user
from gpucluster.engine.events import Outcome, Progress
from gpucluster.engine.provider.table import TYPES
from gpucluster.engine.target import environment
from gpucluster.errors import GpuclusterError, StateError
from gpucluster.plan import codec
from gpucluster.plan.model import Bindings, Image, Market, there
from gpucluster.plan.names import ROLE_NODE, TAG_CLUSTER, TAG_ROLE

# the SDK drops the coroutines of a program that failed
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def found(outcome: Outcome) -> list[tuple[str, str, str, tuple[str, ...]]]:
    """What changed of its own; what only follows is asked apart."""
    return [(c.op, c.type.rpartition(":")[2], c.name, c.properties) for c in outcome.changes if not c.follows]


def following(outcome: Outcome) -> list[str]:
    return [c.name for c in outcome.changes if c.follows]


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
    bucket = next(s.id for s in run.standing(cluster.target) if s.type == "aws:s3/bucket:Bucket")
    body = s3.get_object(Bucket=bucket, Key="bundle.tar.gz")["Body"].read()
    files = {a.path: a.content for a in unpack(body)}
    return codec.loads(Bindings, files["bindings.json"])


RULE = ("SecurityGroupIngressRule", "burst-head-registration", ())
TAG = ("Subnet", "burst-us-east-2b", ("tags", "tagsAll"))
VOLUME = ("Instance", "burst-head", ("rootBlockDevice",))
TEMPLATE = ("LaunchTemplate", "burst-h200-on-demand-p5en.48xlarge", ("keyName",))


def test_drift_is_shown_and_nothing_else_and_destroy_leaves_nothing(cluster: Cluster) -> None:
    made = cluster.up()
    assert dict(made.counts) == {"create": 68}
    assert codec.loads(Bindings, made.outputs["bindings"]) == bindings(cluster)
    for verb in (cluster.preview, cluster.refresh, cluster.preview):
        assert found(verb()) == [], f"{verb.__name__}: nothing was changed"
    assert_tagged(cluster)
    delete_a_rule(cluster)
    change_a_tag(cluster)
    edit_a_template(cluster)
    change_the_heads_volume(cluster)  # in place: a head is not thrown away for its disk
    wanted = [("update", *VOLUME), ("update", *TAG), ("create", *RULE), ("update", *TEMPLATE)]
    seen = run.preview_refreshed(cluster.target, cluster.program)
    assert (found(seen), following(seen)) == (wanted, ["burst-bundle"]), "the bundle names the mended version"
    assert found(cluster.refresh()) == [
        ("update", *VOLUME),
        ("update", *TAG),
        ("delete", *RULE),
        ("update", *TEMPLATE),
    ]
    assert found(cluster.preview()) == wanted
    cluster.up()
    assert found(cluster.preview()) == [], "mended"
    assert bindings(cluster).templates["h200-on-demand-p5en.48xlarge"].version == 3
    assert dict(cluster.destroy().counts) == {"delete": 68}
    assert_empty(cluster)
    assert cluster.destroy().changes == (), "the second time there is nothing to do"


@pytest.mark.parametrize(
    ("drift", "wanted"),
    [
        (delete_a_rule, ("delete", *RULE)),
        (change_a_tag, ("update", *TAG)),
        (edit_a_template, ("update", *TEMPLATE)),
    ],
)
def test_one_drift_shows_one_change(
    cluster: Cluster, drift: Callable[[Cluster], None], wanted: tuple[Any, ...]
) -> None:
    cluster.up()
    drift(cluster)
    assert found(cluster.refresh()) == [wanted]


def assert_tagged(cluster: Cluster) -> None:
    """Everything that can carry a tag carries the cluster's, as the cloud says; the head's volume too."""
    carriers = [s for s in run.standing(cluster.target) if TYPES[s.type].tagged]
    assert len(carriers) == 40
    assert [s.name for s in carriers if s.outputs["tagsAll"].get("gpucluster:cluster") != "burst"] == []
    (head,) = [s for s in carriers if s.type == "aws:ec2/instance:Instance"]
    assert head.outputs["volumeTags"]["gpucluster:cluster"] == "burst"


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


def test_no_secret_stands_in_the_state_and_its_files_are_root_s_own(cluster: Cluster) -> None:
    cluster.up()
    state_dir = cluster.target.state_dir
    secrets = (OPERATOR[1].encode(), cluster.target.passphrase.read_bytes())
    leaks = [
        path
        for path in state_dir.rglob("*")
        if path.is_file()
        and path != cluster.target.passphrase
        and any(s in path.read_bytes() for s in secrets)
    ]
    assert leaks == []
    assert stat.S_IMODE(cluster.target.passphrase.stat().st_mode) == 0o600
    assert stat.S_IMODE(state_dir.stat().st_mode) == 0o700
    assert OPERATOR[1] not in repr(cluster.target)


def test_a_secret_input_stays_a_secret_in_the_state(cluster: Cluster) -> None:
    def program() -> None:
        provider = aws.Provider("aws", region=REGION)
        aws.secretsmanager.Secret(
            "one",
            description=pulumi.Output.secret("not-for-eyes"),
            opts=pulumi.ResourceOptions(provider=provider),
        )

    run.up(cluster.target, program)
    (stack,) = (cluster.target.backend / ".pulumi" / "stacks").rglob("burst.json")
    assert "not-for-eyes" not in stack.read_text()
    (made,) = cluster.client("secretsmanager").list_secrets()["SecretList"]
    assert made["Description"] == "not-for-eyes"


def unknown_type(options: pulumi.ResourceOptions) -> None:
    aws.ec2.VpnGateway("vpn", opts=options)


def unknown_property(options: pulumi.ResourceOptions) -> None:
    aws.ec2.Vpc("vpc", cidr_block="10.0.0.0/16", ipv6_cidr_block="::/56", opts=options)


def unknown_source(options: pulumi.ResourceOptions) -> None:
    aws.ec2.get_vpcs_output(opts=pulumi.InvokeOutputOptions(provider=options.provider))


def keys_in_the_state(_: pulumi.ResourceOptions) -> None:
    aws.Provider("other", region=REGION, secret_key="s")


@pytest.mark.parametrize(
    ("declare", "said"),
    [
        (unknown_type, "does not know the resource type 'aws:ec2/vpnGateway:VpnGateway'"),
        (unknown_property, "does not know 'ipv6CidrBlock' of aws:ec2/vpc:Vpc"),
        (unknown_source, "does not know the data source 'aws:ec2/getVpcs:getVpcs'"),
        (keys_in_the_state, "keys come from the environment"),
    ],
)
def test_what_the_stand_in_does_not_know_is_refused_by_name(
    cluster: Cluster, declare: Callable[[pulumi.ResourceOptions], None], said: str
) -> None:
    def program() -> None:
        declare(pulumi.ResourceOptions(provider=aws.Provider("aws", region=REGION)))

    with pytest.raises(GpuclusterError) as caught:
        run.preview(cluster.target, program)
    assert said in str(caught.value)


def test_a_refusal_half_way_is_told_and_the_next_up_goes_on(cluster: Cluster) -> None:
    site = replace(there(cluster.plan.aws), image=Image(os="ubuntu-24.04", name="gpucluster-slurm-0.0"))
    spoilt = replace(cluster, plan=replace(cluster.plan, aws=site))
    with pytest.raises(
        GpuclusterError, match=r"no machine image fits name=gpucluster-slurm-0\.0 owners=self in us-east-2"
    ):
        spoilt.up()
    assert cluster.up().outputs["head"].startswith("i-")
    assert found(cluster.preview()) == []


def test_another_size_of_pool_changes_the_bundle_alone(cluster: Cluster) -> None:
    cluster.up()
    wider = replace(cluster, plan=a_plan(("max: 16", "max: 12")))
    assert found(wider.preview()) == [("update", "BucketObjectv2", "burst-bundle", ("contentBase64",))]


def test_what_was_bought_ahead_stands_in_its_template_and_stays(cluster: Cluster) -> None:
    ahead = "      - {from: reservation, id: cr-0123456789abcdef0, machines: [p5en.48xlarge], zones: [us-east-2a]}\n"
    held = replace(cluster, plan=a_plan(("    capacity:\n", f"    capacity:\n{ahead}")))
    held.up()
    versions = held.client("ec2").describe_launch_template_versions(Versions=["$Latest"])
    said = [
        v["LaunchTemplateData"].get("CapacityReservationSpecification")
        for v in versions["LaunchTemplateVersions"]
    ]
    target = {"CapacityReservationTarget": {"CapacityReservationId": "cr-0123456789abcdef0"}}
    assert [one for one in said if one] == [target]
    assert found(held.preview()) == []


def test_a_stack_of_the_user_s_own_is_read_and_destroyed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's project and environment; here they are ours, set by hand."""
    cluster.up()
    for name, value in environment(cluster.target).items():
        monkeypatch.setenv(name, value)
    work_dir = cluster.target.work_dir
    assert len(user.standing(work_dir, "burst", cluster.target.pulumi)) == 58
    with pytest.raises(StateError, match="there is no cluster 'nobody'"):
        user.standing(work_dir, "nobody", cluster.target.pulumi)
    assert dict(user.destroy(work_dir, "burst", cluster.target.pulumi).counts) == {"delete": 68}
    assert user.standing(work_dir, "burst", cluster.target.pulumi) == ()
    assert_empty(cluster)


def test_down_ends_the_nodes_and_then_everything(cluster: Cluster) -> None:
    made = cluster.up()
    cloud = AwsCloud(REGION, lambda _: cluster.client("ec2"))
    control = S3Control(REGION, made.outputs["bucket"], lambda: cluster.client("s3"))
    launch_two(cluster, cloud)
    place = Place(
        standing=lambda: run.standing(cluster.target),
        destroy=lambda report: run.destroy(cluster.target, report=report),
        release=lambda: run.release(cluster.target),
        cloud=lambda _: cloud,
        control=lambda _, bucket: control if bucket == made.outputs["bucket"] else pytest.fail(bucket),
        region=None,
    )
    assert empty(place, "burst").sentence("burst") == "burst is empty: 2 nodes ended, 58 resources deleted"
    assert_empty(cluster)
    assert empty(place, "burst").sentence("burst") == "burst is already empty"


def launch_two(cluster: Cluster, cloud: AwsCloud) -> None:
    """As the daemon does."""
    known = bindings(cluster)
    template = known.templates["h200-on-demand-p5en.48xlarge"]
    (interfaces,) = [
        t.interfaces
        for pool in cluster.plan.pools
        for t in pool.templates
        if t.key == "h200-on-demand-p5en.48xlarge"
    ]
    request = LaunchRequest(
        token="one-life",
        count=2,
        template_id=template.id,
        template_version=template.version,
        subnet_id=known.subnets["us-east-2a"],
        zone="us-east-2a",
        machine="p5en.48xlarge",
        market=Market.ON_DEMAND,
        tags={TAG_CLUSTER: "burst", TAG_ROLE: ROLE_NODE},
        interfaces=interfaces,
        group=known.groups[ROLE_NODE],
    )
    assert len(cloud.launch(request)) == 2


CHILD = """
import json, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from functools import partial
from builders import a_plan
from gpucluster.aws.program import declare
from gpucluster.engine import run
from gpucluster.engine.target import Target
def say(step):
    print(step, flush=True)
target = Target(stack="burst", state_dir=Path({state!r}), pulumi=Path({pulumi!r}), environment=json.loads({env!r}))
run.up(target, partial(declare, a_plan()), report=say)
"""


def a_child(cluster: Cluster) -> "subprocess.Popen[str]":
    """An `up` in a process of its own."""
    text = CHILD.format(
        tests=str(Path(__file__).parent.parent),
        state=str(cluster.target.state_dir),
        pulumi=str(cluster.target.pulumi),
        env=json.dumps(dict(cluster.target.environment)),
    )
    return subprocess.Popen(
        [sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_ctrl_c_stops_cleanly_and_up_goes_on(cluster: Cluster) -> None:
    child = a_child(cluster)
    assert child.stdout is not None
    for line in child.stdout:
        if line.startswith("Vpc burst: created"):
            child.send_signal(signal.SIGINT)
            break
    out, err = child.communicate(timeout=60)
    assert "stopping: waiting for what is under way" in out
    assert "KeyboardInterrupt" in err
    assert await_none(cluster) == []
    assert not list(cluster.target.backend.rglob("locks/**/*.json")), "the lock is given back"
    cluster.up()
    assert found(cluster.preview()) == []
    cluster.destroy()
    assert_empty(cluster)


def test_a_killed_engine_leaves_a_lock_that_the_next_run_removes(cluster: Cluster) -> None:
    child = a_child(cluster)
    assert child.stdout is not None
    for line in child.stdout:
        if line.startswith("Vpc burst: created"):
            break
    for pid in pulumis_of(cluster):
        os.kill(pid, signal.SIGKILL)
    child.communicate(timeout=60)
    assert await_none(cluster) == [], "the provider goes with its engine"
    # where the kill now and then hits: the file beside the checkpoint is cut off, which was `EOF` for ever
    (cluster.target.backend / ".pulumi/stacks/gpucluster/burst.json.attrs").write_bytes(b"")
    said: list[Progress] = []
    run.up(cluster.target, cluster.program, report=said.append)
    assert any("removed what a run that was killed left" in str(step) for step in said)
    assert found(cluster.preview()) == []

"""Drift: `sandbox preview` shows changes made outside Pulumi. Then `gpucluster down` with burst nodes.

The order of the tests matters: after `down` there is no stack.
"""

import json

import pytest
from cluster import gpucluster

pytestmark = [pytest.mark.sandbox, pytest.mark.in_order, pytest.mark.timeout(3000)]


def changes(name, *options):
    """Return the changes of `sandbox preview` without those that follow another change."""
    found = json.loads(gpucluster("sandbox", "preview", name, *options, "--output", "json").stdout)["changes"]
    return [
        (c["op"], c["type"].rpartition(":")[2], c["name"], c["properties"]) for c in found if not c["follows"]
    ]


def delete_a_rule(ec2, _):
    rules = ec2.describe_security_group_rules()["SecurityGroupRules"]
    (rule,) = [r for r in rules if r.get("FromPort") == 6890]
    named = {"GroupId": rule["GroupId"], "SecurityGroupRuleIds": [rule["SecurityGroupRuleId"]]}
    ec2.revoke_security_group_ingress(**named)


def open_a_group(ec2, name):
    """A foreign rule is not of Pulumi's state, so no refresh reads it (decision 0008)."""
    named = [{"Name": "group-name", "Values": [f"{name}-head-*"]}]
    (group,) = ec2.describe_security_groups(Filters=named)["SecurityGroups"]
    rule = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
    ec2.authorize_security_group_ingress(GroupId=group["GroupId"], IpPermissions=[rule])


def change_a_tag(ec2, name):
    named = [{"Name": "tag:Name", "Values": [f"{name}-us-east-1b"]}]
    (subnet,) = ec2.describe_subnets(Filters=named)["Subnets"]
    ec2.create_tags(Resources=[subnet["SubnetId"]], Tags=[{"Key": "Name", "Value": "someone-was-here"}])


def edit_a_template(ec2, name):
    (template,) = [
        t["LaunchTemplateId"]
        for t in ec2.describe_launch_templates()["LaunchTemplates"]
        if t["LaunchTemplateName"].startswith(f"{name}-h200-on-demand-")
    ]
    (latest,) = ec2.describe_launch_template_versions(LaunchTemplateId=template, Versions=["$Latest"])[
        "LaunchTemplateVersions"
    ]
    data = {**latest["LaunchTemplateData"], "KeyName": "someones-key"}
    ec2.create_launch_template_version(LaunchTemplateId=template, LaunchTemplateData=data)


DRIFT = {
    "a rule deleted": (delete_a_rule, ("create", "SecurityGroupIngressRule", "{}-head-registration", [])),
    "a tag changed": (change_a_tag, ("update", "Subnet", "{}-us-east-1b", ["tags", "tagsAll"])),
    "a template edited": (edit_a_template, ("update", "LaunchTemplate", "{}-h200-on-demand-p5en.48xlarge", ["keyName"])),
}  # fmt: skip


def test_preview_shows_each_drift_and_nothing_else(shared_cluster):
    open_a_group(shared_cluster.ec2(), shared_cluster.name)
    assert changes(shared_cluster.name) == changes(shared_cluster.name, "--refresh") == []
    shown = gpucluster("sandbox", "preview", shared_cluster.name, "--refresh")
    assert "no change" in shown.stdout
    assert f"are not seen: gpucluster validate {shared_cluster.name} --only cloud.rules\n" in shown.stderr
    wanted = []
    for plant, (op, kind, name, properties) in DRIFT.values():
        plant(shared_cluster.ec2(), shared_cluster.name)
        wanted.append((op, kind, name.format(shared_cluster.name), properties))
        assert sorted(changes(shared_cluster.name, "--refresh")) == sorted(wanted)
    assert changes(shared_cluster.name) == [], (
        "without --refresh it compares with the state, which is unchanged"
    )
    text = gpucluster("sandbox", "preview", shared_cluster.name, "--refresh").stdout
    assert f"update   Subnet {shared_cluster.name}-us-east-1b: tags, tagsAll\n" in text


LIMITS = {
    "an unknown market": ("--market", "sport", "this cluster has on-demand, spot"),
    "a machine type of no pool": ("--machine", "p5en.49xlarge", "this cluster has p5e"),
    "a zone of another region": ("--zone", "us-east-2a", "this cluster has us-east-1a, us-east-1b"),
}


@pytest.mark.parametrize(("option", "value", "words"), LIMITS.values(), ids=LIMITS)
def test_limit_on_capacity_that_the_cluster_never_requests_is_refused(shared_cluster, option, value, words):
    done = gpucluster("sandbox", "capacity", shared_cluster.name, "--free", "0", option, value, check=False)
    assert (done.returncode, words in done.stderr) == (2, True), done.stderr


def blocked_down(burst):
    """Take the cluster's tag from a node. `down` ends the other nodes, keeps the head, and says what to type."""
    lost = burst.instances()[0]["id"]
    burst.ec2().delete_tags(Resources=[lost], Tags=[{"Key": "gpucluster:cluster"}])
    done = gpucluster("down", burst.name, "--sandbox", "--yes", check=False)
    assert done.returncode == 2, done.stdout + done.stderr
    assert (
        f"{lost} (p5en.48xlarge, running, without the tag gpucluster:cluster, launched from this cluster's template)"
        in done.stderr
    )
    states = {i["id"]: i["state"] for i in burst.everything()}
    assert sorted(states.values()) == ["running", "running", "terminated", "terminated"]
    assert states[lost] == "running"
    assert burst.exec("head", "echo", "here") == "here\n"
    return lost, done.stderr.partition("next: ")[2]


def test_down_with_burst_nodes_deletes_everything(shared_cluster):
    burst = shared_cluster
    job = burst.sbatch("-N3", "--gres=gpu:8", script="sleep 600")
    burst.wait("the job runs", lambda: burst.state(job) == "RUNNING")
    assert len(burst.instances()) == 3
    stays, next_step = blocked_down(burst)
    assert stays in next_step
    burst.ec2().terminate_instances(InstanceIds=[stays])
    result = json.loads(gpucluster("down", burst.name, "--sandbox", "--yes", "--output", "json").stdout)
    assert (result["nodes"], result["was_empty"]) == (0, False)
    ec2 = burst.ec2()
    assert {i["state"] for i in burst.everything()} == {"terminated"}
    ours = [{"Name": "tag:gpucluster:cluster", "Values": [burst.name]}]
    assert ec2.describe_vpcs(Filters=ours)["Vpcs"] == []
    assert ec2.describe_subnets(Filters=ours)["Subnets"] == []
    assert ec2.describe_security_groups(Filters=ours)["SecurityGroups"] == []
    assert ec2.describe_launch_templates()["LaunchTemplates"] == []
    assert burst.client("s3").list_buckets()["Buckets"] == []
    assert burst.client("secretsmanager").list_secrets()["SecretList"] == []
    assert [
        r["RoleName"] for r in burst.client("iam").list_roles()["Roles"] if burst.name in r["RoleName"]
    ] == []


def test_second_down_reports_an_empty_stack(shared_cluster):
    assert "already empty" in gpucluster("down", shared_cluster.name, "--sandbox").stdout

"""What was done behind Pulumi's back, as an operator sees it; then `gpucluster down` with burst nodes up.

In this order: after `down` there is no stack.
"""

import json

import pytest
from cluster import gpucluster

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(300)]


def changes(name, *options):
    """What `sandbox preview` says, less what only follows another change."""
    found = json.loads(gpucluster("sandbox", "preview", name, *options, "--output", "json").stdout)["changes"]
    return [
        (c["op"], c["type"].rpartition(":")[2], c["name"], c["properties"]) for c in found if not c["follows"]
    ]


def delete_a_rule(ec2, _):
    rules = ec2.describe_security_group_rules()["SecurityGroupRules"]
    (rule,) = [r for r in rules if r.get("FromPort") == 6890]
    named = {"GroupId": rule["GroupId"], "SecurityGroupRuleIds": [rule["SecurityGroupRuleId"]]}
    ec2.revoke_security_group_ingress(**named)


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


def test_drift_is_shown_by_the_verb_each_as_it_comes_and_nothing_else(standing):
    assert changes(standing.name) == changes(standing.name, "--refresh") == []
    assert "no change" in gpucluster("sandbox", "preview", standing.name, "--refresh").stdout
    wanted = []
    for plant, (op, kind, name, properties) in DRIFT.values():
        plant(standing.ec2(), standing.name)
        wanted.append((op, kind, name.format(standing.name), properties))
        assert sorted(changes(standing.name, "--refresh")) == sorted(wanted)
    assert changes(standing.name) == [], (
        "without --refresh it is compared with the state, which nobody changed"
    )
    text = gpucluster("sandbox", "preview", standing.name, "--refresh").stdout
    assert f"update   Subnet {standing.name}-us-east-1b: tags, tagsAll\n" in text


ORDERS = {
    "a market that nobody sells in": ("--market", "sport", "this cluster has on-demand, spot"),
    "a machine of no pool": ("--machine", "p5en.49xlarge", "this cluster has p5e"),
    "a zone of another region": ("--zone", "us-east-2a", "this cluster has us-east-1a, us-east-1b"),
}


@pytest.mark.parametrize(("option", "value", "said"), ORDERS.values(), ids=ORDERS)
def test_an_order_about_what_the_cluster_never_asks_for_is_refused(standing, option, value, said):
    done = gpucluster("sandbox", "capacity", standing.name, "--free", "0", option, value, check=False)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def test_down_with_burst_nodes_up_empties_the_cloud(standing):
    burst = standing
    job = burst.sbatch("-N3", "--gres=gpu:8", script="sleep 600")
    burst.wait("the job runs", lambda: burst.state(job) == "RUNNING")
    assert len(burst.instances()) == 3
    done = json.loads(gpucluster("down", burst.name, "--output", "json").stdout)
    assert (done["nodes"], done["was_empty"]) == (3, False)
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


def test_down_again_says_that_it_is_empty(standing):
    assert "already empty" in gpucluster("down", standing.name).stdout

"""`gpucluster down` with burst nodes up: all end, the cloud is empty, twice does no harm. Last: the stack is gone after it."""

import json

import pytest
from cluster import gpucluster

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(300)]


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

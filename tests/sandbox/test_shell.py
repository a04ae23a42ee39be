"""An empty cloud and typed commands: `pulumi up`, a job, an interrupted change, `gpucluster down`."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cluster import ROOT, Cluster, gpucluster
from validation import of_verdict, validated

from gpucluster import artifacts
from gpucluster.plan import names, spec_source

pytestmark = [pytest.mark.sandbox, pytest.mark.in_order, pytest.mark.timeout(3000)]

NAME = "shell"
CHECKOUT = ("Pulumi.yaml", "__main__.py")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkout")
    (folder / "stacks").mkdir()
    for name in CHECKOUT:
        (folder / name).write_text((ROOT / name).read_text())
    text = (ROOT / "stacks/burst.yaml").read_text().replace("name: burst\n", f"name: {NAME}\n", 1)
    (folder / "stacks" / f"{NAME}.yaml").write_text(text)
    return folder


@pytest.fixture(scope="module")
def cloud(checkout: Path) -> Iterator[Cluster]:
    done = gpucluster(
        "sandbox", "up", str(checkout / "stacks" / f"{NAME}.yaml"), "--cloud-only", timeout=1500
    )
    try:
        assert f"gpucluster sandbox shell {NAME}" in done.stdout
        yield Cluster(NAME)
    finally:
        gpucluster("sandbox", "down", NAME)


def argv(*typed: str) -> list[str]:
    return [sys.executable, "-m", "gpucluster.cli", "sandbox", "shell", NAME, *typed]


def typed(checkout: Path, *words: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
    """Run a command in the sandbox's shell, from the checkout."""
    done = subprocess.run(
        argv(*words), cwd=checkout, capture_output=True, text=True, timeout=1000, check=False
    )
    assert done.returncode == 0 or not check, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def test_typed_pulumi_up_makes_a_cluster_that_runs_a_job(cloud: Cluster, checkout: Path) -> None:
    done = typed(checkout, "-c", "pulumi up --yes --skip-preview && pulumi stack output head")
    assert "pulumi-language-python: runs __main__.py" in done.stderr, "the banner names the stand-ins"
    head = done.stdout.split()[-1]
    assert [one["id"] for one in cloud.everything() if one["role"] == "head"] == [head]
    gpucluster("sandbox", "status", NAME, "--wait")
    job = cloud.sbatch("-N1", "--gres=gpu:8", script="srun hostname")
    cloud.wait("the job is done", lambda: cloud.state(job) == "COMPLETED")


def test_typed_pulumi_and_gpucluster_use_one_stack(cloud: Cluster, checkout: Path) -> None:
    assert "no change" in gpucluster("sandbox", "preview", NAME).stdout
    done = typed(checkout, "--", "pulumi", "preview", "--json")
    assert set(json.loads(done.stdout)["changeSummary"]) == {"same"}


def change_by_hand(cloud: Cluster) -> None:
    """Change the network, a group, a role, the bucket and the queue of the cluster by the API."""
    ec2, s3, sqs, iam, events = (cloud.client(name) for name in ("ec2", "s3", "sqs", "iam", "events"))
    own = [{"Name": f"tag:{names.TAG_CLUSTER}", "Values": [NAME]}]
    (vpc,) = (one["VpcId"] for one in ec2.describe_vpcs(Filters=own)["Vpcs"])
    ec2.modify_vpc_attribute(VpcId=vpc, EnableDnsHostnames={"Value": False})
    in_vpc = [{"Name": "vpc-id", "Values": [vpc]}]
    gateways = [
        (table["RouteTableId"], route["DestinationCidrBlock"])
        for table in ec2.describe_route_tables(Filters=in_vpc)["RouteTables"]
        for route in table["Routes"]
        if "NatGatewayId" in route
    ]
    for table, block in gateways:
        ec2.delete_route(RouteTableId=table, DestinationCidrBlock=block)
    endpoints = ec2.describe_vpc_endpoints(Filters=in_vpc)["VpcEndpoints"]
    ec2.delete_vpc_endpoints(
        VpcEndpointIds=[one["VpcEndpointId"] for one in endpoints if one["ServiceName"].endswith(".s3")]
    )
    (group,) = (
        one["GroupId"]
        for one in ec2.describe_security_groups(Filters=in_vpc)["SecurityGroups"]
        if one["GroupName"].startswith(f"{NAME}-head-")
    )
    rules = ec2.describe_security_group_rules(Filters=[{"Name": "group-id", "Values": [group]}])
    rule = next(one for one in rules["SecurityGroupRules"] if not one["IsEgress"])["SecurityGroupRuleId"]
    ec2.revoke_security_group_ingress(GroupId=group, SecurityGroupRuleIds=[rule])
    (role,) = (
        one["RoleName"] for one in iam.list_roles()["Roles"] if one["RoleName"].startswith(f"{NAME}-head-")
    )
    for policy in iam.list_role_policies(RoleName=role)["PolicyNames"]:
        iam.delete_role_policy(RoleName=role, PolicyName=policy)
    user_data = json.loads(cloud.exec("head", "cat", names.USER_DATA_FILE))
    s3.delete_public_access_block(Bucket=user_data["bucket"])
    s3.delete_bucket_policy(Bucket=user_data["bucket"])
    s3.put_bucket_versioning(Bucket=user_data["bucket"], VersioningConfiguration={"Status": "Suspended"})
    (queue,) = sqs.list_queues(QueueNamePrefix=f"{NAME}-")["QueueUrls"]
    sqs.set_queue_attributes(QueueUrl=queue, Attributes={"MessageRetentionPeriod": "60"})
    (spot,) = (one["Name"] for one in events.list_rules(NamePrefix=f"{NAME}-spot")["Rules"])
    targets = events.list_targets_by_rule(Rule=spot)["Targets"]
    events.remove_targets(Rule=spot, Ids=[one["Id"] for one in targets])


FOUND = {  # check -> parts of what it says after `change_by_hand`
    "cloud.network[cloud]": ("EnableDnsHostnames of the VPC is off", "no route to a NAT gateway", "has no endpoint of S3"),
    "cloud.rules[cloud]": ("is missing",),
    "cloud.roles[cloud]": ("has lost its inline policy",),
    "cloud.bucket[cloud]": ("public access is not blocked", "versioning is Suspended", "its policy is missing"),
    "cloud.queue[cloud]": ("MessageRetentionPeriod is 60", "does not send to it"),
}  # fmt: skip


def test_step_of_pulumi_heals_what_was_changed_by_hand(cloud: Cluster, checkout: Path) -> None:
    """The remedy of each check is one command, which is typed once."""
    only = ("--tier", "0", "--only", ",".join(FOUND))
    change_by_hand(cloud)
    results = validated(cloud, *only, code=1)
    assert of_verdict(results, "fail") == FOUND.keys()
    for check, parts in FOUND.items():
        assert [part for part in parts if part not in results[check]["found"]] == [], results[check]["found"]
    assert {one["remedy"] for one in results.values()} == {f"pulumi up --refresh --stack {NAME}"}
    typed(checkout, "-c", f"pulumi up --refresh --stack {NAME} --yes --skip-preview")
    cloud.wait("all checks pass", lambda: of_verdict(validated(cloud, *only), "pass") == FOUND.keys())
    assert "no change" in gpucluster("sandbox", "preview", NAME).stdout


SPEC = ("--tier", "0", "--only", "cfg.spec")


def test_spec_that_was_never_applied_is_found(cloud: Cluster, checkout: Path) -> None:
    spec = checkout / "stacks" / f"{NAME}.yaml"
    text = spec.read_text()
    assert validated(cloud, *SPEC, code=0)["cfg.spec[head]"]["verdict"] == "pass"
    spec.write_text(text.replace("max: 16", "max: 14"))
    found = validated(cloud, *SPEC, code=1)["cfg.spec[head]"]["found"]
    assert found.endswith(f"another spec: {spec} is not applied")
    spec.write_text(f"{text}\n# a comment\n")
    assert "another text with the same plan" in validated(cloud, *SPEC, code=0)["cfg.spec[head]"]["found"]
    spec.write_text(text)


def test_bundle_that_was_put_back_is_found_and_its_remedy_publishes_the_spec(
    cloud: Cluster, checkout: Path
) -> None:
    """Pulumi's state has the newest bundle, so `pulumi up` alone changes nothing."""
    s3, bucket = cloud.client("s3"), json.loads(cloud.exec("head", "cat", names.USER_DATA_FILE))["bucket"]
    key = {"Bucket": bucket, "Key": names.BUNDLE_KEY}
    files = {one.path: one for one in artifacts.unpack(s3.get_object(**key)["Body"].read())}
    old = replace(spec_source.read(files[names.SOURCE_FILE].content), spec="0" * 64, plan="0" * 64)
    files[names.SOURCE_FILE] = spec_source.artifact(old)
    s3.put_object(**key, Body=artifacts.pack(files.values()))
    result = validated(cloud, *SPEC, code=1)["cfg.spec[head]"]
    again = f"aws s3 rm s3://{bucket}/{names.BUNDLE_KEY}, then pulumi up --refresh --stack {NAME}"
    assert result["remedy"].endswith(again)
    typed(checkout, "-c", f"pulumi up --stack {NAME} --yes --skip-preview")
    assert of_verdict(validated(cloud, *SPEC), "fail") == {"cfg.spec[head]"}
    s3.delete_object(**key)
    typed(checkout, "-c", f"pulumi up --refresh --stack {NAME} --yes --skip-preview")
    assert of_verdict(validated(cloud, *SPEC, code=0), "pass") == {"cfg.spec[head]"}
    assert "no change" in gpucluster("sandbox", "preview", NAME).stdout


def test_next_up_completes_an_interrupted_change(cloud: Cluster, checkout: Path) -> None:
    spec = checkout / "stacks" / f"{NAME}.yaml"
    spec.write_text(spec.read_text().replace("max: 16", "max: 12"))
    assert "update " in gpucluster("sandbox", "preview", NAME).stdout, "it reads the edited spec"
    child = subprocess.Popen(
        argv("--", "pulumi", "up", "--yes", "--skip-preview"),
        cwd=checkout, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    assert child.stdout is not None
    for line in child.stdout:
        if "Updating" in line:
            break
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=900)
    typed(checkout, "--", "pulumi", "up", "--yes", "--skip-preview")
    assert "no change" in gpucluster("sandbox", "preview", NAME).stdout, "gpucluster reads the new plan"
    cloud.wait("slurmctld has the new size", lambda: "h200-1a-13" not in cloud.nodes())


def test_typed_down_deletes_everything_and_up_makes_it_again(cloud: Cluster, checkout: Path) -> None:
    typed(checkout, "--", "gpucluster", "down", NAME, "--yes")
    assert {one["state"] for one in cloud.everything()} == {"terminated"}
    typed(checkout, "--", "pulumi", "up", "--yes", "--skip-preview")
    gpucluster("sandbox", "status", NAME, "--wait")
    typed(checkout, "--", "pulumi", "destroy", "--exclude-protected", "--yes", "--skip-preview")

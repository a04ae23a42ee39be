"""A cluster under the rules of a site: its own KMS key, twelve tags, and a VPC and a reservation of another account.

In this order: the key is refused after the cluster is healthy, and `gpucluster down` comes last.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cluster import Cluster, gpucluster

from gpucluster.sandbox.aws.ec2.participants import OF_THE_OWNER

pytestmark = [pytest.mark.sandbox, pytest.mark.in_order, pytest.mark.timeout(3000)]

NAME, USER, KEY, OWNER = "site-rules", "vision", "alias/research", "210987654321"
VPC, RESERVATION = "vpc-0123456789abcdef0", "cr-0123456789abcdef0"
SUBNETS = {"us-east-1a": "subnet-0123456789abcdef0", "us-east-1b": "subnet-0123456789abcdef1"}
TAGS = {f"site:{number}": f"value {number}" for number in range(1, 13)}
SPEC = f"""
schema: 1
name: {NAME}
aws:
  region: us-east-1
  network: {{vpc: {VPC}, subnets: {json.dumps(SUBNETS)}}}
  kms_key: {KEY}
  tags: {json.dumps(TAGS)}
slurm: {{version: "24.11"}}
users: [{{name: {USER}, uid: 5001}}]
head: {{machine: m7i.2xlarge, address: 10.60.0.10, state: 20GiB}}
storage:
  - {{mount: /home, efs: {{}}}}
  - {{mount: /data, fsx_lustre: {{zone: us-east-1a, size: 1200GiB, throughput: 1000MBps/TiB}}}}
pools:
  - name: h100
    nodes: 1
    capacity: [{{from: reservation, id: {RESERVATION}, machines: [p5.48xlarge], zones: [us-east-1a]}}]
  - name: h200
    nodes: {{min: 0, max: 4}}
    idle: 5m
    capacity: [{{from: spot, machines: [p5en.48xlarge]}}, {{from: on-demand, machines: [p5en.48xlarge]}}]
partitions:
  - {{name: train, pools: [h100]}}
  - {{name: gpu, pools: [h200], default: true, max_time: 1d}}
"""
WHY = ("/opt/gpucluster/venv/bin/python", "-I", "-m", "gpucluster.elastic.inspect.why")
LAUNCHES = ("RunInstances", "CreateFleet")


class SiteCluster(Cluster):
    """The cluster, and what the stand-in for AWS has of it."""

    def submit(self, *options: str, script: str = "srun hostname") -> int:
        text = f"#!/bin/bash\n{script}\n"
        return int(self.exec("head", "sbatch", "--parsable", "--gres=gpu:8", *options, user=USER, stdin=text))

    def key(self) -> str:
        return self.client("kms").describe_key(KeyId=KEY)["KeyMetadata"]["Arn"]

    def launches(self) -> int:
        return sum(one["action"] in LAUNCHES for one in self.control().trail())

    def why(self, job: int) -> str:
        return self.exec("head", *WHY, str(job))

    def power_down_elastic(self) -> None:
        self.power_down()
        self.wait(
            "no elastic node is left", lambda: not [i for i in self.instances() if "p5en" in i["machine"]]
        )

    def machines(self) -> list[dict[str, Any]]:
        pages = self.ec2().describe_instances()["Reservations"]
        living = ("pending", "running")
        return [one for page in pages for one in page["Instances"] if one["State"]["Name"] in living]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SiteCluster]:
    spec = tmp_path_factory.mktemp("stack") / f"{NAME}.yaml"
    spec.write_text(SPEC)
    gpucluster("sandbox", "up", str(spec), timeout=1500)
    try:
        yield SiteCluster(NAME)
    finally:
        gpucluster("sandbox", "down", NAME)
        assert not Path("/var/lib/gpucluster-sandbox", NAME).exists()


def test_jobs_run_on_the_shared_reservation_and_on_a_new_node(site: SiteCluster) -> None:
    steady = site.submit("--partition=train", script="echo steady > /home/vision/steady")
    burst = site.submit(script="touch /data/burst; srun hostname > /home/vision/burst")
    for job in (steady, burst):
        site.wait("the job is done", lambda job=job: site.state(job) == "COMPLETED")
    assert site.exec("head", "cat", "/home/vision/steady") == "steady\n"
    assert site.exec("head", "cat", "/home/vision/burst").startswith("h200-")
    by_type = {one["InstanceType"]: one for one in site.machines()}
    assert by_type["p5.48xlarge"]["CapacityReservationId"] == RESERVATION
    (held,) = site.ec2().describe_capacity_reservations()["CapacityReservations"]
    assert (held["OwnerId"], held["AvailableInstanceCount"]) == (OWNER, 0)
    assert {one["SubnetId"] for one in by_type.values()} <= set(SUBNETS.values())


def test_everything_has_the_key_and_the_tags_that_its_service_takes(site: SiteCluster) -> None:
    ec2, efs, fsx, s3 = (site.client(name) for name in ("ec2", "efs", "fsx", "s3"))
    key, volumes = site.key(), ec2.describe_volumes()["Volumes"]
    (home,), (data,) = efs.describe_file_systems()["FileSystems"], fsx.describe_file_systems()["FileSystems"]
    (bucket,) = [one["Name"] for one in s3.list_buckets()["Buckets"]]
    default = s3.get_bucket_encryption(Bucket=bucket)["ServerSideEncryptionConfiguration"]["Rules"][0]
    (secret,) = site.client("secretsmanager").list_secrets()["SecretList"]
    keys = [
        *(one.get("KmsKeyId") for one in volumes),
        *(one["KmsKeyId"] for one in (home, data, secret)),
        default["ApplyServerSideEncryptionByDefault"]["KMSMasterKeyID"],
    ]
    assert len(volumes) >= 3, "root volumes, and the state of the head"
    assert set(keys) == {key}
    for one in (*site.machines(), *volumes, home, data, secret):
        tags = {tag["Key"]: tag["Value"] for tag in one["Tags"]}
        assert TAGS.items() <= tags.items()
    tags = s3.get_bucket_tagging(Bucket=bucket)["TagSet"]
    assert TAGS.items() <= {tag["Key"]: tag["Value"] for tag in tags}.items()
    found = s3.get_object_tagging(Bucket=bucket, Key="bundle.tar.gz")["TagSet"]
    assert [tag["Key"] for tag in found] == ["gpucluster:cluster"], "an S3 object takes only ten tags"


def test_nothing_of_the_owners_network_was_called(site: SiteCluster) -> None:
    """CreateTags is among them for tags on subnets; ours are of our own resources."""
    called = {one["action"] for one in site.control().trail()} & OF_THE_OWNER
    assert called <= {"CreateTags"}
    (vpc,) = site.ec2().describe_vpcs(VpcIds=[VPC])["Vpcs"]
    assert (vpc["OwnerId"], vpc.get("Tags", [])) == (OWNER, [])


def test_validate_calls_it_healthy(site: SiteCluster) -> None:
    site.power_down_elastic()  # not during the checks
    site.wait("the reserved node is up", lambda: set(site.nodes()["h100-1a-1"]["state"]) == {"IDLE", "CLOUD"})
    done = gpucluster("validate", NAME, "--output", "json", check=False, timeout=900)
    results = json.loads(done.stdout)["results"]
    assert [(one["id"], one["found"]) for one in results if one["verdict"] != "pass"] == []
    assert done.returncode == 0


@contextmanager
def without_volume_rights(site: SiteCluster) -> Iterator[None]:
    """The owner of the key takes the head's rights to use it for volumes; S3 and Secrets Manager still work."""
    iam = site.client("iam")
    (role,) = [
        one["RoleName"] for one in iam.list_roles()["Roles"] if one["RoleName"].startswith(f"{NAME}-head")
    ]
    (name,) = iam.list_role_policies(RoleName=role)["PolicyNames"]
    whole = iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]
    rest = [one for one in whole["Statement"] if one["Sid"] not in ("VolumeKey", "VolumeGrant")]
    assert len(rest) == len(whole["Statement"]) - 2
    document = json.dumps({**whole, "Statement": rest})
    iam.put_role_policy(RoleName=role, PolicyName=name, PolicyDocument=document)
    try:
        yield
    finally:
        iam.put_role_policy(RoleName=role, PolicyName=name, PolicyDocument=json.dumps(whole))


def test_a_key_that_ec2_may_not_use_ends_one_node_and_stops_launches(site: SiteCluster) -> None:
    """The launch itself succeeds (T51). Without a rule each pass of the daemon would launch again."""
    before = site.launches()
    with without_volume_rights(site):
        job = site.submit("--job-name=refused")
        site.wait("the refusal is told", lambda: "EC2 cannot use" in site.job(job)["admin_comment"])
        assert f"the KMS key {KEY}" in site.job(job)["admin_comment"]
        told = site.why(job)
        assert f"EC2 cannot use the KMS key {KEY}" in told
        assert "Client.InternalError" in told
        ended = [one for one in site.everything() if "Client.InternalError" in one["reason"]]
        assert len(ended) == site.launches() - before == 1
        other = site.submit("--job-name=refused")
        site.wait("the next job is told, too", lambda: KEY in site.job(other)["admin_comment"])
        assert site.launches() - before == 1


def test_with_a_disabled_key_nothing_is_launched_and_why_names_it(site: SiteCluster) -> None:
    """The bucket has the key, too: the daemon cannot read the control object. Both jobs of the last test still wait."""
    kms, key, before = site.client("kms"), site.key().rpartition("/")[2], site.launches()
    jobs = [int(n) for n in site.exec("head", "squeue", "-h", "--name=refused", "-o", "%i").split()]
    assert len(jobs) == 2
    kms.disable_key(KeyId=key)
    try:
        site.wait("why names the fault", lambda: "KMS.DisabledException" in site.why(jobs[0]))
        remedy = f"check the cluster's bucket, the rights of the head's role on it, and the KMS key {KEY}"
        assert remedy in site.why(jobs[0])
        log = ("journalctl", "-u", "gpucluster-elastic", "-o", "cat")
        site.wait("the log has it", lambda: "KMS.DisabledException" in site.exec("head", *log))
        assert site.launches() == before
    finally:
        kms.enable_key(KeyId=key)
    site.wait(
        "the jobs run after the refusal has run out",
        lambda: {site.state(job) for job in jobs} == {"COMPLETED"},
    )


def test_down_leaves_only_what_belongs_to_the_owner(site: SiteCluster) -> None:
    gpucluster("down", NAME, "--sandbox", "--delete-data", "--confirm", NAME)
    ec2 = site.ec2()
    assert {one["state"] for one in site.everything()} == {"terminated"}
    assert ec2.describe_volumes()["Volumes"] == []
    assert site.client("efs").describe_file_systems()["FileSystems"] == []
    assert site.client("fsx").describe_file_systems()["FileSystems"] == []
    assert site.client("s3").list_buckets()["Buckets"] == []
    assert site.client("secretsmanager").list_secrets()["SecretList"] == []
    assert ec2.describe_launch_templates()["LaunchTemplates"] == []
    of_vpc = [{"Name": "vpc-id", "Values": [VPC]}]
    groups = ec2.describe_security_groups(Filters=of_vpc)["SecurityGroups"]
    assert [one["GroupName"] for one in groups] == ["default"]
    assert {one["SubnetId"] for one in ec2.describe_subnets(Filters=of_vpc)["Subnets"]} == set(
        SUBNETS.values()
    )
    assert site.client("kms").describe_key(KeyId=KEY)["KeyMetadata"]["KeyState"] == "Enabled"

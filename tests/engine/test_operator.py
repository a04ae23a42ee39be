"""The whole program with the keys of an operator who has exactly the generated policies, and nothing else."""

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from support.aws_plans import aws, both, mounts, research
from support.builders import a_plan
from support.downs import emptied
from support.engine_stack import Cluster, a_cluster, a_place
from support.judged_stacks import STACKS
from support.operators import a_scope, as_caller, as_operator, own_client, texts_without

from gpucluster.aws.operator_documents import PolicyRole, documents
from gpucluster.cli.down_world import ClusterAccess
from gpucluster.cloud.aws import AwsCloud
from gpucluster.cloud.control import S3Control
from gpucluster.engine import run
from gpucluster.engine.events import Outcome
from gpucluster.errors import GpuclusterError
from gpucluster.plan.model import Mount, SiteEfs, SiteNetwork, SiteSubnet, SlurmOnAws
from gpucluster.sandbox.aws.moto_state import ACCOUNT

# A refused `up` ends inside asyncio of Pulumi, which leaves an event loop behind.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
Prepare = Callable[[Cluster], SlurmOnAws]


def unchanged(cluster: Cluster) -> SlurmOnAws:
    return cluster.plan


def with_boundary(cluster: Cluster) -> SlurmOnAws:
    """Make the generated boundary, and set it in the spec."""
    (made,) = documents(PolicyRole.BOUNDARY, a_scope(cluster.plan))
    found = cluster.client("iam").create_policy(PolicyName=made.name, PolicyDocument=made.text)
    return aws(boundary=found["Policy"]["Arn"])(cluster.plan)


def with_key(cluster: Cluster) -> SlurmOnAws:
    kms = cluster.client("kms")
    key = kms.create_key(KeyUsage="ENCRYPT_DECRYPT", KeySpec="SYMMETRIC_DEFAULT")["KeyMetadata"]["KeyId"]
    kms.create_alias(AliasName="alias/research", TargetKeyId=key)
    return aws(kms_key="alias/research")(cluster.plan)


OF_OTHERS = "10.42.200.0/24"  # a subnet of the shared VPC


def with_shared_vpc(cluster: Cluster) -> SlurmOnAws:
    """A network account owns the VPC and its subnets; they have no tag of the cluster."""
    ec2 = cluster.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.42.0.0/16")["Vpc"]["VpcId"]
    ec2.modify_vpc_attribute(VpcId=vpc, EnableDnsHostnames={"Value": True})
    subnets: list[SiteSubnet] = []
    network_plan: Any = cluster.plan.aws.network
    for span in network_plan.subnets:
        made = ec2.create_subnet(VpcId=vpc, CidrBlock=span.cidr, AvailabilityZone=span.zone)
        subnets.append(SiteSubnet(zone=span.zone, id=made["Subnet"]["SubnetId"]))
    ec2.create_subnet(VpcId=vpc, CidrBlock=OF_OTHERS)
    cluster.api.moto.share_vpc(vpc, "210987654321")
    efs = cluster.client("efs").create_file_system(CreationToken="of the site")["FileSystemId"]
    home = Mount(path="/home", source=SiteEfs(id=efs))
    return both(aws(network=SiteNetwork(vpc=vpc, subnets=tuple(subnets))), mounts(home))(cluster.plan)


LIVES: dict[str, tuple[Callable[[], SlurmOnAws], Prepare]] = {
    "burst": (a_plan, unchanged),
    "research, with its boundary": (lambda: aws(boundary=None)(STACKS["research"]()), with_boundary),
    "steady": (STACKS["steady"], unchanged),
    "own key": (lambda: aws(boundary=None)(research(a_plan())), with_key),
    "shared VPC": (a_plan, with_shared_vpc),
}


@contextmanager
def a_life(name: str, state: Path, pulumi: Path) -> Generator[Cluster]:
    make, prepare = LIVES[name]
    with a_cluster(state, pulumi, make()) as cluster:
        where = {"CreateBucketConfiguration": {"LocationConstraint": cluster.plan.aws.region}}
        linked = {"Bucket": "example-data"} | (where if cluster.plan.aws.region != "us-east-1" else {})
        cluster.client("s3").create_bucket(**linked)  # of the site: Lustre links it
        yield replace(cluster, plan=prepare(cluster))


def own(outcome: Outcome) -> list[str]:
    return [f"{c.op} {c.type} {c.name}" for c in outcome.changes if not c.follows]


@pytest.mark.parametrize("name", LIVES)
def test_up_jobs_and_down_run_under_the_generated_policies(name: str, tmp_path: Path, pulumi: Path) -> None:
    """Up, drift, edit and destroy with the apply role; previews with the plan role. Every call is checked."""
    with a_life(name, tmp_path / "state", pulumi) as cluster:
        apply = as_operator(cluster, PolicyRole.APPLY)
        plan = as_operator(cluster, PolicyRole.PLAN)
        run.preview(plan.target, plan.program)
        apply.up()
        assert own(run.preview_refreshed(plan.target, plan.program)) == []
        tags = (*apply.plan.aws.tags, ("cost-center", "vision"))
        edited = replace(apply, plan=aws(tags=tags)(apply.plan))
        assert len(own(edited.up())) > 20, "a site tag goes onto every resource"
        assert own(run.preview_refreshed(plan.target, edited.program)) == []
        if isinstance(apply.plan.aws.network, SiteNetwork):
            others_interface_is_refused(apply)
        emptied(place_of(apply), delete_data=True)
        assert run.deployed_resources(cluster.target) == ()


def others_interface_is_refused(operator: Cluster) -> None:
    """Regression (X4): it is in another subnet of the shared VPC."""
    network = operator.plan.aws.network
    assert isinstance(network, SiteNetwork)
    admin, ec2 = operator.client("ec2"), own_client(operator, "ec2")
    (subnet,) = (s for s in admin.describe_subnets()["Subnets"] if s["CidrBlock"] == OF_OTHERS)
    other, ours = (
        admin.create_network_interface(SubnetId=one)["NetworkInterface"]["NetworkInterfaceId"]
        for one in (subnet["SubnetId"], network.subnets[0].id)
    )
    with pytest.raises(ClientError, match="UnauthorizedOperation"):
        ec2.modify_network_interface_attribute(NetworkInterfaceId=other, SourceDestCheck={"Value": False})
    ec2.modify_network_interface_attribute(NetworkInterfaceId=ours, SourceDestCheck={"Value": False})
    for one in (other, ours):
        admin.delete_network_interface(NetworkInterfaceId=one)


def place_of(cluster: Cluster) -> ClusterAccess:
    """Where `gpucluster down` acts, with the keys of the environment."""
    return replace(
        a_place(cluster),
        cloud=lambda region: AwsCloud(region, lambda _: own_client(cluster, "ec2")),
        control=lambda region, bucket: S3Control(region, bucket, lambda: own_client(cluster, "s3")),
    )


def test_up_with_the_plan_policy_is_refused_by_the_name_of_the_action(cluster: Cluster) -> None:
    """The engine begins several resources at once, so the first refusals are those of any of them."""
    plan = as_operator(cluster, PolicyRole.PLAN)
    with pytest.raises(GpuclusterError) as caught:
        plan.up()
    refused = set(re.findall(r"is not authorized to perform: (\w+:\w+)", str(caught.value)))
    assert refused
    assert not [one for one in refused if re.search(":(Describe|Get|List)", one)], "the policy has them"
    ec2, iam = cluster.client("ec2"), cluster.client("iam")
    assert [v for v in ec2.describe_vpcs()["Vpcs"] if not v["IsDefault"]] == []
    assert [r["RoleName"] for r in iam.list_roles()["Roles"]] == ["operator-plan"]
    assert cluster.client("s3").list_buckets()["Buckets"] == []


# Reads that only the upstream provider makes: the provider of the sandbox asks for them.
UPSTREAM_READS = ("s3:GetBucketCORS", "iam:ListRolePolicies", "secretsmanager:GetResourcePolicy", "ec2:DescribeNetworkAcls")  # fmt: skip


def test_refresh_without_one_read_of_the_upstream_provider_is_refused(cluster: Cluster) -> None:
    cluster.up()
    scope = a_scope(cluster.plan)
    for action in UPSTREAM_READS:
        texts = texts_without(scope, PolicyRole.PLAN, action)
        reader = as_caller(cluster, f"without-{action.replace(':', '-')}", texts)
        with pytest.raises(GpuclusterError) as caught:
            run.preview_refreshed(reader.target, reader.program)
        assert f"not authorized to perform: {action}" in str(caught.value)


def test_role_without_the_boundary_is_refused(cluster: Cluster) -> None:
    """The policy for a spec with a boundary creates and changes only roles with that boundary."""
    bounded = replace(cluster, plan=with_boundary(cluster))
    operator = as_operator(bounded, PolicyRole.APPLY)
    with pytest.raises(GpuclusterError) as caught:
        replace(operator, plan=cluster.plan).up()
    assert "not authorized to perform: iam:CreateRole" in str(caught.value)
    assert own(operator.up()) != []
    role = next(r["RoleName"] for r in cluster.client("iam").list_roles()["Roles"] if r["RoleName"].startswith("burst-head-"))  # fmt: skip
    iam = own_client(operator, "iam")
    for call in (
        lambda: iam.delete_role_permissions_boundary(RoleName=role),
        lambda: iam.put_role_permissions_boundary(RoleName=role, PermissionsBoundary=f"arn:aws:iam::{ACCOUNT}:policy/other"),
        lambda: iam.create_role(RoleName="burst-head-abcdefg-2", AssumeRolePolicyDocument="{}"),
        lambda: iam.put_role_policy(RoleName="operator-apply", PolicyName="more", PolicyDocument='{"Statement":[]}'),
    ):  # fmt: skip
        with pytest.raises(ClientError, match="AccessDenied"):
            call()


def test_apply_role_leaves_other_clusters_alone(cluster: Cluster) -> None:
    """Resources of another cluster, of the site and of a longer name that begins alike."""
    operator = as_operator(cluster, PolicyRole.APPLY)
    admin_ec2, ec2 = cluster.client("ec2"), own_client(operator, "ec2")
    other = [{"ResourceType": "vpc", "Tags": [{"Key": "gpucluster:cluster", "Value": "burst-2"}]}]
    vpc = admin_ec2.create_vpc(CidrBlock="10.9.0.0/16", TagSpecifications=other)["Vpc"]["VpcId"]
    plain = admin_ec2.create_vpc(CidrBlock="10.8.0.0/16")["Vpc"]["VpcId"]
    ours = [{"Key": "gpucluster:cluster", "Value": "burst"}]
    for one in (vpc, plain):
        with pytest.raises(ClientError, match="UnauthorizedOperation"):
            ec2.delete_vpc(VpcId=one)
        with pytest.raises(ClientError, match="UnauthorizedOperation"):
            ec2.create_tags(Resources=[one], Tags=ours)  # a claim
        with pytest.raises(ClientError, match="UnauthorizedOperation"):
            ec2.create_subnet(VpcId=one, CidrBlock="10.9.0.0/24")
    with pytest.raises(ClientError, match="UnauthorizedOperation"):
        ec2.create_vpc(CidrBlock="10.7.0.0/16")  # without the tag of the cluster
    admin_s3, s3 = cluster.client("s3"), own_client(operator, "s3")
    for bucket in ("burst-2-abcdefg", "burst-data"):
        admin_s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "us-east-2"})
        for call in (
            lambda name=bucket: s3.delete_bucket(Bucket=name),
            lambda name=bucket: s3.put_object(Bucket=name, Key="x", Body=b""),
            lambda name=bucket: s3.get_object(Bucket=name, Key="x"),
        ):
            with pytest.raises(ClientError, match="AccessDenied"):
                call()
    iam = own_client(operator, "iam")
    with pytest.raises(ClientError, match="AccessDenied"):
        iam.create_role(RoleName="burst-2-head-abcdefg", AssumeRolePolicyDocument="{}")
    with pytest.raises(ClientError, match="AccessDenied"):
        iam.attach_role_policy(
            RoleName="burst-head-abcdefg", PolicyArn="arn:aws:iam::aws:policy/AdministratorAccess"
        )
    secrets = own_client(operator, "secretsmanager")
    with pytest.raises(ClientError, match="AccessDenied"):
        secrets.get_secret_value(SecretId="burst-munge-abcdefg")

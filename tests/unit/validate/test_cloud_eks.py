"""`cloud.eks` over the sandbox's EKS: each addition is found, and its remedy takes it back. And what AWS must show without Slurm."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from support.aws_cli import AwsCli, aws_cli
from support.builders import a_kube_plan
from support.clouds import RunningCloud, a_network, running_cloud
from support.eks_plans import ADMIN, BOTH, EVERYTHING, PERSON, hybrid
from support.kube import BOUND
from support.kube_steps import kube_steps

from gpucluster.checks.check import CheckResult, CheckStatus, QueryOutput
from gpucluster.checks.kubernetes.eks import EksWant, EntryWant, PodRoleWant
from gpucluster.checks.kubernetes.table import KUBERNETES
from gpucluster.plan import names
from gpucluster.plan.security_rules import roles, rules
from gpucluster.sandbox.aws.ec2.state.values import Timing
from gpucluster.validate.cloud_reader import CloudReader
from gpucluster.validate.kubernetes_expectations import kubernetes_expectations

pytestmark = pytest.mark.loopback
CHECK = KUBERNETES["cloud.eks"]
POLICIES = "arn:aws:eks::aws:cluster-access-policy/"
ANN, BOB = (f"arn:aws:iam::123456789012:user/{one}" for one in ("ann", "bob"))
WANT = EksWant(
    cluster="kube",
    entries=(EntryWant(principal=ANN, groups=("kube:research",)),),
    public_from=("198.51.100.0/24",),
    teams=("research",),
    groups=("kube:research",),
    pods=(PodRoleWant(namespace="research", account="trainer", role="kube-trainer-0a1b2c"),),
)


@pytest.fixture(scope="module")
def cloud() -> Iterator[RunningCloud]:
    with running_cloud(timing=Timing(cluster_s=600.0, update_s=0.0)) as found:
        yield found


@pytest.fixture(scope="module")
def aws(cloud: RunningCloud, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AwsCli]:
    with aws_cli(cloud, tmp_path_factory.mktemp("home")) as found:
        yield found


def trusted(cloud: RunningCloud, name: str, service: str, *actions: str) -> str:
    statement = {"Effect": "Allow", "Principal": {"Service": service}, "Action": list(actions)}
    trust = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    return cloud.client("iam").create_role(RoleName=name, AssumeRolePolicyDocument=trust)["Role"]["Arn"]


@dataclass
class Deployed:
    """A cluster as the program makes it: the creator's entry, one of a member, and the role of a team's pods."""

    cloud: RunningCloud
    role: str  # of pods, of others

    @property
    def eks(self) -> Any:
        return self.cloud.client("eks")

    def checked(self, want: EksWant = WANT) -> CheckResult:
        reader = CloudReader("kube", self.cloud.client)
        answers = (json.dumps(reader.read(query.argv), default=str) for query in CHECK.query(want))
        return CHECK.evaluate(CHECK.parse(tuple(QueryOutput(code=0, stdout=one) for one in answers)), want)

    def admit(self, principal: str, *groups: str) -> None:
        self.eks.create_access_entry(
            clusterName="kube", principalArn=principal, kubernetesGroups=list(groups)
        )

    def allow(self, principal: str, policy: str, **scope: Any) -> None:
        of = {"clusterName": "kube", "principalArn": principal, "policyArn": POLICIES + policy}
        self.eks.associate_access_policy(**of, accessScope=scope or {"type": "cluster"})

    def give(self, role: str, namespace: str, account: str) -> None:
        of = {"clusterName": "kube", "namespace": namespace, "serviceAccount": account}
        self.eks.create_pod_identity_association(**of, roleArn=role)


@pytest.fixture(scope="module")
def made(cloud: RunningCloud) -> Deployed:
    network, pods = a_network(cloud), ("pods.eks.amazonaws.com", "sts:AssumeRole", "sts:TagSession")
    plane = trusted(cloud, "kube-control-plane-1234567", "eks.amazonaws.com", "sts:AssumeRole")
    cloud.client("iam").attach_role_policy(
        RoleName="kube-control-plane-1234567", PolicyArn="arn:aws:iam::aws:policy/AmazonEKSClusterPolicy"
    )
    cloud.client("eks").create_cluster(
        name="kube", version="1.35", roleArn=plane,
        accessConfig={"authenticationMode": "API", "bootstrapClusterCreatorAdminPermissions": True},
        resourcesVpcConfig={
            "subnetIds": [*network.subnets.values()], "endpointPrivateAccess": True, "endpointPublicAccess": True,
            "publicAccessCidrs": ["198.51.100.0/24"],
        },
    )  # fmt: skip
    cloud.clock.move(1000)
    found = Deployed(cloud, trusted(cloud, "of-others", *pods))
    found.admit(ANN, "kube:research")
    found.give(trusted(cloud, "kube-trainer-0a1b2c-1234567", *pods), "research", "trainer")
    return found


def test_cluster_of_the_program_passes(made: Deployed) -> None:
    found = made.checked()
    assert (found.verdict, found.found) == (CheckStatus.PASS, "2 access entries")


Do = Callable[[Deployed], object]


def second_admin(of: Deployed) -> None:
    of.admit(BOB)
    of.allow(BOB, "AmazonEKSClusterAdminPolicy")


def editor_of_a_team(of: Deployed) -> None:
    of.admit(BOB)
    of.allow(BOB, "AmazonEKSEditPolicy", type="namespace", namespaces=["research"])


SABOTAGES: dict[str, tuple[Do, str]] = {
    "a second admin": (second_admin, f"{BOB} is not of the spec, and has AmazonEKSClusterAdminPolicy"),
    "an editor of a team": (editor_of_a_team, f"{BOB} is not of the spec, and has AmazonEKSEditPolicy in research"),
    "another member of a team": (lambda m: m.admit(BOB, "kube:research"), f"{BOB} is not of the spec, and is in kube:research"),
    "a member who is admin": (lambda m: m.allow(ANN, "AmazonEKSAdminPolicy"), f"{ANN} also has AmazonEKSAdminPolicy"),
    "a role for the team's pods": (lambda m: m.give(m.role, "research", "default"), "pods of research/default also get the role of-others, which is not of the spec"),
}  # fmt: skip


@pytest.mark.parametrize(("do", "words"), SABOTAGES.values(), ids=SABOTAGES)
def test_addition_is_found_and_its_remedy_takes_it_back(
    aws: AwsCli, made: Deployed, do: Do, words: str
) -> None:
    do(made)
    found = made.checked()
    assert (found.verdict, found.found) == (CheckStatus.FAIL, words)
    for step in found.remedy.split("; "):
        aws.typed(step)
    assert made.checked().verdict is CheckStatus.PASS


def test_reader_of_others_is_a_note(aws: AwsCli, made: Deployed) -> None:
    made.admit(BOB, "auditors")
    made.allow(BOB, "AmazonEKSViewPolicy")
    made.give(made.role, "monitoring", "agent")
    found = made.checked()
    assert (found.verdict, found.found) == (
        CheckStatus.PASS,
        f"3 access entries; of others: {BOB} has AmazonEKSViewPolicy and is in auditors",
    )
    aws.typed(f"aws eks delete-access-entry --cluster-name kube --principal-arn {BOB}")


def test_wider_public_range_is_found(made: Deployed) -> None:
    """A narrower one is nobody's fault."""
    assert made.checked(replace(WANT, public_from=("198.51.0.0/16",))).verdict is CheckStatus.PASS
    for declared in ((), ("198.51.100.0/25",), ("192.0.2.0/24",)):
        found = made.checked(replace(WANT, public_from=declared))
        assert found.found == "the API server's public address is open to 198.51.100.0/24"
        assert found.remedy == "pulumi up --refresh --stack kube"


def test_what_the_program_declares_and_is_gone_is_found(made: Deployed) -> None:
    entries = (EntryWant(principal=ANN, groups=("kube:serving",), admin=True), EntryWant(principal=BOB))
    pods = (
        replace(WANT.pods[0], role="kube-another-0a1b2c"),
        PodRoleWant(namespace="karpenter", account="karpenter", role="kube-karpenter"),
    )
    found = made.checked(replace(WANT, entries=entries, pods=pods))
    assert found.found == (
        f"the access entry of {BOB} is missing, {ANN} is in other groups: also kube:research, not kube:serving,"
        f" {ANN} has lost AmazonEKSClusterAdminPolicy, pods of karpenter/karpenter have lost their role,"
        " pods of research/trainer get the role kube-trainer-0a1b2c-1234567, not kube-another-0a1b2c"
    )
    assert found.remedy == "pulumi up --refresh --stack kube"


def answer(**changes: Any) -> QueryOutput:
    cluster = {
        "createdAt": "2026-11-01 00:00:00+00:00",
        "accessConfig": {"authenticationMode": "API"},
        "resourcesVpcConfig": {"endpointPublicAccess": False},
    }
    whole = {"Cluster": cluster, "AccessEntries": [], "PodIdentities": [], **changes}
    return QueryOutput(code=0, stdout=json.dumps(whole))


def entry(principal: str, policy: str, kind: str = "STANDARD", day: int = 20) -> dict[str, Any]:
    return {
        "principalArn": principal, "type": kind, "kubernetesGroups": [], "createdAt": f"2026-11-{day:02} 00:00:00+00:00",
        "Policies": [{"policyArn": POLICIES + policy, "accessScope": {"type": "cluster", "namespaces": []}}],
    }  # fmt: skip


def test_entries_of_awss_own_services_and_of_nodes_are_ordinary() -> None:
    linked = "arn:aws:iam::123456789012:role/aws-service-role/eks.amazonaws.com/AWSServiceRoleForAmazonEKS"
    entries = [
        entry(linked, "AmazonEKSClusterInsightsPolicy", day=1),
        {**entry("arn:aws:iam::123456789012:role/kube-node-groups-1234567", ""), "type": "EC2_LINUX", "Policies": []},
    ]  # fmt: skip
    want = replace(WANT, entries=(), pods=())
    found = CHECK.evaluate(CHECK.parse((answer(AccessEntries=entries),)), want)
    assert (found.verdict, found.found) == (CheckStatus.PASS, "2 access entries")


def test_mode_that_reads_aws_auth_is_found() -> None:
    cluster = {
        "createdAt": "2026-11-01 00:00:00+00:00",
        "accessConfig": {"authenticationMode": "API_AND_CONFIG_MAP"},
        "resourcesVpcConfig": {"endpointPublicAccess": False},
    }
    found = CHECK.evaluate(CHECK.parse((answer(Cluster=cluster),)), replace(WANT, entries=(), pods=()))
    assert found.found == "the cluster admits by API_AND_CONFIG_MAP, not by access entries alone"


# --- what AWS must show of a plan ---------------------------------------------------------------


def wanted(*changes: Any, bound: bool) -> dict[str, Any]:
    plan, steps = a_kube_plan(*changes), kube_steps(*changes)
    bindings = replace(BOUND, subnets={"us-west-2a": "subnet-1"}) if bound else None
    every = kubernetes_expectations(plan, steps, charts=True, containers=False, bindings=bindings)
    return {one.check: one.want for one in every if one.check.startswith("cloud.")}


def test_groups_of_a_cluster_without_slurm_are_compared_without_bindings() -> None:
    plan, found = a_kube_plan(), wanted(bound=False)
    assert found.keys() == {"cloud.eks", "cloud.rules"}
    assert found["cloud.rules"].groups == roles(plan)
    assert len(found["cloud.rules"].rules) == len(rules(plan))
    assert found["cloud.rules"].place.words() == (f"cluster={plan.name}",)


def test_network_and_file_systems_are_compared_with_bindings() -> None:
    found = wanted(bound=True)
    assert found.keys() == {"cloud.eks", "cloud.rules", "cloud.network", "cloud.file_systems"}
    assert found["cloud.network"].private == ("subnet-1",)
    assert found["cloud.rules"].place.words() == ("cluster=kube", "vpc-of=subnet-1")


def test_entries_and_roles_of_pods_are_the_programs() -> None:
    found = wanted(*EVERYTHING, bound=False)["cloud.eks"]
    assert {one.principal: one.admin for one in found.entries} == {ADMIN: True, BOTH: True, PERSON: False}
    assert found.public_from == ("198.51.100.0/24",)
    trainer = names.pods_role("research", "trainer")
    assert {one.role for one in found.pods} >= {"kube-vpc-cni", "kube-karpenter", f"kube-{trainer}"}


def test_network_beside_slurm_is_looked_at_once() -> None:
    plan = hybrid()
    every = kubernetes_expectations(plan, kube_steps(), charts=True, containers=False, bindings=BOUND)
    assert [one.check for one in every if one.check.startswith("cloud.")] == ["cloud.eks"]

"""CreateCluster of the sandbox's EKS starts a real API server, which the real `aws eks get-token` opens for those whom EKS admits."""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.clouds import OPERATOR, REGION, RunningCloud, a_network, running_cloud
from support.waiting import BOUND_S, eventually

from gpucluster import catalog
from gpucluster.plan.kubernetes import allocatable
from gpucluster.sandbox.aws.credentials import Key
from gpucluster.sandbox.aws.ec2.state.values import Timing
from gpucluster.sandbox.aws.eks import tokens
from gpucluster.sandbox.aws.eks.nodes import Nodes
from gpucluster.sandbox.aws.signature import BadSignature
from gpucluster.sandbox.kubernetes import eks_nodes, programs
from gpucluster.sandbox.kubernetes.planes import RealPlanes
from gpucluster.sandbox.kubernetes.programs import Programs

NAME = "kube"
TIMING = Timing(pending_s=0.0, ending_s=0.0, cluster_s=0.0, nodegroup_s=0.0, addon_s=0.0, update_s=0.0)
TRUST = {"control-plane": "eks.amazonaws.com", "nodes": "ec2.amazonaws.com", "reader": "ec2.amazonaws.com"}
ADMIN = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"


@dataclass
class Site:
    """A cloud whose EKS has real control planes."""

    cloud: RunningCloud
    planes: RealPlanes
    programs: Programs
    roles: dict[str, str]
    folder: Path

    @property
    def eks(self) -> Any:
        return self.cloud.client("eks")

    def kubectl(self, *args: str, key: Key | None = None) -> subprocess.CompletedProcess[str]:
        """Run kubectl with the kubeconfig that `aws eks update-kubeconfig` has written, as somebody with AWS keys."""
        return self._run([str(self.programs["kubectl"]), *args], key)

    def aws(self, *args: str, key: Key | None = None) -> subprocess.CompletedProcess[str]:
        return self._run(["aws", *args], key)

    def _run(self, argv: list[str], key: Key | None) -> subprocess.CompletedProcess[str]:
        who = key or self.cloud.api.operator
        kept = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
        venv = Path(
            os.environ["VIRTUAL_ENV"] if "VIRTUAL_ENV" in os.environ else Path(__file__).parents[2] / ".venv"
        )
        env = {
            **kept,
            "PATH": f"{venv / 'bin'}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "KUBECONFIG": str(self.folder / "kubeconfig"),
            "AWS_ENDPOINT_URL": self.cloud.endpoint,
            "AWS_ACCESS_KEY_ID": who.access_key,
            "AWS_SECRET_ACCESS_KEY": who.secret,
            "AWS_DEFAULT_REGION": REGION,
            **({"AWS_SESSION_TOKEN": who.token} if who.token else {}),
        }
        return subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=BOUND_S)

    def settle(self) -> None:
        """What the cloud's own loop does: node groups take a step, and their instances become nodes."""
        model, now = self.cloud.model, self.cloud.clock.now
        nodes = Nodes(model, self.cloud.api.moto)
        with model.lock:
            nodes.step(now)
            found = [
                node
                for group in model.eks.groups_of(NAME)
                for node in eks_nodes.nodes(
                    group, nodes.living(group, now), REGION, pool="", arch="amd64",
                    offers=lambda machine, _: allocatable((catalog.load().machines[machine],), {}),
                )
            ]  # fmt: skip
        self.planes.nodes(NAME, found)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    built = programs.find_or_build(print)
    folder = tmp_path_factory.mktemp("eks")
    with running_cloud(timing=TIMING) as cloud:

        def identify(cluster: str, token: str) -> tuple[str, list[str]] | None:
            now = cloud.clock.now
            try:
                who = tokens.caller(token, cluster, cloud.api.ring, now=now, wall=time.time())
            except BadSignature:
                return None
            role = "" if who.role is None else cloud.api.moto.role_arn(who.role)
            return tokens.identity(cloud.model.eks, cluster, who, role)

        planes = RealPlanes(built, folder / "planes", identify)
        cloud.model.eks.planes = planes
        iam = cloud.client("iam")
        roles = dict[str, str]()
        for name, service in TRUST.items():
            row = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}
            trust = json.dumps({"Version": "2012-10-17", "Statement": [row]})
            roles[name] = iam.create_role(RoleName=name, AssumeRolePolicyDocument=trust)["Role"]["Arn"]
        policy = "arn:aws:iam::aws:policy/AmazonEKSClusterPolicy"
        iam.attach_role_policy(RoleName="control-plane", PolicyArn=policy)
        for name in ("AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly"):
            iam.attach_role_policy(RoleName="nodes", PolicyArn=f"arn:aws:iam::aws:policy/{name}")
        made = Site(cloud, planes, built, roles, folder)
        network = a_network(cloud)
        vpc = {"subnetIds": [*network.subnets.values()], "endpointPrivateAccess": True}
        made.eks.create_cluster(
            name=NAME, version="1.36", roleArn=roles["control-plane"], resourcesVpcConfig=vpc,
            accessConfig={"authenticationMode": "API"},
        )  # fmt: skip
        try:
            yield made
        finally:
            planes.close()


def active(site: Site) -> dict[str, Any]:
    def state() -> dict[str, Any] | None:
        found = site.eks.describe_cluster(name=NAME)["cluster"]
        return found if found["status"] == "ACTIVE" else None

    return eventually("the cluster is active", state)


def test_creator_comes_in_by_the_words_of_aws(site: Site) -> None:
    assert site.eks.describe_cluster(name=NAME)["cluster"]["status"] in ("CREATING", "ACTIVE")
    assert active(site)["endpoint"].startswith("https://127.0.0.1:")
    told = site.aws("eks", "update-kubeconfig", "--name", NAME)
    assert told.returncode == 0, told.stderr
    may = site.kubectl("auth", "can-i", "*", "*", "--all-namespaces")
    assert (may.returncode, may.stdout.strip()) == (0, "yes"), may.stderr
    who = json.loads(site.kubectl("auth", "whoami", "-o", "json").stdout)["status"]["userInfo"]
    assert who["username"] == f"arn:aws:iam::123456789012:user/{OPERATOR and 'operator'}"


def test_role_comes_in_with_its_entry_and_its_groups_alone(site: Site) -> None:
    active(site)
    site.aws("eks", "update-kubeconfig", "--name", NAME)
    now = site.cloud.clock.now
    key = site.cloud.api.ring.assumed("reader", "AROA1", "ann", now, 3600.0)
    refused = site.kubectl("get", "nodes", key=key)
    assert refused.returncode == 1
    assert "Unauthorized" in refused.stderr or "must be logged in" in refused.stderr
    asked = {"clusterName": NAME, "principalArn": site.roles["reader"]}
    site.eks.create_access_entry(**asked, kubernetesGroups=["readers"])
    who = json.loads(site.kubectl("auth", "whoami", "-o", "json", key=key).stdout)["status"]["userInfo"]
    assert who["username"] == "arn:aws:sts::123456789012:assumed-role/reader/ann"
    assert "readers" in who["groups"]
    forbidden = site.kubectl("get", "nodes", key=key)
    assert forbidden.returncode == 1
    assert "forbidden" in forbidden.stderr
    site.eks.associate_access_policy(**asked, policyArn=ADMIN, accessScope={"type": "cluster"})
    # the API server remembers for ten seconds whose a token is, as that of EKS does
    eventually("he may read", lambda: site.kubectl("get", "nodes", key=key).returncode == 0)
    site.eks.delete_access_entry(**asked)
    eventually("he comes in no more", lambda: site.kubectl("get", "nodes", key=key).returncode == 1)


@pytest.mark.parametrize("spoilt", ["another cluster", "another key", "a changed name", "no token of EKS"])
def test_token_that_is_not_of_this_cluster_is_nobodys(site: Site, spoilt: str) -> None:
    ring, now = site.cloud.api.ring, site.cloud.clock.now
    told = site.aws("eks", "get-token", "--cluster-name", "other" if spoilt == "another cluster" else NAME)
    token = json.loads(told.stdout)["status"]["token"]
    good = tokens.caller(
        token, "other" if spoilt == "another cluster" else NAME, ring, now=now, wall=time.time()
    )
    assert good == site.cloud.api.operator.principal
    cluster = NAME
    if spoilt == "another key":
        wrong = Key(access_key=OPERATOR[0], secret="guessed", principal=good)
        token = json.loads(site.aws("eks", "get-token", "--cluster-name", NAME, key=wrong).stdout)["status"][
            "token"
        ]
    elif spoilt == "a changed name":
        cluster = "kubf"
    elif spoilt == "no token of EKS":
        token = "abc"
    with pytest.raises(BadSignature):
        tokens.caller(token, cluster, ring, now=now, wall=time.time())


def test_token_ends_after_a_quarter_of_an_hour(site: Site) -> None:
    ring, now = site.cloud.api.ring, site.cloud.clock.now
    token = json.loads(site.aws("eks", "get-token", "--cluster-name", NAME).stdout)["status"]["token"]
    assert tokens.caller(token, NAME, ring, now=now, wall=time.time() + 890)
    with pytest.raises(BadSignature):
        tokens.caller(token, NAME, ring, now=now, wall=time.time() + 910)


def test_instances_of_a_node_group_become_nodes_and_run_pods(site: Site) -> None:
    active(site)
    site.aws("eks", "update-kubeconfig", "--name", NAME)
    subnets = site.eks.describe_cluster(name=NAME)["cluster"]["resourcesVpcConfig"]["subnetIds"]
    site.eks.create_nodegroup(
        clusterName=NAME, nodegroupName="gpu", nodeRole=site.roles["nodes"], subnets=subnets,
        scalingConfig={"minSize": 2, "maxSize": 2, "desiredSize": 2}, instanceTypes=["p5.48xlarge"],
        labels={"pool": "gpu"}, taints=[{"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}],
    )  # fmt: skip

    def nodes() -> list[dict[str, Any]]:
        site.settle()
        return json.loads(site.kubectl("get", "nodes", "-o", "json").stdout)["items"]

    def ready() -> list[dict[str, Any]] | None:
        found = nodes()
        conditions = [c for one in found for c in one["status"].get("conditions", ()) if c["type"] == "Ready"]
        return (
            found
            if len(found) == 2 and all(c["status"] == "True" for c in conditions) and conditions
            else None
        )

    found = eventually("two nodes are ready", ready)
    labels = found[0]["metadata"]["labels"]
    assert (labels["pool"], labels["eks.amazonaws.com/nodegroup"]) == ("gpu", "gpu")
    assert labels["node.kubernetes.io/instance-type"] == "p5.48xlarge"
    assert found[0]["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    assert {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"} in found[0]["spec"]["taints"]
    instances = {one["spec"]["providerID"].rpartition("/")[2] for one in found}
    first = min(instances)
    site.cloud.client("ec2").terminate_instances(InstanceIds=[first])
    gone = eventually(
        "another instance takes its place",
        lambda: (
            (ids := {one["spec"]["providerID"].rpartition("/")[2] for one in nodes()})
            and len(ids) == 2
            and first not in ids
        ),
    )
    assert gone


def test_deleted_cluster_leaves_no_process_and_no_file(site: Site) -> None:
    plane = site.planes.plane(NAME)
    assert plane is not None
    pids = plane.processes.pids()
    assert {"etcd", "kube-apiserver", "kwok"} <= {*pids}
    if "gpu" in site.eks.list_nodegroups(clusterName=NAME)["nodegroups"]:
        site.eks.delete_nodegroup(clusterName=NAME, nodegroupName="gpu")
        eventually("the group is gone", lambda: site.settle() or not site.eks.list_nodegroups(clusterName=NAME)["nodegroups"])  # fmt: skip
    site.eks.delete_cluster(name=NAME)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids.values())
    assert not (site.folder / "planes" / NAME).exists()
    site.cloud.clock.move(1)
    assert site.eks.list_clusters()["clusters"] == []

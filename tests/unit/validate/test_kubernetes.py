"""`validate` of Kubernetes over stand-ins of kubectl, helm and EC2: each fault is found by its own checks alone."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.builders import a_kube_plan
from support.cluster import Cluster, installed
from support.kube_rights import binding, standing, subject
from support.kube_steps import kube_steps

from gpucluster.catalog import eks_addon_controllers, eks_addon_gpu_daemon_sets
from gpucluster.checks.check import CheckStatus
from gpucluster.checks.kubernetes import controllers
from gpucluster.checks.kubernetes.eks import PodRoleWant
from gpucluster.k8s_apply.clock import REPEAT_S
from gpucluster.k8s_apply.up import up
from gpucluster.plan import names
from gpucluster.plan.model import KubernetesOnAws
from gpucluster.plan.model.eks import EksControlPlane
from gpucluster.plan.model.values import quantity
from gpucluster.plan.security_rules import roles, rules
from gpucluster.validate.kubernetes_expectations import kubernetes_expectations
from gpucluster.validate.kubernetes_session import KubernetesSession
from gpucluster.validate.pod_manifests import pod_sets
from gpucluster.validate.results import Result
from gpucluster.validate.run import run_session
from gpucluster.validate.validation_pods import ValidationPods

AWAY = "The connection to the server 10.0.0.1:443 was refused - did you specify the right host or port?"
NO_WEBHOOK = (
    'Error from server (InternalError): error when creating "STDIN": Internal error occurred: failed calling webhook "mclusterqueue.kb.io":'
    ' failed to call webhook: Post "https://kueue-webhook-service.kueue-system.svc:443/mutate": no endpoints available'
)
Object = dict[str, Any]
STEPS = kube_steps()


def nodes_of(of: KubernetesOnAws) -> Iterator[Object]:
    """The always-on nodes of each pool, and those of the add-ons, as EKS makes them."""
    part, number = of.kubernetes, 0
    plane = part.control_plane
    assert isinstance(plane, EksControlPlane)
    system = [one for one in plane.groups if one.pool == names.SYSTEM_NODES]
    rows = [(pool.min, pool.labels, pool.taints, pool.allocatable) for pool in part.pools]
    for count, labels, taints, offer in [*rows, *((g.nodes, g.labels, g.taints, {}) for g in system)]:
        for _ in range(count):
            number += 1
            yield {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": f"ip-10-60-0-{number}", "labels": dict(labels)},
                "spec": {
                    "providerID": f"aws:///us-west-2a/i-{number:017x}",
                    "taints": [{"key": t.key, "value": t.value, "effect": t.effect} for t in taints],
                },
                "status": {
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "allocatable": {name: quantity(name, amount) for name, amount in offer.items()},
                },
            }


@dataclass
class Ec2:
    """A stand-in of AWS: an instance for each node, launched an hour ago, the groups of the plan, and its cluster in EKS."""

    cluster: Cluster
    gone: set[str] = field(default_factory=set)
    more: list[Object] = field(default_factory=list)
    rules: list[Object] = field(default_factory=lambda: list(rules_of(a_kube_plan())))
    principals: list[str] = field(default_factory=list)

    def __call__(self, service: str) -> "Ec2":
        assert service in ("ec2", "eks")
        return self

    def get_paginator(self, operation: str) -> "Paginator":
        return Paginator(getattr(self, operation))

    def describe_security_groups(self, **_: Any) -> list[Object]:
        found = [
            {"GroupId": f"sg-{role}", "GroupName": f"kube-{role}-1234567"} for role in roles(a_kube_plan())
        ]
        return [{"SecurityGroups": found}]

    def describe_security_group_rules(self, **_: Any) -> list[Object]:
        return [{"SecurityGroupRules": self.rules}]

    def describe_cluster(self, name: str) -> Object:
        vpc = {"endpointPublicAccess": False, "publicAccessCidrs": ["0.0.0.0/0"]}
        at = self.cluster.access().clock.now()
        return {
            "cluster": {
                "name": name,
                "createdAt": at,
                "accessConfig": {"authenticationMode": "API"},
                "resourcesVpcConfig": vpc,
            }
        }

    def list_access_entries(self, **_: Any) -> list[Object]:
        return [{"accessEntries": self.principals}]

    def describe_access_entry(self, principalArn: str, **_: Any) -> Object:  # noqa: N803 - EKS' word
        at = self.cluster.access().clock.now() + timedelta(days=1)
        return {
            "accessEntry": {
                "principalArn": principalArn,
                "type": "STANDARD",
                "kubernetesGroups": [],
                "createdAt": at,
            }
        }

    def list_associated_access_policies(self, **_: Any) -> list[Object]:
        arn = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
        return [{"associatedAccessPolicies": [{"policyArn": arn, "accessScope": {"type": "cluster"}}]}]

    def list_pod_identity_associations(self, **_: Any) -> list[Object]:
        return [{"associations": [{"associationId": str(i)} for i, _ in enumerate(self.pods())]}]

    def describe_pod_identity_association(self, associationId: str, **_: Any) -> Object:  # noqa: N803 - EKS' word
        one = self.pods()[int(associationId)]
        named = {"namespace": one.namespace, "serviceAccount": one.account, "associationId": associationId}
        return {"association": {**named, "roleArn": f"arn:aws:iam::123456789012:role/{one.role}-1234567"}}

    def pods(self) -> tuple[PodRoleWant, ...]:
        every = kubernetes_expectations(a_kube_plan(), STEPS, charts=True, containers=False)
        (want,) = (one.want for one in every if one.check == "cloud.eks")
        return want.pods

    def describe_instances(self, **filters: Any) -> list[Object]:
        assert filters == {"Filters": [{"Name": f"tag:{names.TAG_CLUSTER}", "Values": ["kube"]}]}
        ids = [one["spec"]["providerID"].rpartition("/")[2] for one in self.cluster.objects("Node").values()]
        rows = [self.instance(one) for one in ids if one not in self.gone]
        return [
            {
                "Reservations": [
                    {"ReservationId": f"r-{i}", "Instances": [one]}
                    for i, one in enumerate([*rows, *self.more])
                ]
            }
        ]

    def instance(
        self, ident: str, age_s: float = 3600, role: str = names.ROLE_KUBERNETES, state: str = "running"
    ) -> Object:
        launched = self.cluster.access().clock.now() - timedelta(seconds=age_s)
        tags = [{"Key": names.TAG_ROLE, "Value": role}]
        return {"InstanceId": ident, "LaunchTime": launched, "State": {"Name": state}, "Tags": tags}


@dataclass
class Paginator:
    """The pages of a list."""

    paginate: Callable[..., list[Object]]


def rules_of(of: KubernetesOnAws) -> Iterator[Object]:
    """The rules of the plan as EC2 lists them."""
    own = roles(of)
    for i, one in enumerate(rules(of)):
        peer = (
            {"ReferencedGroupInfo": {"GroupId": f"sg-{one.peer}"}}
            if one.peer in own
            else {"CidrIpv4": one.peer}
        )
        first, last = one.ports or (-1, -1)
        ports = {"IpProtocol": "tcp" if one.ports else "-1", "FromPort": first, "ToPort": last}
        yield {
            "SecurityGroupRuleId": f"sgr-{i}",
            "GroupId": f"sg-{one.group}",
            "IsEgress": one.out,
            **ports,
            **peer,
        }


def public(description: str = "") -> Object:
    """A rule that lets everybody in to the nodes."""
    rule = {"SecurityGroupRuleId": "sgr-public", "GroupId": f"sg-{names.ROLE_KUBERNETES}", "IsEgress": False}
    return {
        **rule,
        "IpProtocol": "tcp",
        "FromPort": 30080,
        "ToPort": 30080,
        "CidrIpv4": "0.0.0.0/0",
        "Description": description,
    }


@dataclass
class World:
    """A healthy cluster. `edit` changes an object in place."""

    cluster: Cluster
    ec2: Ec2

    def edit(self, key: str, change: Callable[[Object], Any]) -> None:
        """Also keep its controller from setting its status again."""
        objects = self.cluster.values()["objects"]
        (found,) = [one for name, one in objects.items() if name.endswith(key)]
        change(found)
        self.cluster.change(objects=objects, slow={found["kind"]: 10_000})

    def answers(self, pod: str, words: str, code: int, text: str) -> None:
        """Let agnhost answer so, in pods whose name ends so."""
        self.cluster.change(exec=[[pod, words, code, text]])

    def without(self, key: str) -> None:
        """Delete an object."""
        objects = self.cluster.values()["objects"]
        (gone,) = [name for name in objects if name.endswith(key)]
        del objects[gone]
        self.cluster.change(objects=objects)

    def results(self) -> dict[str, Result]:
        access, part = self.cluster.access(), a_kube_plan().kubernetes
        sets = tuple(pod_sets(part, STEPS))
        pods = ValidationPods(access, "kube", part.validation_image, sets)
        session = KubernetesSession(access, STEPS, self.ec2, pods)
        every = kubernetes_expectations(a_kube_plan(), STEPS, charts=True, containers=True)
        found = run_session("kube", session, every)
        return {one.id: one for one in found.results}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    cluster = installed(tmp_path, monkeypatch, processes=False)
    up(cluster.access(), STEPS, holder="ann@desk")
    plane = a_kube_plan().kubernetes.control_plane
    assert isinstance(plane, EksControlPlane)
    addons = [row for one in plane.addons for row in eks_addon_controllers(one.name)]
    addons += [("DaemonSet", name) for one in plane.addons for name in eks_addon_gpu_daemon_sets(one.name)]
    assert len(addons) > len(plane.addons)
    cluster.put(*nodes_of(a_kube_plan()), *(controller(kind, name) for kind, name in addons), *standing())
    return World(cluster, Ec2(cluster))


def controller(kind: str, name: str) -> Object:
    counts = {
        "Deployment": {"replicas": 2, "availableReplicas": 2, "updatedReplicas": 2, "observedGeneration": 1},
        "DaemonSet": {
            "desiredNumberScheduled": 5, "numberAvailable": 5, "updatedNumberScheduled": 5, "observedGeneration": 1,
        },
    }  # fmt: skip
    metadata = {"name": name, "namespace": "kube-system"}
    spec = {"replicas": 2} if kind == "Deployment" else {}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec, "status": counts[kind]}


def test_healthy_cluster_passes(world: World) -> None:
    found = world.results()
    assert {name: one.found for name, one in found.items() if one.verdict is not CheckStatus.PASS} == {}
    assert {
        "kube.api[cluster]",
        "kube.nodes[tune]",
        "kube.nodes[system]",
        "kube.offer[serve]",
    } <= found.keys()
    assert {one.check for one in found.values()} == {
        "kube.api", "kube.nodes", "kube.offer", "kube.controllers", "kube.charts", "kube.objects", "kube.launchers",
        "kube.queues", "kube.workloads", "kube.instances", "kube.rights", "kube.added", "cloud.eks", "cloud.rules",
        "kube.reach", "kube.dns", "kube.metadata", "kube.isolation", "kube.gpus", "kube.volumes",
    }  # fmt: skip


def ready(status: str, message: str = "") -> Callable[[Object], None]:
    def change(one: Object) -> None:
        one["status"]["conditions"] = [{"type": "Ready", "status": status, "message": message}]

    return change


def inactive(one: Object) -> None:
    one["status"] = {"conditions": [{"type": "Active", "status": "False", "message": "its flavor is gone"}]}


def scaled_to_0(one: Object) -> None:
    """As the API server shows it after the pods ended: it writes no zero into the status."""
    one["spec"]["replicas"] = 0
    one["status"] = {"observedGeneration": 1}


def selecting_none(one: Object) -> None:
    zero = dict.fromkeys(("desiredNumberScheduled", "numberAvailable", "updatedNumberScheduled"), 0)
    one["status"].update(zero)


NODE, QUEUE = "|Node||ip-10-60-0-1", "|ClusterQueue||kube-research"
FAULTS: list[tuple[str, Callable[[World], Any], dict[str, str]]] = [
    ("node not ready", lambda w: w.edit(NODE, ready("False", "the kubelet stopped")), {"kube.nodes[tune]": "not ready (the kubelet stopped)"}),
    ("node cordoned", lambda w: w.edit(NODE, lambda one: one["spec"].update(unschedulable=True)), {"kube.nodes[tune]": "cordoned"}),
    ("taint gone", lambda w: w.edit(NODE, lambda one: one["spec"].update(taints=[])), {"kube.nodes[tune]": "no taint"}),
    ("taint by hand", lambda w: w.edit(NODE, lambda one: one["spec"]["taints"].append({"key": "repair", "effect": "NoSchedule"})), {"kube.nodes[tune]": "taint repair=:NoSchedule"}),
    ("GPU gone", lambda w: w.edit(NODE, lambda one: one["status"]["allocatable"].update({"nvidia.com/gpu": "7"})), {"kube.offer[tune]": "7 of 8 nvidia.com/gpu"}),
    ("no EFA plugin", lambda w: w.edit(NODE, lambda one: one["status"]["allocatable"].pop("vpc.amazonaws.com/efa")), {"kube.offer[tune]": "0 of 4 vpc.amazonaws.com/efa"}),
    ("network plugin deleted", lambda w: w.without("|DaemonSet|kube-system|aws-node"), {"kube.controllers[cluster]": "kube-system/aws-node: missing"}),
    ("DNS away", lambda w: w.edit("|coredns", lambda one: one["status"].update(availableReplicas=0)), {"kube.controllers[cluster]": "kube-system/coredns: 0 of 2 pods"}),
    ("DNS scaled to 0", lambda w: w.edit("|coredns", scaled_to_0), {"kube.controllers[cluster]": "kube-system/coredns: scaled to 0 pods"}),
    ("network plugin selects no node", lambda w: w.edit("|aws-node", selecting_none), {"kube.controllers[cluster]": "kube-system/aws-node: selects none of 7 nodes"}),
    ("DCGM server tolerates no taint", lambda w: w.edit("|dcgm-server", selecting_none), {"kube.controllers[cluster]": "kube-system/dcgm-server: selects none of 7 nodes"}),
    ("network plugin away on a node", lambda w: w.edit("|aws-node", lambda one: one["status"].update(numberAvailable=4)), {"kube.controllers[cluster]": "kube-system/aws-node: 4 of 5 pods"}),
    ("controller of a chart scaled to 0", lambda w: w.edit("|Deployment|kueue-system|kueue-controller", scaled_to_0), {"kube.charts[cluster]": "kueue is deployed, but kueue-system/Deployment/kueue-controller is scaled to 0"}),
    ("controller of a chart deleted", lambda w: w.without("|Deployment|kueue-system|kueue-controller"), {"kube.charts[cluster]": "kueue-system/Deployment/kueue-controller is missing"}),
    ("role of a chart deleted", lambda w: w.without("|ClusterRole||karpenter-controller"), {"kube.charts[cluster]": "karpenter is deployed, but ClusterRole/karpenter-controller is missing"}),
    ("webhook away", lambda w: w.cluster.plant("--dry-run=server", NO_WEBHOOK, times=1000), {"kube.objects[cluster]": "is not compared: kubectl apply: Error from server (InternalError)"}),
    ("object deleted", lambda w: w.without("|NetworkPolicy|research|default-deny"), {"kube.objects[cluster]": "misses research/NetworkPolicy/default-deny"}),
    ("copy of the cluster", lambda w: w.edit("|Namespace||kube-system", lambda one: one["metadata"].update(uid="uid-of-the-copy")), {"kube.objects[cluster]": "UID uid-kube-system, and this is uid-of-the-copy"}),
    ("no right to patch", lambda w: w.cluster.change(forbidden={"NetworkPolicy": "networkpolicies"}), {"kube.objects[cluster]": "is not compared: you may not patch networkpolicies"}),
    ("queue inactive", lambda w: w.edit(QUEUE, inactive), {"kube.queues[cluster]": "its flavor is gone"}),
    ("node pool not ready", lambda w: w.edit("|NodePool||kube-serve-0", ready("False", "no subnet")), {"kube.launchers[cluster]": "no subnet"}),
    ("gang failed", lambda w: w.edit("|JobSet|research|tune", lambda one: one.update(status={"conditions": [{"type": "Failed", "status": "True", "message": "attempts used"}]})), {"kube.workloads[cluster]": "attempts used"}),
    ("a person may do everything", lambda w: w.cluster.put(binding("ops", "cluster-admin", subject("User", "bob"))), {"kube.rights[cluster]": "User bob may do everything by ClusterRoleBinding/ops"}),
    ("a team is admin of its namespace", lambda w: w.cluster.put(binding("ops", "admin", subject("Group", "kube:research"), namespace="research")), {"kube.rights[cluster]": "is admin in research by RoleBinding/research/ops"}),
    ("nodes are open to all", lambda w: w.ec2.rules.append(public()), {"cloud.rules[cloud]": "kubernetes-node from 0.0.0.0/0: tcp 30080-30080 is not of the plan (sgr-public)"}),
    ("nodes are open to a prefix list", lambda w: w.ec2.rules.append({**{k: v for k, v in public().items() if k != "CidrIpv4"}, "PrefixListId": "pl-1"}), {"cloud.rules[cloud]": "kubernetes-node from pl-1: tcp 30080-30080 is not of the plan"}),
    ("another admin in EKS", lambda w: w.ec2.principals.append("arn:aws:iam::123456789012:user/bob"), {"cloud.eks[cluster]": "user/bob is not of the spec, and has AmazonEKSClusterAdminPolicy"}),
    ("instance of a node gone", lambda w: w.ec2.gone.add(f"i-{1:017x}"), {"kube.instances[cluster]": "the node ip-10-60-0-1 has no instance"}),
    ("instance never joined", lambda w: w.ec2.more.append(w.ec2.instance("i-lost", 1200)), {"kube.instances[cluster]": "the instance i-lost is no node after 20 min"}),
    ("no way between pods", lambda w: w.answers("tune-team", "10.244.", 1, "TIMEOUT"), {"kube.reach[tune]": "does not reach research/Pod/gpucluster-validate-"}),
    ("no DNS", lambda w: w.answers("tune-team", "kubernetes.default.svc", 1, "DNS: lookup kubernetes.default.svc: i/o timeout"), {"kube.dns[tune]": "DNS: lookup"}),
    ("metadata service open", lambda w: w.answers("tune-team", "169.254.169.254:80", 0, ""), {"kube.metadata[tune]": "reaches 169.254.169.254:80"}),
    ("agent of pod identity open", lambda w: w.answers("tune-team", "169.254.170.23:80", 0, ""), {"kube.metadata[tune]": "reaches 169.254.170.23:80"}),
    ("policies not enforced", lambda w: w.answers("tune-outsider", "10.244.", 0, ""), {"kube.isolation[tune]": "tune-outsider on ip-10-60-0-2 reaches research/Pod/gpucluster-validate-"}),
    ("GPUs without a request", lambda w: w.answers("tune-outsider", "/dev/nvidiactl", 0, 'mode of file "/dev/nvidiactl": Dcrw-rw-rw-'), {"kube.gpus[tune]": "tune-outsider on ip-10-60-0-2 requests no GPU and has /dev/nvidiactl"}),
    ("volume does not answer", lambda w: w.answers("tune-mounts", "/mnt/0", 124, ""), {"kube.volumes[tune]": "exit 124"}),
    ("other version", lambda w: w.cluster.change(version={"major": "1", "minor": "35+"}), {"kube.api[cluster]": "Kubernetes 1.35"}),
]  # fmt: skip


@pytest.mark.parametrize(("plant", "expected"), [row[1:] for row in FAULTS], ids=[row[0] for row in FAULTS])
def test_fault_is_found_by_its_own_check(
    world: World, plant: Callable[[World], Any], expected: dict[str, str]
) -> None:
    plant(world)
    found = world.results()
    bad = {name: one for name, one in found.items() if not one.healthy and not one.blocked_by}
    assert bad.keys() == expected.keys(), {name: one.found for name, one in bad.items()}
    for name, words in expected.items():
        assert bad[name].verdict is CheckStatus.FAIL
        assert words in bad[name].found
        assert bad[name].remedy
        assert "{" not in bad[name].remedy


@pytest.mark.parametrize(
    ("description", "owner"),
    [
        ("kubernetes.io/rule/nlb/client=a1b2", "a Service of Kubernetes"),
        ("elbv2.k8s.aws/targetGroupBinding=shared", "AWS Load Balancer Controller"),
    ],
)
def test_rule_of_a_load_balancers_controller_is_a_note(world: World, description: str, owner: str) -> None:
    world.ec2.rules.append(public(description))
    found = world.results()["cloud.rules[cloud]"]
    assert found.verdict is CheckStatus.PASS
    assert found.found.endswith(f"; of others: kubernetes-node from 0.0.0.0/0: tcp 30080-30080 ({owner})")


def test_idle_addons_get_commands_that_start_them(world: World) -> None:
    world.edit("|coredns", scaled_to_0)
    world.edit("|aws-node", selecting_none)
    assert world.results()["kube.controllers[cluster]"].remedy == (
        "kubectl scale deployment --namespace kube-system coredns --replicas=2; "
        "kubectl rollout undo daemonset --namespace kube-system aws-node"
    )


def test_idle_addon_that_its_controller_has_not_seen_is_said_to_be_scaled(world: World) -> None:
    def scaled(one: Object) -> None:
        scaled_to_0(one)
        one["metadata"]["generation"] = 2

    world.edit("|coredns", scaled)
    world.without("|DaemonSet|kube-system|aws-node")
    result = world.results()["kube.controllers[cluster]"]
    assert "kube-system/coredns: scaled to 0 pods" in result.found
    assert result.remedy.endswith("coredns --replicas=2; kubectl get pods --all-namespaces")


def test_daemon_set_of_a_cluster_without_nodes_is_no_fault() -> None:
    idle = controllers.Controller(kind="DaemonSet", name="kube-system/aws-node", wanted=0, available=0)
    want = controllers.Controllers(namespaces=("kube-system",), needed=(idle.name,))
    found = controllers.ControllersFound(controllers=(idle,), nodes=0)
    assert controllers.evaluate_controllers(found, want).verdict is CheckStatus.PASS


@pytest.mark.parametrize("skip", [0, 1, 3])
def test_api_server_away_for_a_moment_is_asked_again(world: World, skip: int) -> None:
    """Each query was asked once: a restart of the API server made checks unknown."""
    world.cluster.plant("kubectl --context", AWAY, times=2, skip=skip)
    found = world.results()
    assert [one.found for one in found.values() if not one.healthy] == []


def test_api_server_that_stays_away_holds_the_run_once(world: World) -> None:
    began = world.cluster.elapsed
    world.cluster.plant("get Node.v1.", AWAY, times=10_000)
    found = world.results()
    bad = {one.check for one in found.values() if one.verdict is CheckStatus.UNKNOWN}
    assert {"kube.nodes", "kube.instances", "kube.controllers"} <= bad
    assert world.cluster.elapsed - began < 3 * REPEAT_S


def test_other_version_blocks_all_other_checks(world: World) -> None:
    world.cluster.change(version={"major": "1", "minor": "35+"})
    found = world.results()
    blocked = {
        one.blocked_by for one in found.values() if one.check.startswith("kube.") and one.check != "kube.api"
    }
    assert blocked == {"kube.api[cluster]"}


def test_instance_that_boots_and_one_of_slurm_are_no_fault(world: World) -> None:
    world.ec2.more += [
        world.ec2.instance("i-boots", 60),
        world.ec2.instance("i-slurm", 9999, names.ROLE_NODE),
        world.ec2.instance("i-ended", 9999, state="terminated"),
    ]
    assert world.results()["kube.instances[cluster]"].found == "7 nodes, 1 instances boot"

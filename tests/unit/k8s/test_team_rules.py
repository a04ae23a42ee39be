"""The rules of teams: the expressions of the policies, evaluated over pods and Services."""

from typing import Any

import cel
import pytest
from support.kube import files, objects

FOUND = objects(files())
PODS = FOUND["ValidatingAdmissionPolicy/kube-team-pods"]["spec"]
WORKLOADS = FOUND["ValidatingAdmissionPolicy/kube-team-workloads"]["spec"]
SERVICES = FOUND["ValidatingAdmissionPolicy/kube-team-services"]["spec"]
GATES = [{"name": "kueue.x-k8s.io/admission"}, {"name": "example.org/mine"}]
CLASS, CONTROLLER, QUEUE, VOLUME, SERVICE = (
    "a pod of a team has the PriorityClass of gangs or of services, or none",
    "only a controller makes pods that it controls",
    "only the queue removes its scheduling gates",
    "a pod of a team mounts claims, and what Kubernetes itself gives it",
    "only the spec gives pods the PriorityClass of services",
)


def _refused(policy: Any, one: dict[str, Any], **known: Any) -> list[str]:
    """Return the messages of the validations that do not hold."""
    context = {"object": one, "oldObject": None, "request": {"operation": "CREATE"}, **known}
    return [
        one["message"]
        for one in policy["validations"]
        if cel.evaluate(one["expression"], context) is not True
    ]


def _owned(**owner: Any) -> dict[str, Any]:
    return {"metadata": {"ownerReferences": [{"kind": "Job", "name": "a", "uid": "b", **owner}]}, "spec": {}}


@pytest.mark.parametrize("member", [True, False])
@pytest.mark.parametrize("name", ["system-node-critical", "system-cluster-critical", "of-others"])
def test_pod_of_a_team_has_only_a_class_of_the_list(name: str, member: bool) -> None:
    """Also one that a controller makes."""
    pod = {"metadata": {}, "spec": {"priorityClassName": name}}
    assert _refused(PODS, pod, variables={"member": member}) == [CLASS]


@pytest.mark.parametrize(
    ("spec", "member", "expected"),
    [
        ({}, True, []),
        ({"priorityClassName": "kube-gang"}, True, []),
        ({"priorityClassName": "kube-service"}, False, []),
        ({"priorityClassName": "kube-service"}, True, [SERVICE]),
    ],
)
def test_class_of_services_is_not_a_members_to_give(
    spec: dict[str, Any], member: bool, expected: list[str]
) -> None:
    """Regression: a member's pod named it, and evicted gangs from their nodes."""
    assert _refused(PODS, {"metadata": {}, "spec": spec}, variables={"member": member}) == expected


# The sources of a volume in Kubernetes 1.36 (core/v1, VolumeSource)
MOUNTED = ("configMap", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected", "secret")  # fmt: skip
DENIED = (
    "awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "csi", "fc", "flexVolume", "flocker", "gcePersistentDisk",
    "gitRepo", "glusterfs", "hostPath", "iscsi", "nfs", "photonPersistentDisk", "portworxVolume", "quobyte", "rbd", "scaleIO",
    "storageos", "vsphereVolume",
)  # fmt: skip


@pytest.mark.parametrize("member", [True, False])
@pytest.mark.parametrize("kind", [*MOUNTED, *DENIED])
def test_pod_of_a_team_mounts_only_volumes_of_the_list(kind: str, member: bool) -> None:
    """Regression: the host mounts `nfs` and `iscsi`, outside the network policy. A driver can do the same for `csi`."""
    volumes = [{"name": "a", "emptyDir": {}}, {"name": "b", kind: {}}]
    pod = {"metadata": {}, "spec": {"volumes": volumes}}
    assert _refused(PODS, pod, variables={"member": member}) == ([VOLUME] if kind in DENIED else [])


def test_pod_that_runs_already_can_be_changed() -> None:
    """Its volumes and its class cannot change. A refusal would hold the finalizers of its controller for ever."""
    spec = {"volumes": [{"name": "a", "nfs": {}}], "priorityClassName": "of-others"}
    pod = {"metadata": {}, "spec": spec}
    update = {"oldObject": pod, "request": {"operation": "UPDATE"}}
    for member in (True, False):
        assert _refused(PODS, pod, variables={"member": member}, **update) == []


@pytest.mark.parametrize(
    ("pod", "member", "expected"),
    [
        (_owned(controller=True), True, [CONTROLLER]),
        (_owned(controller=True), False, []),
        (_owned(controller=False), True, []),
        (_owned(), True, []),
    ],
)
def test_member_names_no_controller(pod: dict[str, Any], member: bool, expected: list[str]) -> None:
    assert _refused(PODS, pod, variables={"member": member}) == expected


NAMED = "only a controller says what it controls"


@pytest.mark.parametrize(
    ("before", "member", "expected"),
    [
        (None, True, [NAMED]),
        (None, False, []),
        ({"metadata": {}}, True, [NAMED]),
        (_owned(), True, [NAMED]),
        (_owned(controller=True, uid="other"), True, [NAMED]),
        (_owned(controller=True), True, []),
        (_owned(controller=True), False, []),
    ],
)
def test_member_names_no_controller_of_a_workload(before: Any, member: bool, expected: list[str]) -> None:
    """Regression: a Job with a Deployment as its controller ran without quota (FindAncestorJobManagedByKueue, Kueue v0.19.2)."""
    old = None if before is None else {"spec": {}, **before}
    assert _refused_workload(_owned(controller=True), old, member=member) == expected
    assert _refused_workload(_owned(), old, member=member) == []


def _refused_workload(one: dict[str, Any], before: Any = None, *, member: bool) -> list[str]:
    """The API server evaluates the variables first, in their order."""
    known: dict[str, Any] = {"member": member}
    for variable in WORKLOADS["variables"][1:]:
        context = {"object": one, "oldObject": before, "variables": known}
        known[variable["name"]] = cel.evaluate(variable["expression"], context)
    return _refused(WORKLOADS, one, oldObject=before, variables=known)


def _template(name: str | None) -> dict[str, Any]:
    return {"spec": {"containers": [], **({"priorityClassName": name} if name else {})}}


def _sets(*names: str | None) -> dict[str, Any]:
    return {"replicatedJobs": [{"name": "a", "template": {"spec": {"template": _template(name)}}} for name in names]}  # fmt: skip


KINDS: dict[str, Any] = {  # what a member makes pods of -> its spec, with the PriorityClass
    "cronjobs": lambda name: {"jobTemplate": {"spec": {"template": _template(name)}}},
    "deployments": lambda name: {"template": _template(name)},
    "jobs": lambda name: {"template": _template(name)},
    "jobsets": lambda name: _sets(None, name),
    "leaderworkersets": lambda name: {"leaderWorkerTemplate": {"workerTemplate": _template(name)}},
    "leaderworkersets, leader": lambda name: {
        "leaderWorkerTemplate": {"workerTemplate": _template(None), "leaderTemplate": _template(name)}
    },
    "replicasets": lambda name: {"template": _template(name)},
    "statefulsets": lambda name: {"template": _template(name)},
    "trainingruntimes": lambda name: {"template": {"spec": _sets(None, name)}},
}


@pytest.mark.parametrize("kind", KINDS)
def test_member_gives_no_workload_the_class_of_services(kind: str) -> None:
    """A controller makes its pods, so that their own rule sees no member. A TrainJob has no such field; its runtime has."""
    one, other, none = (
        {"metadata": {}, "spec": KINDS[kind](name)} for name in ("kube-service", "kube-gang", None)
    )
    assert _refused_workload(one, member=True) == [SERVICE]
    assert _refused_workload(one, other, member=True) == [SERVICE]
    assert _refused_workload(one, one, member=True) == [], "a member may scale a service of the spec"
    assert _refused_workload(one, member=False) == []
    for usual in (other, none):
        assert _refused_workload(usual, member=True) == []
        assert _refused_workload(usual, one, member=True) == []


@pytest.mark.parametrize(
    "spec", [{}, {"runtimeRef": {"name": "a"}}, {"template": {}}, {"replicatedJobs": []}]
)
def test_workload_without_pods_is_admitted(spec: dict[str, Any]) -> None:
    assert _refused_workload({"metadata": {}, "spec": spec}, member=True) == []


def test_every_workload_that_a_member_makes_is_among_the_kinds() -> None:
    (matched,) = WORKLOADS["matchConstraints"]["resourceRules"]
    assert {one.partition(",")[0] for one in KINDS} == {*matched["resources"]} - {"trainjobs"}


def test_rule_of_controllers_holds_for_every_workload_that_a_member_makes() -> None:
    rules = FOUND["Role/research/team-member"]["rules"]
    (matched,) = WORKLOADS["matchConstraints"]["resourceRules"]
    assert WORKLOADS["variables"][0] == PODS["variables"][0]
    kinds = {
        (group, one)
        for rule in rules
        for group in rule["apiGroups"]
        for one in rule["resources"]
        if "create" in rule["verbs"] and "/" not in one and group in matched["apiGroups"]
    }
    assert {group for group, _ in kinds} == {*matched["apiGroups"]}
    assert {one for _, one in kinds} == {*matched["resources"]}


@pytest.mark.parametrize(
    ("left", "member", "expected"),
    [
        (GATES, True, []),
        (GATES[:1], True, []),
        (GATES[1:], True, [QUEUE]),
        ([], True, [QUEUE]),
        ([], False, []),
    ],
)
def test_member_removes_no_gate_of_the_queue(left: list[Any], member: bool, expected: list[str]) -> None:
    spec = {"schedulingGates": left} if left else {}
    update = {"oldObject": {"spec": {"schedulingGates": GATES}}, "request": {"operation": "UPDATE"}}
    assert _refused(PODS, {"metadata": {}, "spec": spec}, variables={"member": member}, **update) == expected


def test_member_is_in_the_group_of_a_team_and_makes_no_namespaces() -> None:
    """The operator and the controllers are not. The API server alone evaluates `authorizer`."""
    (member,) = PODS["variables"]
    groups, _, rights = member["expression"].partition("\n")
    for mine, expected in ((["gpucluster:research"], True), (["system:masters"], False)):
        assert cel.evaluate(groups, {"request": {"userInfo": {"groups": mine}}}) is expected
    assert rights == "&& !authorizer.group('').resource('namespaces').check('create').allowed()"


@pytest.mark.parametrize(("spec", "refused"), [({"externalIPs": ["192.0.2.1"]}, True), ({"externalIPs": []}, False), ({}, False)])  # fmt: skip
def test_service_has_no_external_addresses(spec: dict[str, Any], refused: bool) -> None:
    expected = ["a Service of a team has no external addresses"] if refused else []
    assert _refused(SERVICES, {"spec": spec}) == expected


@pytest.mark.parametrize("name", ["kube-team-pods", "kube-team-workloads", "kube-team-services"])
def test_rules_hold_in_every_namespace_of_a_team(name: str) -> None:
    binding = FOUND[f"ValidatingAdmissionPolicyBinding/{name}"]["spec"]
    assert (binding["policyName"], binding["validationActions"]) == (name, ["Deny"])
    wanted = binding["matchResources"]["namespaceSelector"]["matchLabels"]
    for team in ("research", "serving"):
        assert wanted.items() <= FOUND[f"Namespace/{team}"]["metadata"]["labels"].items()

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
CLASS, CONTROLLER, QUEUE, VOLUME, SERVICE, DEVICE = (
    "a pod of a team has the PriorityClass of gangs or of services, or none",
    "only a controller makes pods that it controls",
    "only the queue removes its scheduling gates",
    "a pod of a team mounts claims, and what Kubernetes itself gives it",
    "only the spec gives pods the PriorityClass of services",
    "a container of a team gets the GPUs that it requests, and names none by NVIDIA's variables",
)


def _refused(policy: Any, one: dict[str, Any], **known: Any) -> list[str]:
    """Return the messages of the validations that do not hold."""
    context = {"object": one, "oldObject": None, "request": {"operation": "CREATE"}, **known}
    return [
        one["message"]
        for one in policy["validations"]
        if cel.evaluate(one["expression"], context) is not True
    ]


def _refused_pod(pod: dict[str, Any], before: Any = None, *, member: bool = True) -> list[str]:
    """The messages for a pod. The API server evaluates the variables first, in their order."""
    one, old = (
        {**part, "spec": {"containers": [], **part["spec"]}} if part else None for part in (pod, before)
    )
    request = {"operation": "CREATE" if before is None else "UPDATE"}
    known: dict[str, Any] = {"member": member}
    for variable in PODS["variables"][1:]:
        known[variable["name"]] = cel.evaluate(variable["expression"], {"object": one, "oldObject": old})
    return _refused(PODS, one or {}, oldObject=old, request=request, variables=known)


def _owned(**owner: Any) -> dict[str, Any]:
    return {"metadata": {"ownerReferences": [{"kind": "Job", "name": "a", "uid": "b", **owner}]}, "spec": {}}


@pytest.mark.parametrize("member", [True, False])
@pytest.mark.parametrize("name", ["system-node-critical", "system-cluster-critical", "of-others"])
def test_pod_of_a_team_has_only_a_class_of_the_list(name: str, member: bool) -> None:
    """Also one that a controller makes."""
    pod = {"metadata": {}, "spec": {"priorityClassName": name}}
    assert _refused_pod(pod, member=member) == [CLASS]


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
    assert _refused_pod({"metadata": {}, "spec": spec}, member=member) == expected


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
    assert _refused_pod(pod, member=member) == ([VOLUME] if kind in DENIED else [])


# internal/config/image/envvars.go and internal/modifier/cdi.go of NVIDIA/nvidia-container-toolkit
VARIABLES = (
    "NVIDIA_GDRCOPY", "NVIDIA_GDS", "NVIDIA_IMEX_CHANNELS", "NVIDIA_MIG_CONFIG_DEVICES", "NVIDIA_MIG_MONITOR_DEVICES", "NVIDIA_MOFED",
    "NVIDIA_NVSWITCH", "NVIDIA_VISIBLE_DEVICES",
)  # fmt: skip


def _with_env(name: str, *, where: str = "containers", **value: Any) -> dict[str, Any]:
    usual = {"name": "a", "env": [{"name": "A", "value": "all"}]}
    given = {"name": "b", "env": [{"name": "A"}, {"name": name, **value}]}
    spec = {"containers": [usual], "initContainers": [{"name": "c"}]}
    return {"metadata": {}, "spec": {**spec, where: [*spec.get(where, []), given]}}


@pytest.mark.parametrize("member", [True, False])
@pytest.mark.parametrize("where", ["containers", "initContainers"])
@pytest.mark.parametrize("name", VARIABLES)
def test_container_names_no_gpu_by_a_variable(name: str, where: str, member: bool) -> None:
    """Regression: a pod without a request and with NVIDIA_VISIBLE_DEVICES=all had every GPU of its host."""
    for value in (
        {"value": "all"},
        {"value": "0"},
        {"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ):
        assert _refused_pod(_with_env(name, where=where, **value), member=member) == [DEVICE]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NVIDIA_VISIBLE_DEVICES", {"value": "void"}),
        ("NVIDIA_VISIBLE_DEVICES", {"value": "none"}),
        ("NVIDIA_VISIBLE_DEVICES", {"value": ""}),
        ("NVIDIA_VISIBLE_DEVICES", {}),
        ("NVIDIA_DRIVER_CAPABILITIES", {"value": "all"}),
        ("NVIDIA_API_KEY", {"valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}),
        ("CUDA_VISIBLE_DEVICES", {"value": "0"}),
    ],
)
def test_variable_that_gives_no_device_is_admitted(name: str, value: dict[str, Any]) -> None:
    assert _refused_pod(_with_env(name, **value)) == []


def test_debugging_container_names_no_gpu() -> None:
    """`kubectl debug` adds it to a pod that runs. What was there before is not judged again."""
    (matched,) = PODS["matchConstraints"]["resourceRules"]
    assert matched["resources"] == ["pods", "pods/ephemeralcontainers"]
    before = {"metadata": {}, "spec": {"containers": [{"name": "a"}]}}
    where = {"where": "ephemeralContainers", "value": "all"}
    bad, usual = _with_env("NVIDIA_VISIBLE_DEVICES", **where), _with_env("B", **where)
    assert _refused_pod(bad, before) == [DEVICE]
    assert _refused_pod(usual, before) == _refused_pod(bad, bad) == []
    assert _refused_pod(_with_env("NVIDIA_VISIBLE_DEVICES", value="all"), before) == []


def test_pod_that_runs_already_can_be_changed() -> None:
    """Its volumes and its class cannot change. A refusal would hold the finalizers of its controller for ever."""
    spec = {"volumes": [{"name": "a", "nfs": {}}], "priorityClassName": "of-others"}
    pod = {"metadata": {}, "spec": spec}
    for member in (True, False):
        assert _refused_pod(pod, pod, member=member) == []


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
    assert _refused_pod(pod, member=member) == expected


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
    before = {"metadata": {}, "spec": {"schedulingGates": GATES}}
    assert _refused_pod({"metadata": {}, "spec": spec}, before, member=member) == expected


def test_member_is_in_the_group_of_a_team_and_makes_no_namespaces() -> None:
    """The operator and the controllers are not. The API server alone evaluates `authorizer`."""
    member, *_ = PODS["variables"]
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

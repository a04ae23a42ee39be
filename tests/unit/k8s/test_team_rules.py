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
CLASS, CONTROLLER, QUEUE = (
    "a pod of a team has no PriorityClass of the system",
    "only a controller makes pods that it controls",
    "only the queue removes its scheduling gates",
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
@pytest.mark.parametrize("name", ["system-node-critical", "system-cluster-critical"])
def test_no_pod_of_a_team_has_a_class_of_the_system(name: str, member: bool) -> None:
    """Also none that a controller makes."""
    pod = {"metadata": {}, "spec": {"priorityClassName": name}}
    assert _refused(PODS, pod, variables={"member": member}) == [CLASS]


@pytest.mark.parametrize("spec", [{}, {"priorityClassName": "kube-gang"}])
def test_other_classes_are_admitted(spec: dict[str, Any]) -> None:
    assert _refused(PODS, {"metadata": {}, "spec": spec}, variables={"member": True}) == []


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
    (_, known) = WORKLOADS["variables"]
    old = cel.evaluate(known["expression"], {"oldObject": before})
    variables = {"member": member, "before": old}
    assert _refused(WORKLOADS, _owned(controller=True), variables=variables) == expected
    assert _refused(WORKLOADS, _owned(), variables=variables) == []


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
    assert {one for _, one in kinds} - {*matched["resources"]} == {"trainingruntimes"}  # makes no pod


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

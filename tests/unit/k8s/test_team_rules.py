"""The rules of teams: the expressions of the policies, evaluated over pods and Services."""

from typing import Any

import cel
import pytest
from support.kube import files, objects

FOUND = objects(files())
PODS = FOUND["ValidatingAdmissionPolicy/kube-team-pods"]["spec"]
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


@pytest.mark.parametrize("name", ["kube-team-pods", "kube-team-services"])
def test_rules_hold_in_every_namespace_of_a_team(name: str) -> None:
    binding = FOUND[f"ValidatingAdmissionPolicyBinding/{name}"]["spec"]
    assert (binding["policyName"], binding["validationActions"]) == (name, ["Deny"])
    wanted = binding["matchResources"]["namespaceSelector"]["matchLabels"]
    for team in ("research", "serving"):
        assert wanted.items() <= FOUND[f"Namespace/{team}"]["metadata"]["labels"].items()

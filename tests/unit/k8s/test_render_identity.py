"""Service accounts of teams: rights in S3 by EKS Pod Identity, and the way of their pods to its agent."""

from typing import Any

from support.builders import a_kube_plan, a_kube_spec
from support.kube import files, objects

from gpucluster import catalog
from gpucluster.plan.explain.kubernetes import explain
from gpucluster.plan.model.kubernetes import PodIdentity

PLACES = "read: ['s3://example-data/sets/'], write: ['s3://example-data/runs']"
ACCOUNT = (
    "{nvidia.com/gpu: 32}}",
    f"{{nvidia.com/gpu: 32}}, service_accounts: [{{name: trainer, {PLACES}}}]}}",
)
USED = ("team: research", "team: research\n    service_account: trainer")
AGENT, METADATA = "169.254.170.23/32", "169.254.169.254"


def _found(*running: tuple[str, str]) -> dict[str, Any]:
    return objects(files(ACCOUNT, running=running))


def _pod(found: dict[str, Any]) -> Any:
    return found["JobSet/research/tune"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]


def _ways(found: dict[str, Any], address: str) -> list[Any]:
    """The policies that let some pod reach exactly this address."""
    policies = [one for one in found.values() if one["kind"] == "NetworkPolicy"]
    return [
        one
        for one in policies
        for rule in one["spec"].get("egress", [])
        for to in rule["to"]
        if to.get("ipBlock", {}).get("cidr") == address
    ]


def test_plan_holds_the_association_with_its_places() -> None:
    identity = PodIdentity(
        team="research",
        namespace="research",
        service_account="trainer",
        read=("s3://example-data/sets",),
        write=("s3://example-data/runs",),
    )
    assert a_kube_plan(ACCOUNT).kubernetes.pod_identities == (identity,)
    notes = explain(a_kube_spec(ACCOUNT), catalog.load(), a_kube_plan(ACCOUNT).kubernetes)
    (note,) = [one for one in notes if "service_accounts[trainer]" in one.path]
    assert note.value == "reads s3://example-data/sets, writes s3://example-data/runs"


def test_only_pods_of_the_account_reach_the_agent() -> None:
    found = _found(USED)
    (way,) = _ways(found, AGENT)
    assert way["metadata"]["namespace"] == "research"
    (selector,) = way["spec"]["podSelector"]["matchExpressions"]
    assert selector == {"key": "gpucluster/service-account", "operator": "In", "values": ["trainer"]}
    assert way["spec"]["egress"][0]["ports"] == [{"port": 80, "protocol": "TCP"}]
    pods = {"tune": _pod(found), "chat": found["Deployment/serving/chat"]["spec"]["template"]}
    labels = {name: pod["metadata"]["labels"].get(selector["key"]) for name, pod in pods.items()}
    assert labels == {"tune": "trainer", "chat": None}


def test_nobody_reaches_the_metadata_service() -> None:
    found = _found(USED)
    assert not _ways(found, f"{METADATA}/32")
    for one in found.values():
        for rule in one["spec"].get("egress", []) if one["kind"] == "NetworkPolicy" else []:
            for to in rule["to"]:
                block = to.get("ipBlock", {"cidr": AGENT})
                assert block["cidr"] == AGENT or "169.254.0.0/16" in block["except"]


def test_account_gives_no_right_in_kubernetes() -> None:
    found = _found(USED)
    assert found["ServiceAccount/research/trainer"]["automountServiceAccountToken"] is False
    pod = _pod(found)["spec"]
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("trainer", False)
    assert "serviceAccountName" not in found["Deployment/serving/chat"]["spec"]["template"]["spec"]
    bound = [subject for one in found.values() if one["kind"] == "RoleBinding" for subject in one["subjects"]]
    assert not [subject for subject in bound if subject["kind"] == "ServiceAccount"]
    rules = found["Role/research/team-member"]["rules"]
    (verbs,) = [rule["verbs"] for rule in rules if "serviceaccounts" in rule["resources"]]
    assert set(verbs) <= {"get", "list", "watch"}


def test_without_accounts_no_pod_reaches_the_agent() -> None:
    assert not _ways(objects(files()), AGENT)


def test_guide_says_that_the_program_makes_the_association() -> None:
    """tests/unit/k8s/test_guide.py finds it among the program's resources."""
    page = files(ACCOUNT)["README.md"]
    line = "- a pod identity association of the service account `research/trainer` with a role that reads `s3://example-data/sets` and writes `s3://example-data/runs`"
    assert line in page.partition("It does not create these.")[0].splitlines()
    assert "a pod identity association" not in files()["README.md"]

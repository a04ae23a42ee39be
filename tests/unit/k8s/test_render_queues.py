"""Fair sharing, borrowing limits, preemption and priorities in Kueue's objects."""

from decimal import Decimal
from typing import Any

from support.builders import a_kube_plan, a_kube_spec
from support.kube import Change, files, objects

from gpucluster import catalog
from gpucluster.k8s.manifest import documents
from gpucluster.kubernetes_quantity import parse
from gpucluster.plan.explain.kubernetes import explain
from gpucluster.spec.part import require
from gpucluster.spec.queueing import BORROW, RECLAIM, WITHIN

SHARE = ("may_borrow: true}", "may_borrow: true, share: 3}")
PLANE = "control_plane: eks"
TWO_POOLS = (  # a second pool of slices, so that a limit spans pools
    ("pools:\n", "pools:\n  - {name: first, nodes: 1, sharing: {mig: {1g.10gb: 7}}, capacity: [{from: on-demand, machines: [p4de.24xlarge]}]}\n"),
)  # fmt: skip


def _queue(team: str, *changes: Change) -> Any:
    return objects(files(*changes))[f"ClusterQueue/kube-{team}"]["spec"]


def _config(*changes: Change) -> Any:
    (values,) = documents(files(*changes)["helm/kueue.yaml"])
    (config,) = documents(values["managerConfig"]["controllerManagerConfigYaml"])
    return config


def _slices(queue: Any) -> dict[str, tuple[str, str]]:
    return {
        flavor["name"]: (row["nominalQuota"], row["borrowingLimit"])
        for flavor in queue["resourceGroups"][0]["flavors"]
        for row in flavor["resources"]
        if row["name"] == "nvidia.com/mig-1g.10gb"
    }


def test_teams_share_what_they_borrow_by_their_weights() -> None:
    assert _config()["fairSharing"]["preemptionStrategies"] == [
        "LessThanOrEqualToFinalShare",
        "LessThanInitialShare",
    ]
    weights = [_queue(team, SHARE)["fairSharing"] for team in ("serving", "research")]
    assert weights == [{"weight": "3"}, {"weight": "1"}]


def test_without_fair_sharing_no_weight_is_written() -> None:
    off = (PLANE, f"{PLANE}\n  fair_sharing: false")
    assert "fairSharing" not in _config(off)
    assert "fairSharing" not in _queue("serving", off)


def test_preemption_has_the_words_of_kueue() -> None:
    usual = {
        "reclaimWithinCohort": "Any",
        "borrowWithinCohort": {"policy": "Never"},
        "withinClusterQueue": "LowerPriority",
    }
    assert _queue("serving")["preemption"] == usual
    words = "borrow_within_cohort: lower-priority, within_cluster_queue: lower-or-newer-equal-priority, reclaim_within_cohort: lower-priority"
    other = (PLANE, f"{PLANE}\n  fair_sharing: false\n  preemption: {{{words}}}")
    assert _queue("serving", other)["preemption"] == {
        "reclaimWithinCohort": "LowerPriority",
        "borrowWithinCohort": {"policy": "LowerPriority"},
        "withinClusterQueue": "LowerOrNewerEqualPriority",
    }


def test_borrowing_limit_holds_over_all_pools_together() -> None:
    """Kueue limits each flavor alone: two flavors with the whole limit would lend twice as much."""
    limit = ("may_borrow: true}", "may_borrow: true, borrowing_limit: {nvidia.com/mig-1g.10gb: 50}}")
    quotas = _slices(_queue("serving", *TWO_POOLS, limit))
    assert quotas == {"kube-first": ("28", "28"), "kube-serve": ("0", "22")}
    whole = _slices(_queue("serving", *TWO_POOLS))
    assert whole == {"kube-first": ("28", "28"), "kube-serve": ("0", "336")}


def test_borrowing_limit_bounds_cpu_and_memory_in_proportion() -> None:
    limit = ("may_borrow: true}", "may_borrow: true, borrowing_limit: {nvidia.com/mig-1g.10gb: 28}}")
    (flavor,) = _queue("serving", limit)["resourceGroups"][0]["flavors"]
    for row in flavor["resources"]:
        assert row["borrowingLimit"] == row["nominalQuota"], row["name"]  # 28 of its own, 28 borrowed


def test_named_priority_is_a_class_and_a_label() -> None:
    urgent = (PLANE, f"{PLANE}\n  priorities: [{{name: urgent, priority: 10000}}]")
    plain = objects(files())
    values = {key: one["value"] for key, one in plain.items() if key.startswith("WorkloadPriorityClass/")}
    assert values == {
        "WorkloadPriorityClass/kube-service": 100000,
        "WorkloadPriorityClass/kube-gang": 1000,
    }
    found = objects(files(urgent, running=(("team: research", "team: research\n    priority: urgent"),)))
    assert found["WorkloadPriorityClass/kube-urgent"]["value"] == 10000
    label = "kueue.x-k8s.io/priority-class"
    assert found["JobSet/research/tune"]["metadata"]["labels"][label] == "kube-urgent"
    assert found["Deployment/serving/chat"]["metadata"]["labels"][label] == "kube-service"


def test_every_word_of_preemption_has_a_reason() -> None:
    fields = {
        "reclaim_within_cohort": RECLAIM,
        "borrow_within_cohort": BORROW,
        "within_cluster_queue": WITHIN,
    }
    for field, words in fields.items():
        for word, kueue in words.items():
            change = (PLANE, f"{PLANE}\n  fair_sharing: false\n  preemption: {{{field}: {word}}}")
            notes = explain(a_kube_spec(change), catalog.load(), a_kube_plan(change).kubernetes)
            (note,) = [one for one in notes if one.path == f"kubernetes.preemption.{field}"]
            assert note.value == kueue
            assert note.reason.startswith("Kueue ")


def test_loan_and_quota_together_hold_a_pod_of_their_gpus() -> None:
    """Quota and loan were each rounded down, so 3 and 5 GPUs had 3 of the 4 EFA interfaces that a pod of 8 GPUs asks for."""
    team = (
        "{nvidia.com/gpu: 32}",
        "{nvidia.com/gpu: 3}, may_borrow: true, borrowing_limit: {nvidia.com/gpu: 5}",
    )
    found = objects(files(team, running=(("nodes: 4", "nodes: 1"),)))
    (job,) = found["JobSet/research/tune"]["spec"]["replicatedJobs"]
    asked = job["template"]["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]
    (group,) = found["ClusterQueue/kube-research"]["spec"]["resourceGroups"]
    (flavor,) = (one for one in group["flavors"] if one["name"].startswith("kube-tune"))
    for row in flavor["resources"]:
        own, loan, needed = (
            _amount(text)
            for text in (row["nominalQuota"], row["borrowingLimit"], asked.get(row["name"], "0"))
        )
        assert own + loan >= needed, row["name"]


def _amount(text: str) -> Decimal:
    return require(parse(text))

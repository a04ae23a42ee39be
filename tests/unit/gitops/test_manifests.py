"""What an edit does to the objects of workloads, by the two rendered trees."""

from collections.abc import Callable

import pytest
from support.audited_edits import STACKS, Change
from support.reviewed import a_side, a_side_with_workloads

from gpucluster.gitops.diff import diff
from gpucluster.gitops.model import Diff, Effects, Revision

SPEC = (STACKS / "kube.yaml").read_text()
RUNNING = (STACKS.parent / "workloads/kube.yaml").read_text()
LUSTRE = "size: 2400GiB}}]"
DELETE = "kubectl delete -f FILE    # the old manifest of each workload that is deleted and created again"
UP = "gpucluster k8s up kube --bindings bindings.json"
ENDS, ROLLS = (
    "of a workload that is deleted and created again end",
    "of a changed service are replaced one after another",
)
TUNE, CHAT = "workloads.train[tune]", "workloads.serve[chat]"
JOBSET = (TUNE, "replace", "its JobSet cannot change: it is deleted and created again")
DEPLOYMENT = (CHAT, "live", "the pods of its Deployment are replaced one after another")
GROUP = (CHAT, "replace", "its LeaderWorkerSet cannot change: it is deleted and created again")
GROUPS: tuple[Change, ...] = (
    ("team: serving", "team: research"),
    ("{nvidia.com/mig-1g.10gb: 1}", "{nvidia.com/gpu: 8}\n    nodes: 2"),
    ("{min: 2, max: 8}", "{min: 1, max: 2}"),
)
SERVE = RUNNING[RUNNING.index("serve:\n") : RUNNING.index("train:\n")]
TRAIN = RUNNING[RUNNING.index("train:\n") :]
TRAINER: Change = (
    "  queueing: kueue\n",
    "  queueing: kueue\n  trainer: {image: registry.example.org/train:2.0}\n",
)
TRAINJOB: Change = ("    framework: torch\n", "    framework: torch\n    kind: TrainJob\n")


SAME_NUMBER: tuple[Change, ...] = (("    scale_on: {queue_depth: 10}\n", ""), ("max: 8}", "max: 2}"))
PRUNE = f"{UP} --prune    # deletes what left the spec, also its pods, when they may end"
MONITORED: Change = ("  queueing: kueue\n", "  queueing: kueue\n  monitoring: prometheus-operator\n")


def _edited(text: str, changes: tuple[Change, ...]) -> str:
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def _diff(
    *changes: Change,
    running: tuple[Change, ...] = (),
    base: tuple[Change, ...] = (),
    spec: tuple[Change, ...] = (),
) -> Diff:
    """Return the diff of `changes` of the spec and `running` of the workloads. `spec` and `base` are made on both sides."""
    before, was = _edited(SPEC, spec), _edited(RUNNING, base)
    old = a_side_with_workloads(before, was)
    return diff(old, a_side_with_workloads(_edited(before, changes), _edited(was, running)))


def _told(found: Diff) -> set[tuple[str, str, str]]:
    return {
        (one.path, one.update.value, one.message) for one in found.consequences if "workloads" in one.path
    }


def _effects(found: Diff) -> Effects:
    assert found.effects is not None
    return found.effects


MOUNT = (LUSTRE, "size: 2400GiB}}, {mount: /apps, nfs: {server: 192.0.2.5, export: /apps}}]")
MACHINE = (
    "nodes: 4, capacity: [{from: on-demand, machines: [p4de.24xlarge]",
    "nodes: 4, capacity: [{from: on-demand, machines: [p5.48xlarge]",
)
SLICES = ("quota: {nvidia.com/gpu: 32}", "quota: {nvidia.com/gpu: 32, nvidia.com/mig-1g.10gb: 7}")


@pytest.mark.parametrize(
    ("edit", "told"),
    [(MOUNT, {JOBSET, DEPLOYMENT}), (MACHINE, {JOBSET}), (SLICES, {JOBSET})],
    ids=["a mount", "a machine", "a quota of slices"],
)
def test_gang_that_an_edit_of_the_cluster_changes_is_deleted_first(
    edit: Change, told: set[tuple[str, str, str]]
) -> None:
    """Regression: `diff` said that its pods go on, and `k8s up` was refused in the wave of training."""
    found = _diff(edit)
    assert _told(found) == told
    assert found.worst is not None
    assert found.worst.value == "replace"
    effects = _effects(found)
    assert effects.running.startswith(ENDS)
    assert "; others go on" in effects.running
    assert effects.queued.startswith(
        "of a workload that is deleted and created again lose their place; others "
    )
    assert effects.sessions.startswith("in pods that end, end")
    assert effects.steps.index(DELETE) < effects.steps.index(UP)


def test_service_that_an_edit_of_the_cluster_changes_is_replaced_pod_after_pod() -> None:
    """Regression: `diff` said that its pods go on."""
    effects = _effects(_diff(MOUNT))
    assert effects.running.startswith(f"{ENDS}; {ROLLS}; others go on")
    assert effects.sessions == "in pods that end, end; in pods that are replaced end"


def test_other_edit_of_the_cluster_leaves_workloads_alone() -> None:
    found = _diff(("{min: 1, max: 6}", "{min: 1, max: 5}"))
    assert _told(found) == set()
    assert DELETE not in _effects(found).steps
    assert _effects(found).running.startswith("go on")
    assert _effects(found).sessions == "stay open"


def test_workload_has_the_sentences_of_the_cluster() -> None:
    found = _diff(running=(("train:2.0", "train:2.1"), ("chat:1.4", "chat:1.5")))
    assert _told(found) == set(), "the changes of the workloads have the classes"
    assert _effects(found).running == f"{ENDS}; {ROLLS}; others go on"
    assert (_effects(found).steps[0], _effects(found).steps[-1]) == (DELETE, UP)


def test_priority_of_a_gang_changes_while_it_runs() -> None:
    """Only a label differs, which Kueue takes (tests/kubernetes/test_trainer.py). `diff` had the running gang deleted."""
    found = _diff(running=(("    priority: urgent\n", ""),))
    assert _effects(found).running == "go on"
    assert DELETE not in _effects(found).steps
    assert found.worst is not None
    assert found.worst.value == "live"


def test_number_of_replicas_replaces_no_pod() -> None:
    found = _diff(running=(("{min: 2, max: 8}", "{min: 2, max: 6}"),))
    assert _effects(found).running == "go on"


def test_group_with_other_resources_is_deleted_first() -> None:
    """Regression: Kueue refuses them, and `diff` said `live`."""
    found = _diff(base=GROUPS, running=(("{nvidia.com/gpu: 8}", "{nvidia.com/gpu: 4}"),))
    assert _told(found) == {GROUP}
    assert found.worst is not None
    assert found.worst.value == "replace"
    assert "the old ones are deleted first" in (found.effect or "")
    assert _effects(found).running == f"{ENDS}; others go on"
    assert DELETE in _effects(found).steps


def test_group_with_another_image_is_replaced_in_place() -> None:
    found = _diff(base=GROUPS, running=(("chat:1.4", "chat:1.5"),))
    assert _told(found) == set()
    assert _effects(found).running == f"{ROLLS}; others go on"
    assert DELETE not in _effects(found).steps


def test_train_job_with_another_runtime_is_deleted_first() -> None:
    found = _diff(MOUNT, spec=(TRAINER,), base=(TRAINJOB,))
    assert (TUNE, "replace", "its TrainJob cannot change: it is deleted and created again") in _told(found)


def test_removed_workload_goes_on_until_it_is_pruned() -> None:
    """Regression: a removed service was called changed, with pods that are replaced."""
    whole = _diff(running=((SERVE, ""),))
    assert whole.effect == (
        "Only workloads change, and no node: what leaves the spec stays until an `up` with --prune deletes it."
    )
    found = _effects(whole)
    until = "until `gpucluster k8s up kube --prune` deletes it"
    assert found.running == f"of a removed workload go on {until}; others go on"
    assert found.queued == f"of a removed workload stay in the queue {until}; others stay in the queue"
    assert DELETE not in found.steps


def test_workload_beside_a_worse_change_of_the_cluster_is_told() -> None:
    """Regression: the sentence of the worse class hid that of the workloads."""
    found = _effects(_diff((LUSTRE, "size: 1200GiB}}]"), running=(("train:2.0", "train:2.1"),)))
    assert found.running.startswith(f"{ENDS}; others go on; those that use /data hang or fail")
    assert DELETE in found.steps


SPOT = "sharing: {mig: {1g.10gb: 7}}, capacity: [{from: spot, machines: [p4de.24xlarge], max: 2}, {from: on-demand,"
DEMAND = "sharing: {mig: {1g.10gb: 7}}, capacity: [{from: on-demand,"


@pytest.mark.parametrize(
    ("found", "left"),
    [
        (lambda: _diff(running=SAME_NUMBER), "HorizontalPodAutoscaler"),
        (lambda: _diff(running=((SERVE, ""),)), "Deployment"),
        (lambda: _diff((MONITORED[1], MONITORED[0]), spec=(MONITORED,)), "PrometheusRule"),
        (lambda: _diff((TRAINER[1], TRAINER[0]), spec=(TRAINER,)), "ClusterTrainingRuntime"),
        (lambda: _diff(("  priorities: [{name: urgent, priority: 10000}]\n", ""), base=(("    priority: urgent\n", ""),)), "WorkloadPriorityClass"),
        (lambda: _diff(("nodes: 4,", "nodes: {min: 1, max: 4},"), base=(("required: block", "required: zone"),)), "ResourceFlavor"),
    ],
    ids=["an autoscaler", "a service", "rules", "runtimes", "a priority", "a flavor"],
)  # fmt: skip
def test_object_that_leaves_the_manifests_is_pruned(found: Callable[[], Diff], left: str) -> None:
    """Regression: the step had `--prune` only for a team or a pool that left the spec."""
    steps = _effects(found()).steps
    assert steps.index(UP) < steps.index(PRUNE), left


def test_nothing_is_pruned_where_no_object_leaves() -> None:
    assert PRUNE not in _effects(_diff(MOUNT)).steps


def test_volumes_alone_are_not_pruned() -> None:
    """`k8s up --prune` keeps what holds data."""
    assert PRUNE not in _effects(_diff((MOUNT[1], MOUNT[0]), spec=(MOUNT,))).steps


def test_note_of_a_step_does_not_hide_prune() -> None:
    """Regression: in a cluster of the site `--prune` stood behind the `#` of the note."""
    accounts = SPEC[SPEC.index("      service_accounts:\n") : SPEC.index("storage:")]
    site: tuple[Change, ...] = (
        ("control_plane: eks ", "existing: {context: prod, eks_name: prod} "),
        (accounts, ""),
    )
    base: tuple[Change, ...] = (("    service_account: trainer\n", ""), ("required: block", "required: zone"))
    steps = _effects(_diff(running=((SERVE, ""),), spec=site, base=base)).steps
    assert f"{UP}    # with the ids of the file systems" in steps
    assert PRUNE in steps


def test_node_pool_that_leaves_ends_its_nodes() -> None:
    """Regression: a source of capacity that left a pool said that pods go on."""
    found = _diff((SPOT, DEMAND), spec=((DEMAND, SPOT),))
    told = [(one.path, one.message) for one in found.consequences if "NodePool" in one.message]
    gone = "the NodePool kube-serve-1 leaves the manifests: when it is deleted, Karpenter ends its nodes"
    assert told == [("pools[serve]", gone)]
    words = "those on Karpenter's nodes of the NodePool kube-serve-1 are evicted when the NodePool is deleted"
    assert words in _effects(found).running
    assert PRUNE in _effects(found).steps


def test_zone_that_the_control_plane_cannot_leave_is_the_first_step() -> None:
    """Regression: `pulumi up` was the first step, and it fails."""
    zones = ("zones: [us-west-2a]", "zones: [us-west-2a, us-west-2c]")
    found = _effects(_diff(zones))
    assert found.steps[0] == (
        "# keep us-west-2b in `aws.network.zones`: the control plane stays there, so `pulumi up` cannot delete the subnet"
    )
    assert found.steps[1].startswith("pulumi up ")
    assert not any("# keep" in step for step in _effects(_diff(ZONES)).steps)


ELASTIC: Change = ("nodes: 4, capacity", "nodes: {min: 0, max: 8}, capacity")
ZONES: Change = ("zones: [us-west-2a]", "zones: [us-west-2a, us-west-2b]")


def test_second_zone_of_an_elastic_pool_with_efa_leaves_its_node_pools() -> None:
    """Regression: NodePools of another name replaced them, and the note spoke of Slurm's slots."""
    found = _diff(ZONES, spec=(ELASTIC,), base=(("required: block", "required: zone"),))
    assert [one.message for one in found.consequences if "NodePool" in one.message] == []
    (zones,) = [one.why for one in found.spec if one.path == "aws.network.zones"]
    assert zones == (
        "an elastic pool with EFA gets a part in each added zone, and its zones share its max; "
        "no NodePool gets another name; control plane and nodes of the add-ons of EKS stay in their zones"
    )
    assert PRUNE not in _effects(found).steps


SECOND, OTHER = "[us-west-2a, us-west-2b]", "[us-east-2a]"
STAY = "control plane and nodes of the add-ons of EKS stay in their zones"


@pytest.mark.parametrize(
    ("stack", "before", "after", "update", "why"),
    [
        (
            "hybrid",
            "[us-west-2a]",
            SECOND,
            "live",
            "another zone gets its own subnet and slots; no node address or name changes; an elastic pool with EFA gets a part in each "
            f"added zone, and its zones share its max; no NodePool gets another name; {STAY}",
        ),
        ("hybrid", SECOND, "[us-west-2a]", "stop-fleet", STAY),
        ("kube", SECOND, "[us-west-2a]", "stop-fleet", STAY),
        ("kube", "[us-west-2a]", OTHER, "stop-fleet", ""),
    ],
)
def test_zones_of_slurm_and_eks_are_told_together(
    stack: str, before: str, after: str, update: str, why: str
) -> None:
    """Regression: in one VPC only Slurm's sentence was told; of a zone that leaves, nothing. Another Region has another control plane."""

    def side(zones: str) -> Revision:
        text = (STACKS / f"{stack}.yaml").read_text()
        text = text.replace("zones: [us-west-2a]}}", f"zones: {zones}}}}}")
        return a_side(text.replace("us-west-2", "us-east-2") if zones == OTHER else text)

    (zones,) = (one for one in diff(side(before), side(after)).spec if one.path == "aws.network.zones")
    assert (zones.update.value, zones.why) == (update, why)

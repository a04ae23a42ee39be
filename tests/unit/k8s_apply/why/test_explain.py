"""`k8s why`: each cause by the words of the controller that knows it, with what to do next."""

from typing import Any

import pytest
from support.waiting_pods import (
    ADMITTED,
    EARLY,
    JOB,
    JOBSET,
    LATE,
    NODE,
    Manifest,
    conditions,
    event,
    on_node,
    pod,
    thing,
    unplaced,
    unreserved,
    workload,
)

from gpucluster.k8s_apply.why.cause import Answer, Cause, CauseKind
from gpucluster.k8s_apply.why.evidence import Evidence
from gpucluster.k8s_apply.why.explain import explain


def asked(*objects: Manifest, root: Manifest = JOBSET, unread: tuple[str, ...] = ()) -> Answer:
    return explain(Evidence(root, (root, *objects), unread))


def only(*objects: Manifest, root: Manifest = JOBSET) -> Cause:
    (found,) = asked(*objects, root=root).causes
    return found


# --- the queue -------------------------------------------------------------------------------------------
UNUSED = "couldn't assign flavors to pod set nodes: insufficient unused quota for nvidia.com/gpu in flavor kube-tune, 8 more needed"
QUEUED = {
    UNUSED: (CauseKind.QUOTA, ""),
    "couldn't assign flavors to pod set nodes: insufficient quota for nvidia.com/gpu in flavor kube-tune, previously considered podsets"
    " requests (0) + current podset request (64) > maximum capacity (32)": (CauseKind.QUOTA, "it does not fit into an empty queue"),
    'couldn\'t assign flavors to pod set nodes: topology "kube-tune" allows to fit only 3 out of 4 pod(s)': (
        CauseKind.TOPOLOGY, "kubectl get nodes --show-labels"),
    'couldn\'t assign flavors to pod set nodes: topology "kube-tune" doesn\'t allow to fit any of 4 pod(s)': (
        CauseKind.TOPOLOGY, "kubectl get nodes --show-labels"),
    "couldn't assign flavors to pod set nodes: untolerated taint {dedicated infra NoSchedule <nil>} in flavor kube-tune": (CauseKind.FLAVOR, ""),
    "LocalQueue research doesn't exist": (CauseKind.QUEUE, "kubectl get localqueues --namespace research"),
    "words of a later version": (CauseKind.OTHER, ""),
}  # fmt: skip


@pytest.mark.parametrize("words", QUEUED)
def test_kueue_says_why_it_does_not_admit(words: str) -> None:
    kind, step = QUEUED[words]
    found = only(unreserved(words))
    assert (found.kind, found.by, found.words, found.subject) == (
        kind,
        "Kueue",
        words,
        "research/JobSet/tune",
    )
    assert found.next_step.startswith(step)
    assert bool(found.next_step) == bool(step)


def test_workload_that_kueue_has_not_judged_leads_to_its_controller() -> None:
    found = only(workload(status={}))
    assert found.words == "has set no condition on it"
    assert found.next_step == "kubectl get pods --namespace kueue-system"


def test_holders_of_the_quota_are_named_the_largest_first() -> None:
    def holder(name: str, gpus: str, flavor: str = "kube-tune") -> Manifest:
        row = {
            "name": "nodes",
            "flavors": {"nvidia.com/gpu": flavor},
            "resourceUsage": {"nvidia.com/gpu": gpus},
        }
        return workload(thing("JobSet", name), status={"admission": {"podSetAssignments": [row]}})

    others = [holder(f"small-{n}", "1") for n in range(6)]
    found = only(unreserved(UNUSED), holder("large", "24"), holder("elsewhere", "8", "kube-other"), *others)
    assert found.details[:2] == (
        "research/JobSet/large holds 24 nvidia.com/gpu of kube-tune",
        "research/JobSet/small-0 holds 1 nvidia.com/gpu of kube-tune",
    )
    assert found.details[-1] == "2 others hold 2 nvidia.com/gpu of kube-tune"
    assert len(found.details) == 6


def test_stopped_queue_says_so_itself() -> None:
    local = thing(
        "LocalQueue",
        "research",
        spec={"clusterQueue": "kube-research"},
        status=conditions(
            Active=("False", "ClusterQueueIsInactive", "Can't submit new workloads to clusterQueue")
        ),
    )
    whole = thing(
        "ClusterQueue",
        "kube-research",
        status=conditions(Active=("False", "Stopped", "Can't admit new workloads: is stopped.")),
    )
    found = only(unreserved("ClusterQueue kube-research is inactive"), local, whole)
    assert found.kind is CauseKind.QUEUE
    assert found.details == (
        "research/LocalQueue/research: Can't submit new workloads to clusterQueue",
        "ClusterQueue/kube-research: Can't admit new workloads: is stopped.",
    )
    assert found.next_step == "kubectl describe localqueues research --namespace research"


VOLUMES = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]


def queue(kind: str, name: str, active: str) -> Manifest:
    spec = {"clusterQueue": "kube-research"}
    return thing(kind, name, spec=spec, status=conditions(Active=(active, "", "")))


def test_words_of_a_queue_that_is_active_again_are_old() -> None:
    both = queue("LocalQueue", "research", "True"), queue("ClusterQueue", "kube-research", "True")
    found = only(unreserved("ClusterQueue kube-research is inactive"), *both)
    assert found.details == ("both queues are active now: Kueue has not updated the Workload since",)


@pytest.mark.parametrize("others", [(), (queue("ClusterQueue", "kube-research", "False"),)])
def test_queue_that_was_not_read_or_is_not_active_is_not_called_active(others: tuple[Manifest, ...]) -> None:
    """A member of a team reads no ClusterQueue."""
    local = queue("LocalQueue", "research", "True")
    assert only(unreserved("ClusterQueue kube-research is inactive"), local, *others).details == ()


@pytest.mark.parametrize(("kind", "words", "objects"), [
    ("LocalQueue", "queues of research: none", (unreserved("LocalQueue research doesn't exist"),)),
    ("PersistentVolumeClaim", "data does not exist", (ADMITTED, JOB, unplaced("0/4 nodes are available", volumes=VOLUMES))),
    ("Workload", "it has made no Workload", ()),
])  # fmt: skip
def test_kinds_that_may_not_be_read_are_not_called_missing(
    kind: str, words: str, objects: tuple[Manifest, ...]
) -> None:
    def told(*unread: str) -> str:
        return str(asked(*objects, unread=unread).causes)

    assert words in told()
    assert words not in told(kind)


def test_missing_queue_lists_those_that_exist() -> None:
    found = only(unreserved("LocalQueue resaerch doesn't exist"), thing("LocalQueue", "eval"))
    assert found.details == ("queues of research: eval",)


def test_eviction_is_said_beside_the_wait() -> None:
    evicted = workload(
        Evicted=(
            "True",
            "Preempted",
            "Preempted to accommodate a workload (UID: x) due to reclamation within the cohort",
        ),
        QuotaReserved=("False", "Pending", UNUSED),
    )
    first, second = asked(evicted).causes
    assert (first.kind, first.words[:9], second.kind) == (CauseKind.EVICTED, "Preempted", CauseKind.QUOTA)


def test_deactivated_workload_has_the_command_that_activates_it() -> None:
    stopped = workload(
        spec={"active": False},
        Evicted=("True", "Deactivated", "exceeding the maximum number of re-queuing retries"),
        QuotaReserved=("False", "Pending", UNUSED),
    )
    found = only(stopped)
    assert (found.kind, found.words) == (
        CauseKind.STOPPED,
        "exceeding the maximum number of re-queuing retries",
    )
    assert found.next_step == (
        'kubectl patch workloads.kueue.x-k8s.io jobset-tune --namespace research --type merge --patch \'{"spec":{"active":true}}\''
    )


def test_admission_check_that_is_not_ready() -> None:
    checks = [
        {"name": "capacity", "state": "Pending", "message": "waiting for a machine"},
        {"name": "other", "state": "Ready", "message": ""},
    ]
    reserved = workload(QuotaReserved=("True", "QuotaReserved", ""), status={})
    reserved["status"]["admissionChecks"] = checks
    found = only(reserved)
    assert (found.kind, found.words) == (CauseKind.CHECK, "capacity is Pending: waiting for a machine")
    assert asked(reserved).state == "reserved"


def test_suspended_object_that_kueue_has_not_seen() -> None:
    assert only().words == "it has made no Workload of the queue research"
    without = thing("JobSet", "tune", spec={"suspend": True})
    assert only(root=without).words.startswith("spec.suspend is true, and it has no label")


def test_namespace_that_kueue_leaves_out_is_named() -> None:
    ours = thing("Namespace", "research", metadata={"labels": {"gpucluster/cluster": "kube"}})
    assert only(ours).details == ()
    assert (
        "the namespace research has no label gpucluster/cluster"
        in only(thing("Namespace", "research")).details[0]
    )


# --- the makers of pods ----------------------------------------------------------------------------------
REFUSED = {
    'Error creating: pods "tune-nodes-0-0-abcde" is forbidden: exceeded quota: research, requested: nvidia.com/gpu=8, used: nvidia.com/gpu=32,'
    " limited: nvidia.com/gpu=32": (CauseKind.LIMIT, "kubectl describe resourcequota --namespace research"),
    'Error creating: pods "tune-nodes-0-0-abcde" is forbidden: violates PodSecurity "restricted:latest": privileged': (
        CauseKind.POLICY, "change the pods as the words say"),
    'Error creating: pods "tune-nodes-0-0-abcde" is forbidden: error looking up service account research/tuner: serviceaccount "tuner" not found': (
        CauseKind.REFERENCE, "kubectl create serviceaccount tuner --namespace research"),
    'Error creating: pods "tune-nodes-0-0-abcde" is forbidden: maximum cpu usage per Container is 64, but limit is 96': (
        CauseKind.LIMIT, "kubectl describe limitrange --namespace research"),
}  # fmt: skip


@pytest.mark.parametrize("words", REFUSED)
def test_refused_pods(words: str) -> None:
    kind, step = REFUSED[words]
    found = only(ADMITTED, JOB, event(JOB, "FailedCreate", words, "job-controller"))
    assert (found.kind, found.by, found.next_step, found.subject) == (
        kind,
        "job-controller",
        step,
        "research/Job/tune-nodes-0",
    )


def test_refusal_of_pods_that_exist_by_now_is_history() -> None:
    pods = [
        on_node(f"tune-{n}", phase="Running", container={"state": {"running": {}}}, Ready=("True", "", ""))
        for n in range(4)
    ]
    found = asked(ADMITTED, JOB, NODE, *pods, event(JOB, "FailedCreate", "exceeded quota"))
    assert (found.state, found.causes, found.pods) == ("ready", (), {"Ready": 4})


def test_refusal_of_an_object_without_a_count() -> None:
    refused = event(JOBSET, "JobCreationFailed", 'jobs.batch "x" is forbidden', "jobset-controller")
    earlier = thing("Job", "tune-nodes-0", JOBSET, at=EARLY, spec={"parallelism": 0})
    later = thing("Job", "tune-nodes-0", JOBSET, at="2026-11-27T10:06:00Z", spec={"parallelism": 0})
    assert [one.subject for one in asked(ADMITTED, earlier, refused).causes] == ["research/JobSet/tune"]
    assert asked(ADMITTED, later, refused).causes == ()


def test_failed_object_says_why() -> None:
    failed = thing(
        "JobSet",
        "tune",
        status=conditions(
            Failed=("True", "ReachedMaxRestarts", "jobset failed due to reaching max number of restarts")
        ),
    )
    found = asked(root=failed)
    assert found.state == "failed"
    assert found.causes[0].words == "ReachedMaxRestarts: jobset failed due to reaching max number of restarts"


def test_deployment_that_stands_still() -> None:
    late = conditions(
        Progressing=("False", "ProgressDeadlineExceeded", 'ReplicaSet "chat-1" has timed out progressing.')
    )
    found = only(root=thing("Deployment", "chat", status=late))
    assert found.kind is CauseKind.STOPPED
    done = thing("Deployment", "chat", status=conditions(Progressing=("False", "DeploymentPaused", "")))
    assert asked(root=done).causes == ()


# --- the scheduler and Karpenter -------------------------------------------------------------------------
UNFIT = {
    "0/4 nodes are available: 1 node(s) had untolerated taint {dedicated: infra}, 3 Insufficient nvidia.com/gpu. preemption: 0/4 nodes are"
    " available: 4 No preemption victims found for incoming pod.": CauseKind.RESOURCES,
    "0/4 nodes are available: 4 node(s) had untolerated taint {nvidia.com/gpu: true}.": CauseKind.TAINT,
    "0/4 nodes are available: 4 node(s) had untolerated taint {node.kubernetes.io/unreachable: }.": CauseKind.NODE,
    "0/4 nodes are available: 4 node(s) were unschedulable.": CauseKind.NODE,
    "0/4 nodes are available: 4 node(s) didn't match Pod's node affinity/selector.": CauseKind.SELECTOR,
    "0/4 nodes are available: pod has unbound immediate PersistentVolumeClaims.": CauseKind.VOLUME,
    '0/4 nodes are available: persistentvolumeclaim "data" not found.': CauseKind.VOLUME,
    "0/4 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity, 3 Insufficient cpu.": CauseKind.VOLUME,
    "0/4 nodes are available: 1 Insufficient cpu, 3 node(s) did not have enough free storage.": CauseKind.VOLUME,
    "0/4 nodes are available: 4 node(s) had no available disk.": CauseKind.VOLUME,
    "0/4 nodes are available: 1 Insufficient cpu, 3 cannot allocate all claims.": CauseKind.DEVICE,
    "0/4 nodes are available: 4 resourceclaim not available on the node.": CauseKind.DEVICE,
    "0/4 nodes are available: resourceclaim in use.": CauseKind.DEVICE,
    "0/4 nodes are available: request gpus: device class gpu.example.com does not exist.": CauseKind.DEVICE,
    "0/4 nodes are available: resource claim research/gpus is in the process of being allocated.": CauseKind.DEVICE,
    'pod "research/tune-nodes-0-0": ResourceClaim not created yet': CauseKind.DEVICE,
    "0/4 nodes are available: 4 claim research/gpus, request all: asks for all devices, but resource pool a is currently invalid.": CauseKind.DEVICE,
    "words of a later version": CauseKind.OTHER,
}


@pytest.mark.parametrize("words", UNFIT)
def test_scheduler_says_why_no_node_fits(words: str) -> None:
    found = only(ADMITTED, JOB, unplaced(words))
    assert (found.kind, found.by, found.words, found.subject) == (
        UNFIT[words],
        "kube-scheduler",
        words,
        "research/Pod/tune-nodes-0-0",
    )


def test_device_claim_says_what_to_look_at() -> None:
    found = only(ADMITTED, JOB, unplaced("0/4 nodes are available: 4 cannot allocate all claims."))
    assert found.next_step == "kubectl describe resourceclaims --namespace research"


def test_equal_causes_of_several_pods_are_one() -> None:
    words = "0/4 nodes are available: 4 Insufficient nvidia.com/gpu."
    found = only(ADMITTED, JOB, *(unplaced(words, f"tune-{n}") for n in range(4)))
    assert (found.subject, found.count) == ("research/Pod/tune-0", 4)


def test_unbound_claim_says_what_its_controller_says() -> None:
    claim = thing("PersistentVolumeClaim", "data", status={"phase": "Pending"})
    said = event(
        claim,
        "ProvisioningFailed",
        'storageclass.storage.k8s.io "fast" not found',
        "persistentvolume-controller",
    )
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "x", "persistentVolumeClaim": {"claimName": "gone"}},
    ]
    found = only(
        ADMITTED,
        JOB,
        unplaced(
            "0/4 nodes are available: pod has unbound immediate PersistentVolumeClaims.", volumes=volumes
        ),
        claim,
        said,
    )
    assert found.details == (
        'research/PersistentVolumeClaim/data is Pending: storageclass.storage.k8s.io "fast" not found',
        "research/PersistentVolumeClaim/gone does not exist",
    )
    assert found.next_step == "kubectl describe pvc --namespace research"


@pytest.mark.parametrize("gate", ["topology", "admission"])
def test_gate_of_kueue(gate: str) -> None:
    gated = pod(spec={"schedulingGates": [{"name": f"kueue.x-k8s.io/{gate}"}]})
    assert only(ADMITTED, JOB, gated).by == "Kueue"


def test_gate_of_others() -> None:
    found = only(ADMITTED, JOB, pod(spec={"schedulingGates": [{"name": "example.org/wait"}]}))
    assert (found.kind, found.by, found.words) == (
        CauseKind.GATE,
        "its spec",
        "the pod has the scheduling gates example.org/wait",
    )


def test_pod_that_no_scheduler_has_judged() -> None:
    assert (
        only(ADMITTED, JOB, pod(spec={"schedulerName": "volcano"})).words
        == "volcano has set no condition on the pod"
    )


def test_karpenters_own_words() -> None:
    waits = unplaced("0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")
    old = event(waits, "FailedScheduling", "Failed to schedule pod, older", "karpenter", at=EARLY)
    said = event(
        waits,
        "FailedScheduling",
        'Failed to schedule pod, all available instance types exceed limits for nodepool (NodePool={"name":"kube-tune-0"})',
        "karpenter",
    )
    scheduler = event(
        waits, "FailedScheduling", "0/1 nodes are available", "default-scheduler", at="2026-11-27T10:09:00Z"
    )
    by = {one.by: one.words for one in asked(ADMITTED, JOB, waits, old, said, scheduler).causes}
    assert by["Karpenter"].startswith("Failed to schedule pod, all available instance types exceed limits")


def test_machine_that_karpenter_has_begun() -> None:
    waits = unplaced("0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")
    said = event(waits, "Nominated", "Pod should schedule on: nodeclaim/kube-tune-0-x2x2x", "karpenter")
    mine = thing(
        "NodeClaim",
        "kube-tune-0-x2x2x",
        status=conditions(
            Launched=("True", "", ""),
            Registered=("Unknown", "NodeNotFound", "Node not registered with cluster"),
        ),
    )
    other = thing(
        "NodeClaim", "kube-serve-0-y2y2y", status=conditions(Launched=("Unknown", "LaunchFailed", "x"))
    )
    found = {
        one.subject: one.words
        for one in asked(ADMITTED, JOB, waits, said, mine, other).causes
        if one.kind is CauseKind.MACHINE
    }
    assert found["NodeClaim/kube-tune-0-x2x2x"] == "not Registered: Node not registered with cluster"
    assert "NodeClaim/kube-serve-0-y2y2y" not in found


def test_refusal_of_ec2_stays_when_its_node_claim_is_gone() -> None:
    waits = unplaced("0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")
    pool = thing("NodePool", "kube-tune-0", status=conditions(Ready=("True", "", "")))
    gone = thing("NodeClaim", "kube-tune-0-x2x2x")
    words = "NodeClaim kube-tune-0-x2x2x event: creating instance, insufficient capacity, all requested instance types were unavailable during launch"
    before = event(
        gone, "InsufficientCapacityError", "of an earlier pod", "karpenter", at="2026-11-27T09:00:00Z"
    )
    found = [
        one
        for one in asked(
            ADMITTED, JOB, waits, pool, before, event(gone, "InsufficientCapacityError", words, "karpenter")
        ).causes
        if one.kind is CauseKind.MACHINE
    ]
    assert [(one.subject, one.words) for one in found] == [("NodePool/kube-tune-0", words)]
    assert [
        one for one in asked(ADMITTED, JOB, waits, pool, before).causes if one.kind is CauseKind.MACHINE
    ] == []


def test_node_class_that_is_not_ready() -> None:
    waits = unplaced("0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")
    sick = thing(
        "EC2NodeClass",
        "kube-tune",
        status=conditions(Ready=("False", "SubnetsNotFound", "SubnetSelector did not match any Subnets")),
    )
    found = next(one for one in asked(ADMITTED, JOB, waits, sick).causes if one.kind is CauseKind.MACHINE)
    assert (found.subject, found.words) == (
        "EC2NodeClass/kube-tune",
        "not Ready: SubnetSelector did not match any Subnets",
    )
    assert found.next_step == "kubectl describe ec2nodeclass kube-tune"


# --- the kubelet -----------------------------------------------------------------------------------------
def waits_with(reason: str, message: str = "", **more: Any) -> Manifest:
    return {"state": {"waiting": {"reason": reason, "message": message}}, **more}


def test_image_that_cannot_be_pulled() -> None:
    one = on_node(
        spec={"imagePullSecrets": [{"name": "registry"}]},
        container=waits_with("ImagePullBackOff", 'Back-off pulling image "x"'),
    )
    said = 'Failed to pull image "x": failed to resolve reference "x": pull access denied, insufficient_scope: authorization failed'
    found = only(ADMITTED, JOB, NODE, one, event(one, "Failed", said))
    assert (found.kind, found.details) == (CauseKind.IMAGE, ("imagePullSecrets of the pod: registry",))
    assert found.words == f"container train, image registry.example.org/train:1: {said}"


@pytest.mark.parametrize("last", ["Error: ErrImagePull", "Error: ImagePullBackOff"])
def test_second_event_of_a_pull_does_not_hide_its_reason(last: str) -> None:
    """The kubelet makes two events with the reason Failed, and the newer one has only the class (kuberuntime_container.go)."""
    back_off = 'Back-off pulling image "x": ErrImagePull: rpc error: code = NotFound desc = x: not found'
    one = on_node(container=waits_with("ImagePullBackOff", back_off))
    said = 'Failed to pull image "x": rpc error: code = NotFound desc = x: not found'
    events = (event(one, "Failed", said), event(one, "Failed", last, at="2026-11-27T10:06:00Z"))
    found = only(ADMITTED, JOB, NODE, one, *events)
    assert found.words == f"container train, image registry.example.org/train:1: {said}"
    assert only(ADMITTED, JOB, NODE, one, events[1]).words.endswith(back_off)


def test_pull_of_another_container_is_no_reason() -> None:
    one = on_node(container=waits_with("ImagePullBackOff", "of its own"))
    other = event(one, "Failed", 'Failed to pull image "y": no')
    other["involvedObject"]["fieldPath"] = "spec.containers{sidecar}"
    assert only(ADMITTED, JOB, NODE, one, other).words.endswith(": of its own")
    other["involvedObject"]["fieldPath"] = "spec.containers{train}"
    assert only(ADMITTED, JOB, NODE, one, other).words.endswith('Failed to pull image "y": no')


def test_pull_that_goes_on_is_said_and_not_a_mount_that_failed_before_it() -> None:
    one = on_node()
    mount = event(one, "FailedMount", 'MountVolume.SetUp failed for volume "data" : not registered', at=EARLY)
    pull = event(one, "Pulling", 'Pulling image "x"')
    found = only(ADMITTED, JOB, NODE, one, mount, pull)
    assert (found.kind, found.words) == (CauseKind.IMAGE, f'since {LATE}: Pulling image "x"')
    later = event(one, "FailedMount", "again", at="2026-11-27T10:06:00Z")
    assert only(ADMITTED, JOB, NODE, one, pull, later).words == "again"


def test_init_container_that_runs_is_named() -> None:
    sidecar = {"name": "proxy", "restartPolicy": "Always"}
    one = on_node(
        spec={"initContainers": [sidecar, {"name": "wait-for-data"}]}, container=waits_with("PodInitializing")
    )
    one["status"]["initContainerStatuses"] = [
        {"name": "proxy", "state": {"running": {}}, "started": True},
        {"name": "wait-for-data", "state": {"running": {}}, "started": True},
    ]
    found = only(ADMITTED, JOB, NODE, one)
    assert (
        found.words == "its init container wait-for-data runs, and the containers after it wait for its end"
    )
    assert found.next_step == "kubectl logs tune-nodes-0-0 --namespace research --container wait-for-data"


def test_container_that_failed_beside_one_that_runs_is_named() -> None:
    one = on_node(
        phase="Running",
        container={"state": {"terminated": {"exitCode": 3, "reason": "Error"}}},
        Ready=("False", "ContainersNotReady", "containers with unready status: [train]"),
    )
    found = only(ADMITTED, JOB, NODE, one)
    assert (found.kind, found.words) == (
        CauseKind.CONTAINER,
        "container train ended with exit code 3, Error",
    )


def test_missing_secret_has_the_command_that_makes_it() -> None:
    one = on_node(container=waits_with("CreateContainerConfigError", 'secret "wandb" not found'))
    found = only(ADMITTED, JOB, NODE, one)
    assert found.kind is CauseKind.REFERENCE
    assert found.next_step == "kubectl create secret generic wandb --namespace research --from-file=KEY=FILE"


def test_missing_secret_of_a_volume() -> None:
    one = on_node()
    said = 'MountVolume.SetUp failed for volume "token" : secret "hugging-face" not found'
    found = only(ADMITTED, JOB, NODE, one, event(one, "FailedMount", said))
    assert (found.kind, found.next_step.split()[4]) == (CauseKind.REFERENCE, "hugging-face")


def test_volume_that_cannot_be_mounted() -> None:
    one = on_node()
    said = 'MountVolume.SetUp failed for volume "data" : rpc error: code = Internal desc = Could not mount "fs-1" at "/x": mount.nfs4: Connection timed out'
    assert only(ADMITTED, JOB, NODE, one, event(one, "FailedMount", said)).kind is CauseKind.VOLUME


def test_network_of_the_pod() -> None:
    one = on_node()
    said = 'Failed to create pod sandbox: plugin type="aws-cni" failed (add): failed to assign an IP address to container'
    assert only(ADMITTED, JOB, NODE, one, event(one, "FailedCreatePodSandBox", said)).kind is CauseKind.NODE


def test_container_that_ends_again_and_again() -> None:
    last = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    one = on_node(
        phase="Running",
        container=waits_with("CrashLoopBackOff", "back-off 5m0s", lastState=last, restartCount=7),
    )
    found = only(ADMITTED, JOB, NODE, one)
    assert (found.kind, found.details) == (
        CauseKind.CONTAINER,
        ("it ended with exit code 137, OOMKilled; restarts: 7",),
    )
    assert found.next_step == "kubectl logs tune-nodes-0-0 --namespace research --container train --previous"


def test_probe_that_fails() -> None:
    one = on_node(
        phase="Running",
        container={"state": {"running": {}}},
        Ready=("False", "ContainersNotReady", "containers with unready status: [train]"),
    )
    assert only(ADMITTED, JOB, NODE, one).words == "containers with unready status: [train]"
    said = event(one, "Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503")
    found = only(ADMITTED, JOB, NODE, one, said)
    assert (found.kind, found.words) == (
        CauseKind.PROBE,
        "Readiness probe failed: HTTP probe failed with statuscode: 503",
    )


def test_pod_on_a_node_that_is_gone_or_silent() -> None:
    one = on_node()
    assert only(ADMITTED, JOB, one).words == "its node a does not exist"
    silent = thing(
        "Node",
        "a",
        status=conditions(Ready=("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")),
    )
    found = only(ADMITTED, JOB, one, silent)
    assert (found.kind, found.words) == (
        CauseKind.NODE,
        "its node a is not Ready: Kubelet stopped posting node status.",
    )


def test_nodes_that_may_not_be_read_are_no_cause() -> None:
    found = asked(ADMITTED, JOB, on_node(), unread=("Node",))
    assert [one.words for one in found.causes] == ["its containers are being created"]
    assert found.unread == ("Node",)


def test_failed_pod_says_its_exit_code_or_why_it_was_evicted() -> None:
    ended = on_node(phase="Failed", container={"state": {"terminated": {"exitCode": 1, "reason": "Error"}}})
    assert only(ADMITTED, JOB, NODE, ended).words == "container train ended with exit code 1, Error"
    evicted = on_node(phase="Failed")
    evicted["status"] |= {"reason": "Evicted", "message": "The node was low on resource: ephemeral-storage."}
    assert (
        only(ADMITTED, JOB, NODE, evicted).words
        == "Evicted: The node was low on resource: ephemeral-storage."
    )


def test_pod_that_is_still_there_after_its_deletion() -> None:
    one = pod(spec={"nodeName": "a"}, deletionTimestamp=LATE, finalizers=["kueue.x-k8s.io/managed"])
    found = only(ADMITTED, JOB, one)
    assert (found.kind, found.details) == (
        CauseKind.DELETED,
        ("finalizers: kueue.x-k8s.io/managed", "its node a does not exist"),
    )


# --- what wants no pods ----------------------------------------------------------------------------------
@pytest.mark.parametrize(("root", "words", "step"), [
    (thing("Deployment", "chat", spec={"replicas": 0}), "spec.replicas is 0: it wants no pods",
     "kubectl scale deployment chat --namespace research --replicas=1"),
    (thing("Job", "a", spec={"parallelism": 0}), "spec.parallelism is 0: it wants no pods", ""),
    (thing("CronJob", "nightly", spec={"suspend": True, "schedule": "0 3 * * *"}), "spec.suspend is true: no run begins",
     """kubectl patch cronjob nightly --namespace research --patch '{"spec":{"suspend":false}}'"""),
    (thing("CronJob", "nightly", spec={"schedule": "0 3 * * *"}, status={"lastScheduleTime": EARLY}),
     f"no run goes on; its schedule is '0 3 * * *', and the last run began: {EARLY}", ""),
])  # fmt: skip
def test_object_that_wants_no_pods_by_its_spec(root: Manifest, words: str, step: str) -> None:
    found = only(root=root)
    assert (found.kind, found.by, found.words, found.next_step) == (
        CauseKind.STOPPED,
        "its spec",
        words,
        step,
    )


def test_schedule_that_begins_no_run_says_why() -> None:
    one = thing("CronJob", "nightly", spec={"schedule": "0 3 * * *", "timeZone": "Mars/Base"})
    said = event(one, "UnknownTimeZone", 'invalid timeZone: "Mars/Base"', "cronjob-controller")
    assert [cause.words for cause in asked(said, root=one).causes][1:] == ['invalid timeZone: "Mars/Base"']


def test_run_of_a_cron_job_that_waits_has_its_own_cause() -> None:
    one = thing(
        "CronJob", "nightly", spec={"schedule": "0 3 * * *"}, status={"active": [{"name": "nightly-1"}]}
    )
    run = thing("Job", "nightly-1", one, spec={"parallelism": 1})
    waits = pod(
        "nightly-1-a",
        run,
        status=conditions(PodScheduled=("False", "Unschedulable", "0/1: 1 Insufficient cpu")),
    )
    found = asked(run, waits, root=one)
    assert (found.state, [cause.kind for cause in found.causes]) == ("not ready", [CauseKind.RESOURCES])


# --- the whole -------------------------------------------------------------------------------------------
def test_pod_that_waits_for_its_workload_names_it() -> None:
    """The workload of a pod is that of its owners."""
    waits = pod(spec={"schedulingGates": [{"name": "kueue.x-k8s.io/topology"}]})
    first, second = asked(JOBSET, JOB, unreserved(UNUSED), root=waits).causes
    assert (first.subject, second.subject) == ("research/JobSet/tune", "research/Pod/tune-nodes-0-0")


def test_owners_in_a_circle_end() -> None:
    one = thing("Job", "a", thing("Job", "b"))
    other = thing("Job", "b", one)
    assert asked(other, root=one).state == "without pods"


@pytest.mark.parametrize(("objects", "root", "state"), [
    ((), thing("JobSet", "tune", status=conditions(Completed=("True", "", ""))), "completed"),
    ((unreserved(UNUSED),), JOBSET, "queued"),
    ((ADMITTED, JOB), JOBSET, "without pods"),
    ((ADMITTED, JOB, NODE, on_node()), JOBSET, "not ready"),
])  # fmt: skip
def test_state(objects: tuple[Manifest, ...], root: Manifest, state: str) -> None:
    assert asked(*objects, root=root).state == state

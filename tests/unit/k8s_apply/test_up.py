"""`up` with stand-ins of kubectl and helm: order, checks, repeats, faults."""

import shlex

import pytest
import yaml
from support.cluster import Cluster
from support.cluster.state import CallerIsKilledError, State
from support.kube import TRAINED, USUAL_WAVES
from support.kube_steps import GROUPS, kube_steps

from gpucluster import shell
from gpucluster.errors import GpuclusterError, StateError
from gpucluster.k8s.releases import DEFINE, define, divided
from gpucluster.k8s_apply.status import status
from gpucluster.k8s_apply.steps import Steps, lines
from gpucluster.k8s_apply.up import Applied, up

REFUSED = "The connection to the server 10.0.0.1:443 was refused - did you specify the right host or port?"
NO_WEBHOOK = (
    'Error from server (InternalError): Internal error occurred: failed calling webhook "mclusterqueue.kb.io": failed to call webhook:'
    ' Post "https://kueue-webhook-service.kueue-system.svc:443/mutate": dial tcp 10.0.0.2:9443: connect: connection refused'
)

CHARTS = ("aws-efa-k8s-device-plugin", "gpu-operator", "jobset", "karpenter", "kueue")


def apply(cluster: Cluster, steps: Steps, **more: object) -> Applied:
    return up(cluster.access(), steps, holder="ann@desk", **more)  # type: ignore[arg-type]


def test_charts_come_first_then_the_waves_in_order(cluster: Cluster, bound: Steps) -> None:
    done = apply(cluster, bound)
    changes = [line for line in cluster.calls() if " upgrade " in line or " --kustomize " in line]
    assert [line.split()[5] for line in changes[:5]] == list(CHARTS)
    assert [line.rpartition("/")[2] for line in changes[5:]] == [wave.folder for wave in USUAL_WAVES]
    assert done.charts == CHARTS
    assert set(cluster.objects()) >= {f"{one['kind']}/{one['metadata']['name']}" for one in bound.objects}


def test_second_run_changes_nothing(cluster: Cluster, bound: Steps) -> None:
    apply(cluster, bound)
    first, releases = cluster.versions(), cluster.values()["releases"]
    assert apply(cluster, bound).charts == ()
    assert cluster.versions() == first
    assert cluster.values()["releases"] == releases


@pytest.mark.parametrize(("default", "told"), [(True, True), (False, False)])
def test_default_class_of_others_is_told(cluster: Cluster, bound: Steps, default: bool, told: bool) -> None:
    """Pods get it without asking, and the policy of teams refuses every class that is not on its list."""
    one = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "usual"}}
    cluster.put({**one, "value": 10, "globalDefault": default})
    apply(cluster, bound)
    words = "pods without a class get the PriorityClass usual, the default of this cluster: those of teams need kube-gang, or they are refused"
    assert (words in cluster.said) is told


def test_old_helm_is_refused_before_the_first_change(cluster: Cluster, bound: Steps) -> None:
    """helm before 3.13 has no `upgrade --labels`: the run ended at it, when the definitions of the chart were applied."""
    cluster.change(helm="v3.12.3")
    with pytest.raises(StateError, match=r"helm is v3\.12\.3, and gpucluster needs 3\.13"):
        apply(cluster, bound)
    assert cluster.objects() == {}
    cluster.change(helm="v4.1.0")
    assert apply(cluster, bound).charts == CHARTS


def test_changed_values_upgrade_their_chart_alone(cluster: Cluster, bound: Steps) -> None:
    apply(cluster, bound)
    cluster.change(
        releases=[
            {**row, "values": {"other": 1}} if row["name"] == "kueue" else row
            for row in cluster.values()["releases"]
        ]
    )
    assert apply(cluster, bound).charts == ("kueue",)


KUEUE = "apps/v1|Deployment|kueue-system|kueue-controller"
KUEUE_ROLE = "rbac.authorization.k8s.io/v1|ClusterRole||kueue-controller"


@pytest.mark.parametrize(("key", "said"), [
    (KUEUE, "kueue-system/Deployment/kueue-controller is missing"),
    (KUEUE_ROLE, "ClusterRole/kueue-controller is missing"),
])  # fmt: skip
def test_what_somebody_deleted_of_a_chart_is_made_again(
    cluster: Cluster, bound: Steps, key: str, said: str
) -> None:
    """helm calls a release deployed whatever became of its objects: `up` called the chart unchanged, and nothing started a gang again."""
    apply(cluster, bound)
    cluster.remove(key)
    assert [one.state for one in status(cluster.access(), bound).charts if one.name == "kueue"] == [
        f"deployed, but {said}"
    ]
    assert apply(cluster, bound).charts == ("kueue",)
    assert key in cluster.values()["objects"]
    assert status(cluster.access(), bound).unsettled == ()


def test_controller_that_somebody_scaled_to_0_runs_again(cluster: Cluster, bound: Steps) -> None:
    apply(cluster, bound)
    objects = cluster.values()["objects"]
    objects[KUEUE]["spec"]["replicas"] = 0
    cluster.change(objects=objects)
    (said,) = status(cluster.access(), bound).unsettled
    assert said.endswith("deployed, but kueue-system/Deployment/kueue-controller is scaled to 0")
    assert apply(cluster, bound).charts == ("kueue",)
    assert cluster.values()["objects"][KUEUE]["spec"]["replicas"] == 2


@pytest.mark.parametrize("chart", ["jobset", "karpenter", "kueue"])
def test_definition_that_somebody_deleted_comes_again(cluster: Cluster, bound: Steps, chart: str) -> None:
    """Regression: `up` waited for the kind, and then told people to install the chart, which was its own and was there."""
    apply(cluster, bound)
    crds = cluster.values()["crds"]
    del crds[chart]
    cluster.change(crds=crds)
    assert apply(cluster, bound).charts == (chart,)
    assert chart in cluster.values()["crds"]


def test_api_server_away_in_the_middle_of_a_wave(cluster: Cluster, bound: Steps) -> None:
    """The wave's objects are there, and its call fails: the same wave is applied again."""
    cluster.plant("30-queues", REFUSED, times=3, when="after")
    apply(cluster, bound)
    assert len(cluster.calls("30-queues")) == 4
    assert any("again in a moment" in line and "was refused" in line for line in cluster.said)


def test_api_server_that_stays_away_ends_the_run_and_the_next_goes_on(cluster: Cluster, bound: Steps) -> None:
    cluster.plant("apply", REFUSED, times=1000, skip=3)
    with pytest.raises(GpuclusterError, match="was refused"):
        apply(cluster, bound)
    cluster.change(faults=[])
    assert apply(cluster, bound).charts == ()
    assert set(cluster.objects()) >= {f"{one['kind']}/{one['metadata']['name']}" for one in bound.objects}


@pytest.mark.parametrize("words", [
    NO_WEBHOOK,
    "Error from server (TooManyRequests): the server has received too many requests and has asked us to try again later",
    "Error from server (ServiceUnavailable): the server is currently unable to handle the request",
    'error: Operation cannot be fulfilled on clusterqueues.kueue.x-k8s.io "a": the object has been modified; please apply your changes to the latest version and try again\nPlease review the fields above--they currently have other managers. Here\nare the ways you can resolve this warning:',
    'error: resource mapping not found for name: "a" namespace: "" from "x": no matches for kind "ClusterQueue" in version "kueue.x-k8s.io/v1beta2"\nensure CRDs are installed first',
    'Error from server (Forbidden): pods "x" is forbidden: unable to create new content in namespace research because it is being terminated',
])  # fmt: skip
def test_what_is_over_soon_is_tried_again(cluster: Cluster, bound: Steps, words: str) -> None:
    cluster.plant("apply", words, times=2, skip=3)
    apply(cluster, bound)
    assert "gpucluster-kube" in cluster.objects("ConfigMap")


def test_kinds_that_are_not_served_yet_are_awaited_by_name(cluster: Cluster, bound: Steps) -> None:
    cluster.change(unserved={"ClusterQueue": 5})
    apply(cluster, bound)
    assert any("ClusterQueue (kueue.x-k8s.io/v1beta2) is not served" in line for line in cluster.said)


def test_status_is_awaited_by_name(cluster: Cluster, bound: Steps) -> None:
    cluster.change(slow={"NodePool": 2})
    apply(cluster, bound)
    assert any("NodePool/kube-serve-0: no controller has set Ready" in line for line in cluster.said)


def test_status_that_does_not_come_ends_the_run_with_what_it_waits_for(
    cluster: Cluster, bound: Steps
) -> None:
    cluster.change(slow={"ClusterQueue": 10000})
    with pytest.raises(
        StateError, match=r"20 s: 30-queues: ClusterQueue/kube-research: no controller has set Active"
    ) as found:
        apply(cluster, bound, limit_s=20.0)
    assert "gpucluster k8s up kube" in str(found.value)
    assert cluster.calls("40-storage") == []


def test_refused_manifest_names_file_object_and_field(cluster: Cluster, bound: Steps) -> None:
    cluster.change(invalid={"kube-research": "no"})
    with pytest.raises(GpuclusterError) as found:
        apply(cluster, bound)
    words = str(found.value)
    assert "30-queues/clusterqueue-research.yaml: ClusterQueue/kube-research" in words
    assert "the team research in kubernetes.teams" in words
    assert cluster.calls("40-storage") == []
    assert len(cluster.calls("30-queues")) == 1


def test_refusal_without_a_name_is_traced_by_the_server(cluster: Cluster, bound: Steps) -> None:
    """A strict decoding error names the field and not the object: each object is asked for alone, without a change."""
    cluster.plant(
        "30-queues",
        'Error from server (BadRequest): ClusterQueue in version "v1beta2" cannot be handled: strict decoding error: unknown field "spec.no"',
    )
    cluster.change(invalid={"kube-research": "no"})
    with pytest.raises(
        GpuclusterError,
        match=r"30-queues/clusterqueue-research\.yaml: ClusterQueue/kube-research.*unknown field",
    ):
        apply(cluster, bound)
    assert cluster.objects("ClusterQueue") == {}


def test_chart_that_cannot_be_had_is_named_with_its_source(cluster: Cluster, bound: Steps) -> None:
    cluster.plant(
        "upgrade --install karpenter",
        'Error: failed to perform "FetchReference" on source: oci://public.ecr.aws/karpenter/karpenter:1.14.1: not found',
        times=10,
    )
    with pytest.raises(
        GpuclusterError, match=r"the chart karpenter 1\.14\.1 of oci://\S+ is not installed"
    ) as found:
        apply(cluster, bound)
    assert "goes on here" in str(found.value)
    assert cluster.calls("upgrade --install kueue") == []
    assert cluster.calls(" --kustomize ") == []


def test_newer_chart_brings_its_definitions(cluster: Cluster, bound: Steps) -> None:
    """helm never upgrades what a chart has in its folder `crds`: the objects of the new version were refused for ever."""
    old = {"jobset": "0.11.0", "karpenter": "1.13.0", "kueue": "0.19.2"}
    apply(cluster, bound)
    cluster.change(
        crds={**cluster.values()["crds"], **old},
        releases=[
            {**row, "chart": f"{row['name']}-{old[row['name']]}"} if row["name"] in old else row
            for row in cluster.values()["releases"]
        ],
    )
    apply(cluster, bound)
    wanted = {release.name: release.version for release in bound.releases if release.name in old}
    assert {name: cluster.values()["crds"][name] for name in old} == wanted


def test_definitions_that_an_uninstall_left_are_renewed(cluster: Cluster, bound: Steps) -> None:
    cluster.change(crds={"jobset": "0.11.0", "karpenter": "1.13.0"})
    assert "jobset" in apply(cluster, bound).charts
    assert cluster.values()["crds"]["karpenter"] == "1.14.1"


def test_chart_that_somebody_upgraded_gets_its_definitions_once(cluster: Cluster, bound: Steps) -> None:
    """helm leaves the old definitions of a chart, and `up` compared the release only: JobSets were refused for ever."""
    apply(cluster, bound)
    record = cluster.objects("ConfigMap")["gpucluster-kube"]
    older = "gpu-operator-v26.7.0 jobset-0.11.0 karpenter-1.14.1"
    cluster.put({**record, "data": {**record["data"], "definitions": older}})
    cluster.change(crds={**cluster.values()["crds"], "jobset": "0.11.0"})
    wanted = "the chart jobset is deployed, and no `k8s up` has applied its definitions"
    assert wanted in status(cluster.access(), bound).unsettled
    cluster.forget_calls()
    assert apply(cluster, bound).charts == (), "its release is as the spec wants"
    assert cluster.values()["crds"]["jobset"] == "0.12.0"
    assert [line.split()[5].rpartition("/")[2] for line in cluster.calls("show crds")] == ["jobset"]
    assert status(cluster.access(), bound).unsettled == ()
    cluster.forget_calls()
    apply(cluster, bound)
    assert cluster.calls("show crds") == [], "a registry is slow"


def test_definitions_of_a_chart_that_is_there_are_named_when_they_fail(
    cluster: Cluster, bound: Steps
) -> None:
    apply(cluster, bound)
    record = cluster.objects("ConfigMap")["gpucluster-kube"]
    data = {key: value for key, value in record["data"].items() if key != "definitions"}
    cluster.put({**record, "data": data})  # of an earlier version of gpucluster
    cluster.plant("show crds oci://registry.k8s.io/jobset", "Error: not found", times=10)
    with pytest.raises(
        GpuclusterError, match=r"the definitions of the chart jobset 0\.12\.0 of \S+ are not applied"
    ):
        apply(cluster, bound)


def test_charts_inside_a_chart_leave_the_definitions_of_the_pinned_ones(cluster: Cluster) -> None:
    """kubeflow-trainer has lws 0.8.0 inside, and `helm show crds` prints its definitions: they replaced those of lws 0.9.0."""
    found = kube_steps(TRAINED, running=GROUPS)
    apply(cluster, found)
    releases = cluster.values()["releases"]
    cluster.change(
        releases=[{**row, "values": {}} if row["name"] == "kubeflow-trainer" else row for row in releases]
    )
    assert apply(cluster, found).charts == ("kubeflow-trainer",)
    assert cluster.values()["crds"]["lws"] == "0.9.0"
    shown = [line for line in lines(found) if "helm show crds" in line]
    assert not any("kubeflow-trainer" in line for line in shown), "--dry-run prints what `up` does"


def test_line_for_people_divides_definitions_as_up_does() -> None:
    shown = "apiVersion: v1\nkind: A\n\n---\napiVersion: v1\nkind: B\nspec:\n  apiVersion: no\n\napiVersion: v1\nkind: C\n"
    line = define("cat").replace(shlex.join(DEFINE), "cat")
    by_hand = shell.run(["sh", "-c", line], stdin=shown).stdout
    wanted = [["A"], ["B"], ["C"]]
    for text in (by_hand, divided(shown)):
        assert [[one["kind"]] for one in yaml.safe_load_all(text) if one] == wanted


def test_definitions_are_asked_of_the_charts_that_have_some(cluster: Cluster, bound: Steps) -> None:
    apply(cluster, bound)
    asked = [line.split()[5].rpartition("/")[2] for line in cluster.calls("show crds")]
    assert asked == ["gpu-operator", "jobset", "karpenter"]


def test_registry_that_is_away_for_a_moment_is_asked_again(cluster: Cluster, bound: Steps) -> None:
    cluster.plant(
        "upgrade --install kueue", 'Error: Get "https://x/v2/": dial tcp: lookup x: i/o timeout', times=2
    )
    assert "kueue" in apply(cluster, bound).charts


@pytest.mark.parametrize(("call", "words"), [
    ("show crds", 'Error: Get "https://x/v2/": dial tcp: lookup x: i/o timeout'),
    ("--force-conflicts --filename -", REFUSED),
    ("--force-conflicts --filename -", 'error: Operation cannot be fulfilled on customresourcedefinitions.apiextensions.k8s.io "jobsets.jobset.x-k8s.io": the object has been modified'),
])  # fmt: skip
def test_definitions_that_fail_for_a_moment_are_applied_again(
    cluster: Cluster, bound: Steps, call: str, words: str
) -> None:
    cluster.plant(call, words, times=2)
    assert apply(cluster, bound).charts == CHARTS


@pytest.mark.parametrize(("skip", "call", "words"), [  # the definitions of the GPU operator go well before
    (0, "show crds oci://registry.k8s.io/jobset", 'Error: failed to perform "FetchReference" on source: oci://registry.k8s.io/jobset/charts/jobset:0.12.0: not found'),
    (1, "--force-conflicts --filename -", 'The CustomResourceDefinition "jobsets.jobset.x-k8s.io" is invalid: status.storedVersions[0]: Invalid value: "v1alpha1": missing from spec.versions'),
])  # fmt: skip
def test_refused_definitions_name_their_chart_and_stop_before_it(
    cluster: Cluster, bound: Steps, skip: int, call: str, words: str
) -> None:
    cluster.plant(call, words, times=10, skip=skip)
    with pytest.raises(GpuclusterError, match=r"the chart jobset 0\.12\.0 of \S+ is not installed"):
        apply(cluster, bound)
    assert cluster.calls("upgrade --install jobset") == []
    cluster.change(faults=[])
    assert "jobset" in apply(cluster, bound).charts


@pytest.mark.parametrize("when", ["before", "after"])
def test_run_that_was_killed_between_definitions_and_chart_goes_on(
    cluster: Cluster, bound: Steps, when: str
) -> None:
    old = {"jobset": "0.11.0"}
    cluster.change(crds=old)
    cluster.plant(
        "--force-conflicts --filename -", kill=True, when=when, skip=1
    )  # after those of the GPU operator
    with pytest.raises(CallerIsKilledError):
        apply(cluster, bound)
    assert cluster.values()["crds"].get("jobset") == {"before": "0.11.0", "after": "0.12.0"}[when]
    assert "jobset" not in [row["name"] for row in cluster.values()["releases"]]
    assert apply(cluster, bound).charts == ("jobset", "karpenter", "kueue")
    assert cluster.values()["crds"]["jobset"] == "0.12.0"
    assert status(cluster.access(), bound).unsettled == ()


def test_volume_without_an_id_is_told_and_not_awaited(cluster: Cluster) -> None:
    apply(cluster, kube_steps(bindings=None))
    words = next(line for line in cluster.said if line.startswith("not awaited: "))
    assert "research/PersistentVolumeClaim/data" in words
    assert "serving/Deployment/chat" in "".join(cluster.said)


def test_dead_helm_is_rolled_back_and_its_chart_upgraded(cluster: Cluster, bound: Steps) -> None:
    apply(cluster, bound)
    cluster.change(
        releases=[{**row, "status": "pending-upgrade", "revision": 2} for row in cluster.values()["releases"]]
    )
    apply(cluster, bound)
    assert {row["status"] for row in cluster.values()["releases"]} == {"deployed"}
    assert len(cluster.calls("helm --kube-context")) > 0
    assert len(cluster.calls(" rollback ")) == len(CHARTS)


CHAT = "apps/v1|Deployment|serving|chat"
SCALED = ['"kubectl" with subresource "scale" using apps/v1', ".spec.replicas"]
PATCHED = ['"kubectl-set" using apps/v1', '.spec.template.spec.containers[name="server"].image']


@pytest.mark.parametrize(("owned", "words"), [
    ([SCALED], "kubectl has set .spec.replicas"),
    ([SCALED, PATCHED], 'kubectl has set .spec.replicas; kubectl-set has set .spec.template.spec.containers[name="server"].image'),
])  # fmt: skip
def test_field_of_another_manager_is_named_and_taken_on_request(
    cluster: Cluster, bound: Steps, owned: list[list[str]], words: str
) -> None:
    """Regression: after `kubectl scale` each run ended with "correct the workload", which corrects nothing."""
    apply(cluster, bound)
    cluster.change(owned={CHAT: owned})
    with pytest.raises(GpuclusterError) as found:
        apply(cluster, bound)
    assert found.value.message.startswith(
        "others have set fields that the spec sets to other values: 50-services/"
    )
    assert f": serving/Deployment/chat: {words}; they are not changed" in found.value.message
    assert found.value.next_step == (
        "to set them as the spec says: repeat it with --force-conflicts; to keep them: change the spec"
    )
    assert f"serving/Deployment/chat ({words}) differs" in status(cluster.access(), bound).unsettled
    apply(cluster, bound, force_conflicts=True)
    apply(cluster, bound)


def test_conflict_that_is_gone_is_told_by_its_fields(cluster: Cluster, bound: Steps) -> None:
    cluster.plant(
        "50-services", f"error: Apply failed with 1 conflict: conflict with {SCALED[0]}: {SCALED[1]}"
    )
    with pytest.raises(GpuclusterError, match=r"50-services: kubectl has set \.spec\.replicas; they are not"):
        apply(cluster, bound)


def test_service_that_waits_stops_no_gang(cluster: Cluster, bound: Steps) -> None:
    """Regression: a Deployment without its Secret ended the run after half an hour, and no gang was applied."""
    cluster.change(slow={"Deployment": 10000})
    done = apply(cluster, bound, limit_s=20.0)
    assert done.waiting == ("serving/Deployment/chat: its controller has not seen it",)
    assert "tune" in cluster.objects("JobSet")
    assert cluster.objects("ConfigMap")["gpucluster-kube"]["data"]["complete"] == "true"
    assert cluster.objects("Lease")["gpucluster-kube"]["spec"]["holderIdentity"] == ""
    cluster.change(slow={})
    assert apply(cluster, bound).waiting == ()


def test_services_are_awaited_without_the_lease(cluster: Cluster, bound: Steps) -> None:
    holders = set[str]()

    def look() -> None:
        holders.add(cluster.objects("Lease")["gpucluster-kube"]["spec"]["holderIdentity"])

    cluster.change(slow={"Deployment": 3})
    cluster.while_asleep = look
    apply(cluster, bound)
    assert holders == {""}


def test_first_run_ends_after_the_namespaces_for_their_secrets(cluster: Cluster, bound: Steps) -> None:
    done = apply(cluster, bound, through="10-access")
    assert done.waves == ("00-namespaces", "10-access")
    assert cluster.objects("Namespace").keys() == {"research", "serving"}
    assert cluster.objects("ClusterQueue") == {}
    assert cluster.objects("ConfigMap")["gpucluster-kube"]["data"]["complete"] == "false"
    assert apply(cluster, bound).charts == ()
    assert cluster.objects("ConfigMap")["gpucluster-kube"]["data"]["complete"] == "true"


def test_unknown_last_wave_names_those_that_are_there(cluster: Cluster, bound: Steps) -> None:
    with pytest.raises(
        StateError, match="--through says access, and the tree of kube has no such wave"
    ) as found:
        apply(cluster, bound, through="access")
    assert str(found.value.next_step).startswith("name one of 00-namespaces, 10-access, ")
    assert cluster.calls() == []


def test_prune_needs_every_wave(cluster: Cluster, bound: Steps) -> None:
    with pytest.raises(
        StateError, match="--prune and --through exclude each other: nothing was changed"
    ) as found:
        apply(cluster, bound, through="10-access", prune=True)
    assert found.value.next_step == (
        "leave out --through: what the spec no longer has is known after the last wave"
    )
    assert cluster.calls() == []


def pending(cluster: Cluster, **more: object) -> None:
    """A release as a helm leaves it that has not ended."""
    rows = cluster.values()["releases"]
    cluster.change(
        releases=[
            {**row, "status": "pending-upgrade", "revision": 2, **more} if row["name"] == "kueue" else row
            for row in rows
        ]
    )


def test_helm_of_somebody_that_still_works_is_left_alone(cluster: Cluster, bound: Steps) -> None:
    """Regression: `helm upgrade --wait` by hand lasted longer than a minute, and `up` rolled it back."""
    apply(cluster, bound)
    pending(cluster)

    def ends() -> None:
        if cluster.elapsed > 300:
            pending(cluster, status="deployed")

    cluster.while_asleep = ends
    apply(cluster, bound)
    assert cluster.calls(" rollback ") == cluster.calls(" uninstall ") == []
    assert (
        "waiting for the release kueue, at most 600 s: it is pending-upgrade, by another helm" in cluster.said
    )


@pytest.mark.parametrize(("updated", "least", "most"), [
    ("2026-11-25 11:00:00 +0000 UTC", 0, 60),
    ("2026-11-25 12:55:00.5 +0100 CET", 290, 400),
    ("2026-11-25 12:00:00 +0000 UTC", 590, 700),
    ("", 590, 700),
])  # fmt: skip
def test_dead_helm_is_ended_when_its_time_is_over(
    cluster: Cluster, bound: Steps, updated: str, least: float, most: float
) -> None:
    apply(cluster, bound)
    pending(cluster, updated=updated)
    apply(cluster, bound)
    assert len(cluster.calls(" rollback ")) == 1
    assert least <= cluster.elapsed <= most
    words = "the release kueue is pending-upgrade for 600 s or longer: it is rolled back"
    assert words in cluster.said


def ends(cluster: Cluster, name: str) -> None:
    """Let an object be one that is being deleted, and that a finalizer holds."""
    with State(cluster.folder).locked() as values:
        (one,) = (o for o in values["objects"].values() if o["metadata"]["name"] == name)
        marks = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["karpenter.sh/termination"]}
        one["metadata"] |= marks
        values["stuck"].append(f"{one['kind']}/{name}")  # its controller is slow


def gone(cluster: Cluster, name: str) -> None:
    with State(cluster.folder).locked() as values:
        values["objects"] = {k: o for k, o in values["objects"].items() if o["metadata"]["name"] != name}


def test_object_that_is_being_deleted_is_awaited_and_made_again(cluster: Cluster, bound: Steps) -> None:
    """A `down` was killed: an apply to its NodePool succeeded, and the NodePool went minutes after the end of `up`."""
    apply(cluster, bound)
    ends(cluster, "kube-serve-0")
    assert "NodePool/kube-serve-0 (it is being deleted) differs" in status(cluster.access(), bound).unsettled
    cluster.while_asleep = lambda: gone(cluster, "kube-serve-0")
    apply(cluster, bound)
    assert "deletionTimestamp" not in cluster.objects("NodePool")["kube-serve-0"]["metadata"]
    assert status(cluster.access(), bound).unsettled == ()


def test_object_that_does_not_go_ends_the_run_before_a_change(cluster: Cluster, bound: Steps) -> None:
    apply(cluster, bound)
    ends(cluster, "kube-serve-0")
    cluster.forget_calls()
    words = r"NodePool/kube-serve-0 is being deleted, held by karpenter\.sh/termination"
    with pytest.raises(StateError, match=words) as found:
        apply(cluster, bound, limit_s=10.0)
    assert "gpucluster k8s up kube" in str(found.value)
    assert cluster.calls(" apply ") == []


def uninstalling(cluster: Cluster, name: str) -> None:
    """Let a helm uninstall have been killed."""
    rows = cluster.values()["releases"]
    cluster.change(
        releases=[{**row, "status": "uninstalling"} if row["name"] == name else row for row in rows]
    )


def test_uninstall_that_was_killed_is_ended_and_the_chart_installed_again(
    cluster: Cluster, bound: Steps
) -> None:
    """helm refuses the upgrade of such a release, so no `up` went on after a `down` that was killed there."""
    apply(cluster, bound)
    uninstalling(cluster, "gpu-operator")
    assert apply(cluster, bound).charts == ("gpu-operator",)
    assert all(row["status"] == "deployed" for row in cluster.values()["releases"])


def test_uninstall_that_was_killed_is_not_ended_while_its_kinds_have_objects(
    cluster: Cluster, bound: Steps
) -> None:
    apply(cluster, bound)
    uninstalling(cluster, "kueue")
    with pytest.raises(StateError, match="objects of its kinds are there") as found:
        apply(cluster, bound)
    assert "helm rollback kueue 1 --namespace kueue-system" in str(found.value)
    assert cluster.calls(" uninstall ") == []
    assert cluster.objects("ClusterQueue")


def test_install_that_was_killed_is_not_uninstalled_while_its_kinds_have_objects(
    cluster: Cluster, bound: Steps
) -> None:
    """The uninstall deletes the definitions of Kueue, and with them each queue and each Workload."""
    apply(cluster, bound)
    pending(cluster, status="pending-install", revision=1, updated="2026-11-25 11:00:00 +0000 UTC")
    with pytest.raises(StateError, match="its installation did not end, and objects of its kinds") as found:
        apply(cluster, bound)
    assert "helm rollback kueue 1 --namespace kueue-system" in str(found.value)
    assert cluster.calls(" uninstall ") == []
    assert cluster.objects("ClusterQueue")


def test_install_that_was_killed_without_objects_is_made_again(cluster: Cluster, bound: Steps) -> None:
    apply(cluster, bound, through="10-access")
    pending(cluster, status="pending-install", revision=1, updated="2026-11-25 11:00:00 +0000 UTC")
    assert apply(cluster, bound).charts == ("kueue",)
    assert len(cluster.calls(" uninstall ")) == 1

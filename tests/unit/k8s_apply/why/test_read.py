"""What `k8s why` reads: the subject by its name, its namespace, and of the cluster what the user may read."""

import pytest
from support.cluster import Cluster
from support.waiting_pods import ADMITTED, JOB, JOBSET, NODE, Manifest, event, on_node, thing

from gpucluster.errors import GpuclusterError, StateError
from gpucluster.k8s_apply.why.evidence import Evidence, name_of
from gpucluster.k8s_apply.why.read import NoSubjectError, read, subject_of

POD = on_node()


@pytest.fixture
def full(cluster: Cluster) -> Cluster:
    cluster.change(crds=dict.fromkeys(["jobset", "kueue", "karpenter"], "1"))
    cluster.put(JOBSET, JOB, ADMITTED, POD, NODE, event(POD, "Pulling", "Pulling image"))
    return cluster


def found(cluster: Cluster, words: str) -> Evidence:
    return read(cluster.access().kubectl, subject_of(words))


def in_other(one: Manifest) -> Manifest:
    uid = f"{one['metadata']['uid']}-2"
    return {**one, "metadata": {**one["metadata"], "namespace": "serving", "uid": uid}}


@pytest.mark.parametrize(("words", "root"), [
    ("tune", "research/JobSet/tune"),
    ("research/tune", "research/JobSet/tune"),
    ("research/JobSet/tune", "research/JobSet/tune"),
    ("jobset-tune", "research/JobSet/tune"),  # Kueue's Workload of it
    ("tune-nodes-0-0", "research/Pod/tune-nodes-0-0"),
])  # fmt: skip
def test_subject_is_found_by_its_name(full: Cluster, words: str, root: str) -> None:
    evidence = found(full, words)
    assert name_of(evidence.root) == root
    assert [name_of(one) for one in evidence.pods] == ["research/Pod/tune-nodes-0-0"]
    assert [one["metadata"]["name"] for one in evidence.workloads] == ["jobset-tune"]
    assert [one["reason"] for one in evidence.events(POD)] == ["Pulling"]
    assert evidence.named("Node", "a") is not None


def test_cron_job_is_a_subject(full: Cluster) -> None:
    """A team may create CronJobs, and `why` said that there is no pod or workload of that name."""
    full.put(thing("CronJob", "nightly", spec={"schedule": "0 3 * * *"}))
    assert name_of(found(full, "research/nightly").root) == "research/CronJob/nightly"


def test_nothing_is_changed(full: Cluster) -> None:
    before = full.versions()
    found(full, "tune")
    assert full.versions() == before
    assert {line.split()[4] for line in full.calls()} == {"get"}


@pytest.mark.parametrize("words", ["tuen", "serving/tune", "research/Deployment/tune"])
def test_missing_subject(full: Cluster, words: str) -> None:
    with pytest.raises(NoSubjectError, match=f"there is no .* {words.rpartition('/')[2]} in ") as caught:
        found(full, words)
    assert caught.value.exit_code == 1


def test_name_of_several(full: Cluster) -> None:
    full.put(in_other(JOBSET))
    with pytest.raises(StateError, match="tune names several: research/JobSet/tune, serving/JobSet/tune"):
        found(full, "tune")
    assert name_of(found(full, "serving/tune").root) == "serving/JobSet/tune"


def test_job_with_the_name_of_its_owner(full: Cluster) -> None:
    full.put(thing("Job", "tune", JOBSET))
    assert name_of(found(full, "tune").root) == "research/JobSet/tune"


@pytest.mark.parametrize("words", ["", "a/b/c/d", "/tune", "research/"])
def test_words_that_are_no_name(words: str) -> None:
    with pytest.raises(StateError, match="is no name"):
        subject_of(words)


def test_kind_that_runs_no_pods(full: Cluster) -> None:
    with pytest.raises(StateError, match="Service is no kind that runs pods"):
        found(full, "research/Service/tune")


def test_kinds_that_the_user_may_not_read_are_named(full: Cluster) -> None:
    """A member of a team reads its namespace alone."""
    for kind in ("Node.v1.", "NodePool.v1", "Workload.v1beta2.kueue.x-k8s.io --all-namespaces"):
        words = f'Error from server (Forbidden): x is forbidden: User "ann" cannot list resource "{kind}" at the cluster scope'
        full.plant(kind, words, times=99)
    evidence = found(full, "research/tune")
    assert evidence.unread == ("Node", "NodePool", "Workload of other namespaces")
    assert [one["metadata"]["name"] for one in evidence.workloads] == ["jobset-tune"]


def test_another_failure_is_told(full: Cluster) -> None:
    full.plant("Event.v1.", "Error from server (BadRequest): x", times=99)
    with pytest.raises(GpuclusterError, match="BadRequest"):
        found(full, "research/tune")

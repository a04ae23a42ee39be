"""The ConfigMap `gpucluster-NAME`: which tree is applied, and in which cluster.

A cluster is known by the UID of its namespace kube-system. A copy of a cluster has the record of the first one, and another UID.
"""

from dataclasses import dataclass

from gpucluster.errors import StateError
from gpucluster.k8s.manifest import Manifest
from gpucluster.k8s_apply.faults import ConflictError, NotFoundError, TransientError
from gpucluster.k8s_apply.kubectl import Kubectl
from gpucluster.k8s_apply.objects import MANAGED_BY, MANAGER, section
from gpucluster.plan import names

NAMESPACE = "kube-system"


@dataclass(frozen=True, slots=True)
class Record:
    """What an `up` wrote. `complete`: it went to its end. An empty text is not known."""

    cluster: str
    digest: str
    complete: bool
    uid: str = ""  # of the namespace kube-system
    account: str = ""  # of AWS
    definitions: frozenset[str] = frozenset()  # the charts, NAME-VERSION, whose definitions an `up` applied


def name_of(cluster: str) -> str:
    """Return the name of the record and of the lease."""
    return f"gpucluster-{cluster}"


def read(kubectl: Kubectl, cluster: str) -> Record | None:
    found = kubectl.get([_manifest(Record(cluster, "", complete=False))])
    if not found:
        return None
    data = section(found[0], "data")
    return Record(
        data.get("cluster", ""),
        data.get("digest", ""),
        data.get("complete") == "true",
        data.get("uid", ""),
        data.get("account", ""),
        frozenset(data.get("definitions", "").split()),
    )


def uid_of(kubectl: Kubectl) -> str:
    """Return what names a cluster for ever: the UID of its namespace kube-system."""
    found = kubectl.get([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}])
    return str(found[0]["metadata"]["uid"]) if found else ""


def difference(kubectl: Kubectl, cluster: str, account: str, found: Record | None) -> str:
    """Return what says that the record is of another cluster, or of another account of AWS; empty: nothing does."""
    if found is None:
        return ""
    for what, was, now in (
        ("cluster whose kube-system has the UID", found.uid, uid_of(kubectl) if found.uid else ""),
        ("AWS account", found.account, account),
    ):
        if was and now and was != now:
            return (
                f"the ConfigMap {name_of(cluster)} in {NAMESPACE} is of the {what} {was}, and this is {now}"
            )
    return ""


def require_same(kubectl: Kubectl, cluster: str, account: str) -> None:
    """StateError if the record is of another cluster or of another account of AWS."""
    if words := difference(kubectl, cluster, account, read(kubectl, cluster)):
        raise StateError(
            f"{words}: nothing was changed",
            next_step=f"name the right --context and --bindings; if this cluster is a copy that you want to keep:"
            f" kubectl delete configmap {name_of(cluster)} --namespace {NAMESPACE}",
        )


def write(kubectl: Kubectl, record: Record) -> None:
    """Write it if it differs from what is there. TransientError: it changed meanwhile, and a repeat reads it again."""
    wanted = _manifest(record)
    there = kubectl.get([wanted])
    try:
        if not there:
            kubectl.create(wanted)
        elif there[0].get("data") != wanted["data"]:
            kubectl.replace({**there[0], "data": wanted["data"]})
    except (ConflictError, NotFoundError) as error:
        raise TransientError(error.message, text=error.text) from error


def delete(kubectl: Kubectl, cluster: str) -> None:
    kubectl.delete([_manifest(Record(cluster, "", complete=False))])


def is_record(one: Manifest, cluster: str) -> bool:
    """Return whether an object is the record of the cluster. It carries our labels."""
    place = one["metadata"].get("namespace"), one["metadata"]["name"]
    return one["kind"] == "ConfigMap" and place == (NAMESPACE, name_of(cluster))


def metadata(cluster: str) -> Manifest:
    """Return the metadata of the record and of the lease."""
    marks = {names.LABEL_CLUSTER: cluster, MANAGED_BY: MANAGER}
    return {"name": name_of(cluster), "namespace": NAMESPACE, "labels": marks}


def _manifest(record: Record) -> Manifest:
    data = {"cluster": record.cluster, "digest": record.digest, "complete": str(record.complete).lower()}
    data |= {
        "uid": record.uid,
        "account": record.account,
        "definitions": " ".join(sorted(record.definitions)),
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(record.cluster), "data": data}

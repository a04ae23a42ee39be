"""The ConfigMap `gpucluster-NAME`: which tree of which cluster is applied."""

from dataclasses import dataclass

from gpucluster.k8s.manifest import Manifest
from gpucluster.k8s_apply.kubectl import Kubectl
from gpucluster.k8s_apply.objects import MANAGED_BY, MANAGER, section
from gpucluster.plan import names

NAMESPACE = "kube-system"


@dataclass(frozen=True, slots=True)
class Record:
    """What an `up` wrote. `complete`: it went to its end."""

    cluster: str
    digest: str
    complete: bool


def name_of(cluster: str) -> str:
    """Return the name of the record and of the lease."""
    return f"gpucluster-{cluster}"


def read(kubectl: Kubectl, cluster: str) -> Record | None:
    found = kubectl.get([_manifest(Record(cluster, "", complete=False))])
    if not found:
        return None
    data = section(found[0], "data")
    return Record(data.get("cluster", ""), data.get("digest", ""), data.get("complete") == "true")


def write(kubectl: Kubectl, record: Record) -> None:
    """Write it if it differs from what is there."""
    wanted = _manifest(record)
    there = kubectl.get([wanted])
    if not there:
        kubectl.create(wanted)
    elif there[0].get("data") != wanted["data"]:
        kubectl.replace({**there[0], "data": wanted["data"]})


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
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(record.cluster), "data": data}

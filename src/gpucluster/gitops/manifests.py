"""What differs between the objects of two rendered trees, and what `kubectl apply` makes of it. Pure.

Most objects change in place. The API server and Kueue let nobody change what makes the pods of a gang: such an object is
deleted and created again. A changed service stays, and its pods are replaced.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from gpucluster.artifacts import Artifact
from gpucluster.gitops.model import WORKLOADS, Consequence, SpecChange, worse, worst
from gpucluster.k8s.manifest import Manifest, documents
from gpucluster.k8s.views.pods import PRIORITY_LABEL
from gpucluster.k8s.waves import WAVES
from gpucluster.k8s_apply.objects import DATA, Ref, labels, ref_of, rows, section
from gpucluster.plan import names
from gpucluster.spec import UpdateClass

_FOLDERS = tuple(f"{names.K8S_DIR}/{wave.folder}/" for wave in WAVES)


@dataclass(frozen=True, slots=True, order=True)
class Workload:
    """A workload that has pods."""

    team: str
    kind: str  # of its object
    name: str

    @property
    def path(self) -> str:
        """Return its path in the diff, as that of a change in workloads/NAME.yaml."""
        return f"{WORKLOADS}{_LIST[self.kind]}[{self.name}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeChange:
    """What leaves, and what happens to the workloads that stay."""

    left: tuple[Manifest, ...] = ()  # of the old tree: no object of the new tree has their kind and name
    gone: tuple[Workload, ...] = ()  # of `left`
    recreated: tuple[Workload, ...] = ()
    rolled: tuple[Workload, ...] = ()

    @property
    def node_pools(self) -> tuple[tuple[str, str], ...]:
        """Return the NodePools that leave, each with the label of its nodes' pool: the name of a pool, or of its part in a zone."""
        found = (one for one in self.left if one["kind"] == "NodePool")
        return tuple((labels(one["spec"]["template"])[names.LABEL_POOL], ref_of(one).name) for one in found)

    @property
    def prunable(self) -> tuple[Manifest, ...]:
        """Return what `gpucluster k8s up --prune` deletes."""
        return tuple(one for one in self.left if one["kind"] not in DATA)


def tree_change(old: Iterable[Artifact], new: Iterable[Artifact]) -> TreeChange:
    """Compare the objects of two trees. Files that are equal are not read."""
    before, after = _files(old), _files(new)
    was = dict(_objects(text for path, text in before.items() if after.get(path) != text))
    now = dict(_objects(text for path, text in after.items() if before.get(path) != text))
    left = tuple(one for ref, one in sorted(was.items()) if ref not in now)
    both = [(one, now[ref]) for ref, one in sorted(was.items()) if ref in now]
    recreated = _workloads(one for one, later in both if _differ(_FIXED, one, later))
    rolled = _workloads(one for one, later in both if _differ(_PODS, one, later))
    return TreeChange(
        left=left,
        gone=_workloads(one for one in left if one["kind"] in _LIST),
        recreated=recreated,
        rolled=tuple(one for one in rolled if one not in recreated),
    )


def consequences(found: TreeChange, changes: Iterable[SpecChange]) -> Iterator[Consequence]:
    """Yield what workloads and pools suffer, where no change of the same workload or pool has this class."""
    known = tuple(changes)
    for one in _every(found):
        said = worst(change.update for change in known if change.path.startswith(one.path))
        if worse(one.update, said):
            yield one


def _every(found: TreeChange) -> Iterator[Consequence]:
    for update, message, some in (
        (UpdateClass.REPLACE, "its {kind} cannot change: it is deleted and created again", found.recreated),
        (UpdateClass.LIVE, "the pods of its {kind} are replaced one after another", found.rolled),
    ):
        for one in some:
            yield Consequence(path=one.path, update=update, message=message.format(kind=one.kind))
    for pool, name in found.node_pools:
        path = f"pools[{pool.partition('.')[0]}]"  # the path of a part is that of its pool
        message = f"the NodePool {name} leaves the manifests: when it is deleted, Karpenter ends its nodes"
        yield Consequence(path=path, update=UpdateClass.DRAIN, message=message)


def _group(one: Manifest) -> object:
    """Return what Kueue fixes of a LeaderWorkerSet: the size, and of the pods what their role is made of (its `SpecShape`)."""
    template = section(section(one, "spec"), "leaderWorkerTemplate")
    pods = [section(section(template, role), "spec") for role in ("leaderTemplate", "workerTemplate")]
    return (template.get("size"), [_shape(pod) for pod in pods])


def _shape(pod: Manifest) -> object:
    containers = [
        (section(section(c, "resources"), "requests"), c.get("ports")) for c in rows(pod, "containers")
    ]
    return (containers, pod.get("affinity"), pod.get("tolerations"))


def _gang(one: Manifest) -> object:
    """Return what the API server and Kueue fix. Kueue takes another priority while the gang runs, and its pods stay (v0.19.2)."""
    return (one["spec"], {key: value for key, value in _of_queue(one).items() if key != PRIORITY_LABEL})


def _template(one: Manifest) -> object:
    """Return what the pods are made of. Kueue copies its labels to them."""
    return (one["spec"].get("template"), one["spec"].get("leaderWorkerTemplate"), _of_queue(one))


def _of_queue(one: Manifest) -> dict[str, str]:
    return {key: value for key, value in labels(one).items() if key.startswith("kueue.x-k8s.io/")}


# The list of workloads/NAME.yaml that has the workload, by the kind of its object
_LIST = {"Deployment": "serve", "JobSet": "train", "LeaderWorkerSet": "serve", "TrainJob": "train"}
_FIXED: Mapping[str, Callable[[Manifest], object]] = {
    "JobSet": _gang,
    "LeaderWorkerSet": _group,
    "TrainJob": _gang,
}
_PODS: Mapping[str, Callable[[Manifest], object]] = {"Deployment": _template, "LeaderWorkerSet": _template}


def _differ(table: Mapping[str, Callable[[Manifest], object]], old: Manifest, new: Manifest) -> bool:
    part = table.get(old["kind"])
    return part is not None and part(old) != part(new)


def _files(artifacts: Iterable[Artifact]) -> dict[str, bytes]:
    """Return the files of the waves."""
    return {
        one.path: one.content
        for one in artifacts
        if one.path.startswith(_FOLDERS) and not one.path.endswith("/kustomization.yaml")
    }


def _objects(texts: Iterable[bytes]) -> Iterator[tuple[Ref, Manifest]]:
    return ((ref_of(one), one) for text in texts for one in documents(text.decode()))


def _workloads(found: Iterable[Manifest]) -> tuple[Workload, ...]:
    mine = ((labels(one), one["kind"]) for one in found)
    made = (Workload(marks[names.LABEL_TEAM], kind, marks[names.LABEL_WORKLOAD]) for marks, kind in mine)
    return tuple(sorted(made))

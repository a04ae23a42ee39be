"""Whose objects are there: what another spec or a person made is refused by name; what left the tree is listed."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpucluster import k8s
from gpucluster.errors import StateError
from gpucluster.k8s.manifest import Manifest
from gpucluster.k8s.waves import ACCESS, FIELD_MANAGER
from gpucluster.k8s_apply import record
from gpucluster.k8s_apply.clock import some
from gpucluster.k8s_apply.kubectl import MANAGERS, Kubectl
from gpucluster.k8s_apply.objects import (
    DATA,
    Ref,
    foreign_objects,
    is_ending,
    is_true,
    is_written_by,
    labels,
    ref_of,
    section,
    selector,
    top_level,
)
from gpucluster.k8s_apply.steps import Steps
from gpucluster.k8s_apply.workload_states import ENDS
from gpucluster.plan import names

TRAIN_JOB = ("trainer.kubeflow.org/v1alpha1", "TrainJob")
RUNTIME_KINDS = (CLUSTER_RUNTIME := "ClusterTrainingRuntime", "TrainingRuntime")


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Objects of this cluster that are no longer in its tree, in the order in which they can be deleted."""

    prunable: tuple[Manifest, ...]
    kept: tuple[Manifest, ...]  # data, and runtimes that a TrainJob still needs
    policies: tuple[Manifest, ...] = ()  # of namespaces that stay, where pods may run on

    @property
    def staying(self) -> tuple[str, ...]:
        """Return the names of what --prune leaves there."""
        policies = (f"{ref_of(one)}, a policy of a namespace that stays" for one in self.policies)
        return (*(str(ref_of(one)) for one in self.kept), *policies)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all."""
        return (*(str(ref_of(one)) for one in self.prunable), *self.staying)


def refuse_foreign_objects(kubectl: Kubectl, cluster: str, manifests: Sequence[Manifest]) -> None:
    """StateError names each object that exists and is not of this cluster. Nothing is changed."""
    found = foreign_objects(kubectl.get(manifests), cluster)
    if found:
        ref = found[0][0]
        place = f" --namespace {ref.namespace}" if ref.namespace else ""
        raise StateError(
            f"{some([f'{one} exists and {why}' for one, why in found], 10)}: it is not changed",
            next_step=f"rename it in the spec, or give it to {cluster}: kubectl label {ref.kind.lower()} {ref.name}{place}"
            f" --overwrite {names.LABEL_CLUSTER}={cluster}",
        )


def ending(kubectl: Kubectl, manifests: Sequence[Manifest]) -> list[str]:
    """Return what is being deleted, each with what holds it. An apply would change it, and it would go all the same."""
    return [
        f"{ref_of(one)} is being deleted"
        + (f", held by {', '.join(held)}" if (held := _finalizers(one)) else "")
        for one in kubectl.get(manifests)
        if is_ending(one)
    ]


def _finalizers(one: Manifest) -> list[str]:
    return one["metadata"].get("finalizers") or []


def ours(kubectl: Kubectl, steps: Steps) -> list[Manifest]:
    """Return all objects that the specs of this cluster made, the last wave first, without the record of `up`.

    They have our labels, and are in the tree or have a field that we set. So the copy of a manifest under another name, which somebody
    else created, is not ours.
    """
    kinds, cluster = k8s.kinds(), steps.cluster
    tree = {ref_of(one) for one in (*steps.objects, *steps.tests)}
    found = top_level(kubectl.find(list(kinds), selector(cluster), "", "", MANAGERS))
    known = [
        one
        for one in found
        if _type(one) in kinds
        and not record.is_record(one, cluster)
        and (ref_of(one) in tree or is_written_by(one, FIELD_MANAGER))
    ]
    return sorted(known, key=lambda one: (kinds[_type(one)].folder, ref_of(one)), reverse=True)


def leftovers(kubectl: Kubectl, steps: Steps) -> Leftovers:
    """Return the objects of this cluster that the tree no longer has."""
    wanted: set[Ref] = {ref_of(one) for one in (*steps.objects, *steps.tests)}
    left = [one for one in ours(kubectl, steps) if ref_of(one) not in wanted]
    needed = _needed(kubectl, left)
    kept = [one for one in left if one["kind"] in DATA or ref_of(one) in needed]
    policies = _policies(left)
    prunable = tuple(one for one in left if one not in kept and one not in policies)
    return Leftovers(prunable=prunable, kept=tuple(kept), policies=tuple(policies))


def _policies(left: Sequence[Manifest]) -> list[Manifest]:
    """Return the roles, limits and policies of namespaces that leave the spec and stay: without them its pods would be free."""
    spaces = {one["metadata"]["name"] for one in left if one["kind"] == "Namespace"}
    teams = {labels(one).get(names.LABEL_TEAM) for one in left if one["kind"] == "Namespace"} - {None}
    kinds = k8s.kinds()
    return [
        one
        for one in left
        if kinds[_type(one)] is ACCESS
        and (one["metadata"].get("namespace") in spaces or labels(one).get(names.LABEL_TEAM) in teams)
    ]


def _needed(kubectl: Kubectl, left: Sequence[Manifest]) -> set[Ref]:
    """Return the runtimes of TrainJobs that have not ended and do not leave the spec: without it a restart of the gang fails."""
    if not any(one["kind"] in RUNTIME_KINDS for one in left):
        return set()
    leaving = {ref_of(one) for one in left}
    jobs = (one for one in kubectl.find([TRAIN_JOB]) if ref_of(one) not in leaving)
    return {_runtime(one) for one in jobs if not any(is_true(one, kind) for kind, _ in ENDS)}


def _runtime(job: Manifest) -> Ref:
    named = section(section(job, "spec"), "runtimeRef")
    kind = str(named.get("kind", CLUSTER_RUNTIME))
    namespace = "" if kind == CLUSTER_RUNTIME else job["metadata"]["namespace"]
    return Ref(TRAIN_JOB[0], kind, namespace, named["name"])


def _type(one: Manifest) -> tuple[str, str]:
    return one["apiVersion"], one["kind"]

"""Claims and the pods that use them: modes of access that a volume does not have."""

from collections.abc import Iterator

from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.manifest_set import ManifestSet, Obj
from gpucluster.k8s.lint.pods import Pods, pods_of
from gpucluster.k8s.lint.references import CLAIM, STORAGE_CLASS, VOLUME
from gpucluster.k8s.lint.tree import at, entries, items, mapping, text
from gpucluster.text import quoted

_EBS = frozenset({"ebs.csi.aws.com", "kubernetes.io/aws-ebs", "ebs.csi.eks.amazonaws.com"})
_EBS_CLASSES = frozenset({"gp2", "gp3", "io1", "io2"})  # names that EKS and its guides give to classes of EBS
_MANY = frozenset({"ReadWriteMany", "ReadOnlyMany"})
_HPA = "HorizontalPodAutoscaler.autoscaling"


def check(manifests: ManifestSet) -> Iterator[Finding]:
    for thing in manifests.all(CLAIM, VOLUME):
        yield from _many_on_ebs(manifests, thing)
    for thing in manifests.objects:
        for pods in pods_of(thing):
            yield from _claims(manifests, pods)


def _many_on_ebs(manifests: ManifestSet, thing: Obj) -> Iterator[Finding]:
    """An EBS volume is in one machine. Only a block device of type io2 can be in several."""
    modes = [text(mode) for mode in items(at(thing.body, "spec", "accessModes"))]
    many = [mode for mode in modes if mode in _MANY]
    if many and at(thing.body, "spec", "volumeMode") != "Block" and _is_ebs(manifests, thing):
        yield thing.found(
            "volume-mode",
            f"a volume of EBS has no {' and '.join(many)}: use EFS or FSx",
            ("spec", "accessModes"),
        )


def _is_ebs(manifests: ManifestSet, thing: Obj) -> bool:
    if thing.key == VOLUME:
        csi = mapping(at(thing.body, "spec", "csi"))
        is_volume = text(csi.get("volumeHandle")).startswith("vol-")  # the driver has local volumes, too
        return (text(csi.get("driver")) in _EBS and is_volume) or at(
            thing.body, "spec", "awsElasticBlockStore"
        ) is not None
    name = text(at(thing.body, "spec", "storageClassName"))
    known = manifests.get(STORAGE_CLASS, name)
    return text(at(known.body, "provisioner")) in _EBS if known else name in _EBS_CLASSES


def _claims(manifests: ManifestSet, pods: Pods) -> Iterator[Finding]:
    count = max(pods.count, _scaled(manifests, pods))
    for path, volume in entries(pods.spec, "volumes") if count > 1 else ():
        name = text(at(volume, "persistentVolumeClaim", "claimName"))
        claim = manifests.get(CLAIM, name, pods.owner.namespace)
        modes = items(at(claim.body, "spec", "accessModes")) if claim else ()
        where = pods.where("spec", *path, "persistentVolumeClaim", "claimName")
        if "ReadWriteOncePod" in modes:
            yield pods.owner.found(
                "claim-sharing", f"{count} pods use claim {quoted(name)}, which one pod can use", where
            )
        elif modes and not _MANY & {text(mode) for mode in modes}:
            words = (
                f"{count} pods use claim {quoted(name)}, which only pods of one node can use (ReadWriteOnce)"
            )
            yield pods.owner.warned("claim-sharing", words, where)


def _scaled(manifests: ManifestSet, pods: Pods) -> int:
    """Return the most pods that an autoscaler makes."""
    most = 1
    for scaler in manifests.all(_HPA):
        ref = at(scaler.body, "spec", "scaleTargetRef")
        limit = at(scaler.body, "spec", "maxReplicas")
        mine = (text(at(ref, "kind")), text(at(ref, "name")), scaler.namespace)
        if mine == (pods.owner.kind, pods.owner.name, pods.owner.namespace) and type(limit) is int:
            most = max(most, limit)
    return most

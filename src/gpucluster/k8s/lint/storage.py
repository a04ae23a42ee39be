"""Claims and the pods that use them: modes of access that a volume does not have."""

from collections.abc import Iterator
from typing import Any

from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.manifest_set import ManifestSet, Obj
from gpucluster.k8s.lint.pods import JOBSET, Pods, pods_of
from gpucluster.k8s.lint.references import CLAIM, STORAGE_CLASS, VOLUME
from gpucluster.k8s.lint.tree import Path, along, at, entries, items, mapping, text
from gpucluster.text import quoted

_EBS = frozenset({"ebs.csi.aws.com", "kubernetes.io/aws-ebs", "ebs.csi.eks.amazonaws.com"})
_EBS_CLASSES = frozenset(
    {"gp2", "gp3", "io1", "io2", "ebs", "ebs-sc", "ebs-gp3", "auto-ebs-sc"}
)  # names that EKS and its guides give to classes of EBS
_TYPES = frozenset({"gp2", "gp3", "io1", "io2", "sc1", "st1", "standard"})
_NUMBERS = {  # the least and the most of each type: EbsBlockDevice in the model of EC2
    "iops": {"gp3": (3000, 80_000), "io1": (100, 64_000), "io2": (100, 256_000)},
    "throughput": {"gp3": (125, 2000)},
}
_DEFAULT = "storageclass.kubernetes.io/is-default-class"
_MANY = frozenset({"ReadWriteMany", "ReadOnlyMany"})
_SET = "StatefulSet.apps"
_HPA = "HorizontalPodAutoscaler.autoscaling"


def check(manifests: ManifestSet) -> Iterator[Finding]:
    for thing in manifests.all(CLAIM, VOLUME):
        yield from _many_on_ebs(manifests, thing, thing.body, ())
    for thing in manifests.all(_SET, JOBSET):
        for path, template in _templates(thing):
            yield from _many_on_ebs(manifests, thing, template, path)
    for thing in manifests.all(STORAGE_CLASS):
        yield from _binding(thing)
        yield from _type(thing)
    yield from _defaults(manifests)
    for thing in manifests.all("EC2NodeClass.karpenter.k8s.aws"):
        yield from _disks(thing)
    for thing in manifests.objects:
        for pods in pods_of(thing):
            yield from _claims(manifests, pods)


def _templates(thing: Obj) -> Iterator[tuple[Path, Any]]:
    """Return the templates of claims of a StatefulSet or a JobSet."""
    for way in ("volumeClaimTemplates.*", "volumeClaimPolicies.*.templates.*"):
        for path, template in along(thing.body.get("spec"), way.split(".")):
            yield ("spec", *path), template


def _many_on_ebs(manifests: ManifestSet, thing: Obj, claim: Any, path: Path) -> Iterator[Finding]:
    """An EBS volume is in one machine. Only a block device of type io2 can be in several."""
    modes = [text(mode) for mode in items(at(claim, "spec", "accessModes"))]
    many = [mode for mode in modes if mode in _MANY]
    if many and at(claim, "spec", "volumeMode") != "Block" and _is_ebs(manifests, thing.key, claim):
        yield thing.found(
            "volume-mode",
            f"a volume of EBS has no {' and '.join(many)}: use EFS or FSx",
            (*path, "spec", "accessModes"),
        )


def _is_ebs(manifests: ManifestSet, key: str, claim: Any) -> bool:
    if key == VOLUME:
        csi = mapping(at(claim, "spec", "csi"))
        is_volume = text(csi.get("volumeHandle")).startswith("vol-")  # the driver has local volumes, too
        old = at(claim, "spec", "awsElasticBlockStore") is not None
        return old or (text(csi.get("driver")) in _EBS and is_volume)
    name = text(at(claim, "spec", "storageClassName"))
    known = manifests.get(STORAGE_CLASS, name)
    return text(at(known.body, "provisioner")) in _EBS if known else name in _EBS_CLASSES


def _binding(made: Obj) -> Iterator[Finding]:
    """A volume of EBS is in one zone. Made before its pod, it can be where the pod's nodes are not."""
    mode = made.body.get("volumeBindingMode", "Immediate")
    if (
        text(made.body.get("provisioner")) in _EBS
        and mode == "Immediate"
        and "allowedTopologies" not in made.body
    ):
        words = "the volume's zone is chosen before the pod's: use WaitForFirstConsumer"
        yield made.warned("volume-binding", words, ("volumeBindingMode",))


def _type(made: Obj) -> Iterator[Finding]:
    """The driver makes no volume of a type that it does not know. It compares in small letters (pkg/cloud of the driver)."""
    said = text(at(made.body, "parameters", "type"))
    if text(made.body.get("provisioner")) in _EBS and said and said.lower() not in _TYPES:
        words = f"EBS has no volumes of type {quoted(said)}: {', '.join(sorted(_TYPES))}"
        yield made.warned("word", words, ("parameters", "type"))


def _disks(thing: Obj) -> Iterator[Finding]:
    """EC2 refuses a launch with a number that the type of the disk does not have (EbsBlockDevice of its API)."""
    for path, ebs in along(thing.body, ["spec", "blockDeviceMappings", "*", "ebs"]):
        made = text(at(ebs, "volumeType"))
        for field, able in _NUMBERS.items():
            said, (least, most) = at(ebs, field), able.get(made, (0, 0))
            if type(said) is int and made in able and not least <= said <= most:
                words = f"{said} is not between {least} and {most}, which a {made} disk can have"
                yield thing.warned("range", words, (*path, field))
            elif made and said is not None and made not in able:
                words = f"EC2 takes it only for {', '.join(sorted(able))}, and launches no node with {made}"
                yield thing.warned("one-of", words, (*path, field))


def _defaults(manifests: ManifestSet) -> Iterator[Finding]:
    """Of several default classes a claim gets that which was made last."""
    classes = [one for one in manifests.all(STORAGE_CLASS) if _is_default(one)]
    for made in classes[1:]:
        if manifests.facts.whole or made.document.file == classes[0].document.file:
            words = f"class {quoted(classes[0].name)} is the default, too: a claim without a class gets the newer of them"
            yield made.warned("duplicate", words, ("metadata", "annotations", _DEFAULT))


def _is_default(made: Obj) -> bool:
    return at(made.body, "metadata", "annotations", _DEFAULT) == "true"


def _claims(manifests: ManifestSet, pods: Pods) -> Iterator[Finding]:
    count = max(pods.count, scaled(manifests, pods))
    yield from _of_the_set(pods)
    yield from _rolling(manifests, pods) if count == 1 and pods.owner.kind == "Deployment" else ()
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


def _rolling(manifests: ManifestSet, pods: Pods) -> Iterator[Finding]:
    """A rolling update starts the new pod first. It waits for the claim of the old one, which waits for the new one."""
    strategy = mapping(at(pods.owner.body, "spec", "strategy"))
    if strategy.get("type") == "Recreate" or at(strategy, "rollingUpdate", "maxSurge") in (0, "0%"):
        return
    for path, volume in entries(pods.spec, "volumes"):
        name = text(at(volume, "persistentVolumeClaim", "claimName"))
        claim = manifests.get(CLAIM, name, pods.owner.namespace)
        if claim and "ReadWriteOncePod" in items(at(claim.body, "spec", "accessModes")):
            words = f"one pod can use claim {quoted(name)}, and an update starts the new pod beside the old: use Recreate"
            yield pods.owner.warned("claim-sharing", words, pods.where("spec", *path))


def _of_the_set(pods: Pods) -> Iterator[Finding]:
    """All pods of a JobSet share the claims of its policies."""
    mounted = {
        text(at(mount, "name")) for _, one in pods.containers() for _, mount in entries(one, "volumeMounts")
    }
    for path, template in _templates(pods.owner) if pods.owner.key == JOBSET and pods.count > 1 else ():
        modes = [text(mode) for mode in items(at(template, "spec", "accessModes"))]
        if modes and not _MANY & {*modes} and text(at(template, "metadata", "name")) in mounted:
            words = f"{pods.count} pods share it, and only those of one node can use it ({', '.join(modes)})"
            yield pods.owner.warned("claim-sharing", words, (*path, "spec", "accessModes"))


def scaled(manifests: ManifestSet, pods: Pods) -> int:
    """Return the most pods that an autoscaler makes."""
    most = 1
    for scaler in manifests.all(_HPA):
        ref = at(scaler.body, "spec", "scaleTargetRef")
        limit = at(scaler.body, "spec", "maxReplicas")
        mine = (text(at(ref, "kind")), text(at(ref, "name")), scaler.namespace)
        if mine == (pods.owner.kind, pods.owner.name, pods.owner.namespace) and type(limit) is int:
            most = max(most, limit)
    return most

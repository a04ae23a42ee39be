"""Checks that the API server's own code makes beyond schemas: words of a set, numbers in a range, parts that
exclude each other. To add a check, add a row to its table."""

import re
from collections.abc import Iterator, Mapping
from ipaddress import ip_network
from typing import Any

from gpucluster import kubernetes_quantity as quantity
from gpucluster.k8s.lint import kueue, schedule
from gpucluster.k8s.lint.facts import Distribution
from gpucluster.k8s.lint.finding import Finding, Severity
from gpucluster.k8s.lint.manifest_set import ManifestSet, Obj
from gpucluster.k8s.lint.pods import JOBSET
from gpucluster.k8s.lint.tree import Path, along, at, entries, items, mapping, text
from gpucluster.text import quoted

_SHARE = re.compile(r"([0-9]{1,6})%", re.ASCII)
_ZERO_SINCE = 37  # the minor version
PROTOCOLS = ("TCP", "UDP", "SCTP")
_MODES = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")
_LEVELS = ("privileged", "baseline", "restricted")
_RBAC, _ADMISSION = "rbac.authorization.k8s.io", "admissionregistration.k8s.io"
_HPA = "HorizontalPodAutoscaler.autoscaling"
_POLICY = "NetworkPolicy.networking.k8s.io"

_SCOPES = ("BestEffort", "CrossNamespacePodAffinity", "NotBestEffort", "NotTerminating", "PriorityClass", "Terminating", "VolumeAttributesClass")  # fmt: skip

# kind, path (`*` is each entry), the allowed words
_WORDS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("Service", "spec.type", ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")),
    ("Service", "spec.ports.*.protocol", PROTOCOLS),
    ("Service", "spec.sessionAffinity", ("ClientIP", "None", "")),
    ("Service", "spec.internalTrafficPolicy", ("Cluster", "Local")),
    ("Service", "spec.externalTrafficPolicy", ("Cluster", "Local", "")),
    ("Service", "spec.ipFamilyPolicy", ("PreferDualStack", "RequireDualStack", "SingleStack")),
    ("Service", "spec.ipFamilies.*", ("IPv4", "IPv6")),
    (_POLICY, "spec.ingress.*.ports.*.protocol", PROTOCOLS),
    (_POLICY, "spec.egress.*.ports.*.protocol", PROTOCOLS),
    *(("StatefulSet.apps", f"spec.persistentVolumeClaimRetentionPolicy.{field}", ("Delete", "Retain", "")) for field in ("whenDeleted", "whenScaled")),
    *(("ResourceQuota", way, _SCOPES) for way in ("spec.scopes.*", "spec.scopeSelector.matchExpressions.*.scopeName")),
    *((_HPA, f"spec.behavior.{side}.selectPolicy", ("Disabled", "Max", "Min")) for side in ("scaleDown", "scaleUp")),
    *((_HPA, f"spec.behavior.{side}.policies.*.type", ("Percent", "Pods")) for side in ("scaleDown", "scaleUp")),
    *((_HPA, f"spec.metrics.*.{part}.target.type", ("AverageValue", "Utilization", "Value")) for part in ("containerResource", "external", "object", "pods", "resource")),
    *(
        row
        for kind in (f"MutatingWebhookConfiguration.{_ADMISSION}", f"ValidatingWebhookConfiguration.{_ADMISSION}")
        for row in (
            (kind, "webhooks.*.failurePolicy", ("Fail", "Ignore")),
            (kind, "webhooks.*.matchPolicy", ("Equivalent", "Exact")),
            (kind, "webhooks.*.sideEffects", ("None", "NoneOnDryRun")),
            (kind, "webhooks.*.rules.*.operations.*", ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")),
            (kind, "webhooks.*.rules.*.scope", ("*", "Cluster", "Namespaced")),
        )
    ),
    *(
        (key, f"{way}.{field}", words)
        for key, way in (("Job.batch", "spec"), ("CronJob.batch", "spec.jobTemplate.spec"))
        for field, words in (
            ("podReplacementPolicy", ("Failed", "TerminatingOrFailed")),
            ("podFailurePolicy.rules.*.action", ("Count", "FailIndex", "FailJob", "Ignore")),
            ("podFailurePolicy.rules.*.onExitCodes.operator", ("In", "NotIn")),
            ("podFailurePolicy.rules.*.onPodConditions.*.status", ("False", "True", "Unknown")),
        )
    ),
    ("PersistentVolume", "spec.accessModes.*", _MODES),
    ("PersistentVolume", "spec.persistentVolumeReclaimPolicy", ("Delete", "Recycle", "Retain")),
    ("PersistentVolume", "spec.volumeMode", ("Block", "Filesystem")),
    ("PersistentVolumeClaim", "spec.accessModes.*", _MODES),
    ("PersistentVolumeClaim", "spec.volumeMode", ("Block", "Filesystem")),
    ("LimitRange", "spec.limits.*.type", ("Container", "PersistentVolumeClaim", "Pod")),
    ("Ingress.networking.k8s.io", "spec.rules.*.http.paths.*.pathType", ("Exact", "ImplementationSpecific", "Prefix")),
    ("Deployment.apps", "spec.strategy.type", ("Recreate", "RollingUpdate")),
    ("StatefulSet.apps", "spec.podManagementPolicy", ("OrderedReady", "Parallel")),
    ("StatefulSet.apps", "spec.updateStrategy.type", ("OnDelete", "RollingUpdate")),
    ("DaemonSet.apps", "spec.updateStrategy.type", ("OnDelete", "RollingUpdate")),
    ("StorageClass.storage.k8s.io", "volumeBindingMode", ("Immediate", "WaitForFirstConsumer")),
    ("StorageClass.storage.k8s.io", "reclaimPolicy", ("Delete", "Retain")),
    ("Job.batch", "spec.completionMode", ("Indexed", "NonIndexed")),
    ("CronJob.batch", "spec.concurrencyPolicy", ("Allow", "Forbid", "Replace")),
    (_HPA, "spec.metrics.*.type", ("ContainerResource", "External", "Object", "Pods", "Resource")),
    (_POLICY, "spec.policyTypes.*", ("Egress", "Ingress")),
    ("PriorityClass.scheduling.k8s.io", "preemptionPolicy", ("Never", "PreemptLowerPriority")),
    ("PodDisruptionBudget.policy", "spec.unhealthyPodEvictionPolicy", ("AlwaysAllow", "IfHealthyBudget")),
    (f"RoleBinding.{_RBAC}", "roleRef.kind", ("ClusterRole", "Role")),
    (f"RoleBinding.{_RBAC}", "subjects.*.kind", ("Group", "ServiceAccount", "User")),
    (f"ClusterRoleBinding.{_RBAC}", "roleRef.kind", ("ClusterRole",)),
    (f"ClusterRoleBinding.{_RBAC}", "subjects.*.kind", ("Group", "ServiceAccount", "User")),
    (f"ValidatingAdmissionPolicy.{_ADMISSION}", "spec.failurePolicy", ("Fail", "Ignore")),
    (f"ValidatingAdmissionPolicyBinding.{_ADMISSION}", "spec.validationActions.*", ("Audit", "Deny", "Warn")),
    *(
        ("Namespace", f"metadata.labels.pod-security~kubernetes~io/{mode}", _LEVELS)
        for mode in ("audit", "enforce", "warn")
    ),
)  # fmt: skip
# kind, path, the minimum and the maximum
_RANGES: tuple[tuple[str, str, int, int], ...] = (
    ("Service", "spec.ports.*.port", 1, 65535),
    ("Deployment.apps", "spec.replicas", 0, 2**31 - 1),
    ("StatefulSet.apps", "spec.replicas", 0, 2**31 - 1),
    ("Job.batch", "spec.parallelism", 0, 2**31 - 1),
    ("Job.batch", "spec.completions", 0, 2**31 - 1),
    *(
        (key, f"{way}.{field}", 0, 2**31 - 1)
        for key, way in (("Job.batch", "spec"), ("CronJob.batch", "spec.jobTemplate.spec"))
        for field in ("activeDeadlineSeconds", "backoffLimit", "backoffLimitPerIndex", "maxFailedIndexes", "ttlSecondsAfterFinished")
    ),
    *(
        ("CronJob.batch", f"spec.{field}", 0, 2**31 - 1)
        for field in ("failedJobsHistoryLimit", "startingDeadlineSeconds", "successfulJobsHistoryLimit")
    ),
    *(("Deployment.apps", f"spec.{field}", 0, 2**31 - 1) for field in ("minReadySeconds", "progressDeadlineSeconds", "revisionHistoryLimit")),
    (_HPA, "spec.minReplicas", 0, 2**31 - 1),
    *(
        (_HPA, f"spec.behavior.{side}.policies.*.{field}", 1, most)
        for side in ("scaleDown", "scaleUp")
        for field, most in (("periodSeconds", 1800), ("value", 2**31 - 1))
    ),
    *((_HPA, f"spec.metrics.*.{part}.target.averageUtilization", 1, 2**31 - 1) for part in ("containerResource", "resource")),
    *((f"{kind}WebhookConfiguration.{_ADMISSION}", "webhooks.*.timeoutSeconds", 1, 30) for kind in ("Mutating", "Validating")),
    (_HPA, "spec.maxReplicas", 1, 2**31 - 1),
    (JOBSET, "spec.replicatedJobs.*.replicas", 1, 2**31 - 1),
    (JOBSET, "spec.replicatedJobs.*.template.spec.parallelism", 1, 2**31 - 1),
)  # fmt: skip
# kind, path to the part, its fields of which only one may be set, whether one must be set
_ONE_OF: tuple[tuple[str, str, frozenset[str], bool], ...] = (
    ("PodDisruptionBudget.policy", "spec", frozenset({"maxUnavailable", "minAvailable"}), False),
    (
        "PersistentVolume",
        "spec",
        frozenset({"csi", "fc", "hostPath", "iscsi", "local", "nfs", "awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "flexVolume", "flocker", "gcePersistentDisk", "glusterfs", "photonPersistentDisk", "portworxVolume", "quobyte", "rbd", "scaleIO", "storageos", "vsphereVolume"}),
        True,
    ),
)  # fmt: skip


def check(manifests: ManifestSet) -> Iterator[Finding]:
    scaled = {_target(scaler) for scaler in manifests.all(_HPA)}
    for thing in manifests.objects:
        yield from _words(thing)
        yield from _ranges(thing)
        yield from _parts(thing)
        yield from _from_zero(manifests, thing) if thing.key == _HPA else ()
        for special in _SPECIAL.get(thing.key, ()):
            yield from special(thing)
        owned = (thing.kind, thing.name, thing.namespace) in scaled
        if owned and type(at(thing.body, "spec", "replicas")) is int:
            words = "an autoscaler sets this number: remove it, or each apply resets it"
            yield thing.warned("replicas", words, ("spec", "replicas"))


def _target(scaler: Obj) -> tuple[str, str, str]:
    ref = at(scaler.body, "spec", "scaleTargetRef")
    return text(at(ref, "kind")), text(at(ref, "name")), scaler.namespace


def _words(thing: Obj) -> Iterator[Finding]:
    for path, words in ((path, words) for key, path, words in _WORDS if key == thing.key):
        for where, value in along(thing.body, _keys(path)):
            if isinstance(value, str) and value not in words:
                yield thing.found(
                    "word", f"{quoted(value)} is none of {', '.join(filter(None, words))}", where
                )


def _ranges(thing: Obj) -> Iterator[Finding]:
    for path, least, most in ((path, least, most) for key, path, least, most in _RANGES if key == thing.key):
        for where, value in along(thing.body, _keys(path)):
            if type(value) is int and not least <= value <= most:
                yield thing.found("range", f"{value} is not between {least} and {most}", where)


def _parts(thing: Obj) -> Iterator[Finding]:
    for path, fields, needed in (
        (path, fields, need) for key, path, fields, need in _ONE_OF if key == thing.key
    ):
        for where, part in along(thing.body, _keys(path)):
            given = sorted(fields & mapping(part).keys())
            if len(given) > 1 or (needed and not given):
                yield thing.found("one-of", _one_of(given, fields), where)


def _keys(path: str) -> list[str]:
    return [key.replace("~", ".") for key in path.split(".")]


def _one_of(given: list[str], fields: frozenset[str]) -> str:
    return (
        f"{' and '.join(given)} exclude each other"
        if given
        else f"one of {', '.join(sorted(fields))} is required"
    )


# --- single kinds -------------------------------------------------------------------------------


def _deployment(thing: Obj) -> Iterator[Finding]:
    strategy = mapping(at(thing.body, "spec", "strategy"))
    update = mapping(strategy.get("rollingUpdate"))
    where = ("spec", "strategy", "rollingUpdate")
    if strategy.get("type") == "Recreate" and update:
        yield thing.found("one-of", "rollingUpdate is not allowed with Recreate", where)
    for side in ("maxSurge", "maxUnavailable"):
        share = _SHARE.fullmatch(text(update.get(side)))
        if text(update.get(side)) and (share is None or (side == "maxUnavailable" and int(share[1]) > 100)):
            words = f"{quoted(update[side])} is no number of pods and no share up to 100%"
            yield thing.found("range", words, (*where, side))
    if all(update.get(side) in (0, "0%") for side in ("maxSurge", "maxUnavailable")) and update:
        yield thing.found("range", "maxSurge and maxUnavailable are both 0: no pod could be replaced", where)


def _selector(thing: Obj) -> Iterator[Finding]:
    """Only for the `apps` group: for other kinds an empty selector selects everything."""
    selector = mapping(at(thing.body, "spec", "selector"))
    if "selector" in mapping(thing.body.get("spec")) and not any(selector.values()):
        yield thing.found("selector", "the selector must not be empty", ("spec", "selector"))


def _metrics(thing: Obj) -> Iterator[Finding]:
    for path, metric in entries(thing.body, "spec", "metrics"):
        kind = text(at(metric, "type"))
        field = kind[:1].lower() + kind[1:]
        if kind and field not in mapping(metric):
            yield thing.found("one-of", f"a metric of type {kind} needs `{field}`", path)


def _from_zero(manifests: ManifestSet, thing: Obj) -> Iterator[Finding]:
    """HPAScaleToZero is on from Kubernetes 1.37, and needs a metric that exists without pods."""
    where = ("spec", "minReplicas")
    kinds = {text(at(metric, "type")) for _, metric in entries(thing.body, "spec", "metrics")}
    if at(thing.body, *where) != 0:
        return
    if not kinds & {"External", "Object"}:
        yield thing.found("range", "0 needs a metric of type External or Object", where)
    elif int(manifests.facts.kubernetes.partition(".")[2]) < _ZERO_SINCE:
        fixed = manifests.facts.distribution is Distribution.EKS
        words = f"0 needs the feature gate HPAScaleToZero, which is off before 1.{_ZERO_SINCE}"
        yield thing.found("range", words, where, Severity.ERROR if fixed else Severity.WARNING)


def _blocks(thing: Obj) -> Iterator[Finding]:
    for side, peers in (("ingress", "from"), ("egress", "to")):
        for path, rule in entries(thing.body, "spec", side):
            for inner, peer in entries(rule, peers):
                block = mapping(at(peer, "ipBlock"))
                if block:
                    yield from _block(thing, block, (*path, *inner, "ipBlock"))


def _block(thing: Obj, block: Mapping[str, Any], path: Path) -> Iterator[Finding]:
    whole = _network(block.get("cidr"))
    if whole is None:
        yield thing.found("cidr", f"{quoted(block.get('cidr'))} is not a network", (*path, "cidr"))
    for number, written in enumerate(items(block.get("except"))):
        hole = _network(written)
        inside = whole is None or (hole is not None and hole.version == whole.version and hole != whole and hole.subnet_of(whole))  # type: ignore[arg-type]  # fmt: skip
        if hole is None or not inside:
            words = "is not a network" if hole is None else f"is not inside {whole}"
            yield thing.found("cidr", f"{quoted(written)} {words}", (*path, "except", number))


def _network(written: Any) -> Any:
    try:
        return ip_network(text(written), strict=False)
    except ValueError:
        return None


def _limits(thing: Obj) -> Iterator[Finding]:
    """A LimitRange gives its default request and limit to a container without them. A request above the limit is refused."""
    for path, limit in entries(thing.body, "spec", "limits"):
        for name, written in mapping(at(limit, "defaultRequest")).items():
            asked, most = quantity.parse(written), quantity.parse(at(limit, "default", name))
            if asked is not None and most is not None and asked > most:
                words = (
                    f"{name}: the request {quantity.shown(asked)} is above the limit {quantity.shown(most)}"
                )
                yield thing.found("range", words, (*path, "defaultRequest", name))


def _quotas(thing: Obj) -> Iterator[Finding]:
    for quota in kueue.quotas(thing):
        if quota.nominal < 0:
            yield thing.found("range", "a quota cannot be below 0", quota.path)


def _width(thing: Obj) -> Iterator[Finding]:
    """The index of a pod is its rank. Pods that start after others have ended find no peers."""
    for path, job in entries(thing.body, "spec", "replicatedJobs"):
        spec = mapping(at(job, "template", "spec"))
        width, all_ = spec.get("parallelism"), spec.get("completions")
        indexed = spec.get("completionMode") == "Indexed"
        if indexed and type(width) is type(all_) is int and width != all_:
            words = f"{width} parallel pods and {all_} completions: both must be equal in a gang"
            yield thing.warned("gang-width", words, (*path, "template", "spec", "completions"))


def _schedule(thing: Obj) -> Iterator[Finding]:
    written = at(thing.body, "spec", "schedule")
    if isinstance(written, str) and (words := schedule.complaint(written)):
        yield thing.found("schedule", words, ("spec", "schedule"))
    zone = at(thing.body, "spec", "timeZone")
    if isinstance(zone, str) and (words := schedule.zone_complaint(zone)):
        yield thing.found("schedule", words, ("spec", "timeZone"))


_APPS = (_selector,)
_SPECIAL = {
    "Deployment.apps": (_deployment, *_APPS),
    "StatefulSet.apps": _APPS,
    "DaemonSet.apps": _APPS,
    "ReplicaSet.apps": _APPS,
    "CronJob.batch": (_schedule,),
    "LimitRange": (_limits,),
    _HPA: (_metrics,),
    _POLICY: (_blocks,),
    kueue.CLUSTER_QUEUE: (_quotas,),
    kueue.COHORT: (_quotas,),
    JOBSET: (_width,),
}

"""Each named object exists, in its namespace if it has one, and parents form no circle."""

from collections.abc import Iterator
from functools import cache

from gpucluster.catalog import crd_schemas, kubernetes_facts
from gpucluster.k8s.lint import kueue, policies
from gpucluster.k8s.lint.finding import Finding, Severity
from gpucluster.k8s.lint.manifest_set import ManifestSet, Obj
from gpucluster.k8s.lint.pods import Pods, parts_of, pods_of
from gpucluster.k8s.lint.tree import Path, along, at, below, entries, items, mapping, text
from gpucluster.text import quoted

CONFIG_MAP, SECRET = "ConfigMap", "Secret"
CLAIM, VOLUME = "PersistentVolumeClaim", "PersistentVolume"
_SECRET_MAKERS = frozenset(
    {"ExternalSecret", "SealedSecret", "Certificate"}
)  # kinds whose operator makes a Secret
STORAGE_CLASS = "StorageClass.storage.k8s.io"
ROLES = {kind: f"{kind}.rbac.authorization.k8s.io" for kind in ("Role", "ClusterRole")}
NODE_CLASS = "EC2NodeClass.karpenter.k8s.aws"

_CLAIM_TEMPLATE = "ResourceClaimTemplate.resource.k8s.io"
_DOMAIN = [
    "spec",
    "channel",
    "resourceClaimTemplate",
    "name",
]  # a ComputeDomain of NVIDIA makes this template
_CLASS, _CLAIM = "DeviceClass.resource.k8s.io", "ResourceClaim.resource.k8s.io"
# classes that the charts of drivers make
_CLASSES_OF_DRIVERS = frozenset(
    {"compute-domain-daemon.nvidia.com", "compute-domain-default-channel.nvidia.com", "gpu.nvidia.com", "mig.nvidia.com", "vfio.gpu.nvidia.com",
     "gpu.amd.com", "gpu.intel.com", "gpu-vfio.intel.com", "tpu.google.com"}
)  # fmt: skip
_REQUESTS = {
    _CLAIM: ("spec", "devices", "requests"),
    _CLAIM_TEMPLATE: ("spec", "spec", "devices", "requests"),
}
_CLASS_NAMES = ("deviceClassName", "exactly.deviceClassName", "firstAvailable.*.deviceClassName")
# manifests/base/runtimes of Kubeflow Trainer v2.3.0
_RUNTIMES_OF_TRAINER = frozenset(
    {"deepspeed-distributed", "jax-distributed", "mlx-distributed", "torch-distributed", "torch-distributed-with-cache",
     "torchtune-llama3.2-1b", "torchtune-llama3.2-3b", "torchtune-qwen2.5-1.5b", "xgboost-distributed"}
)  # fmt: skip
_HOOKS = frozenset({"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"})

# owner, path (`*` is each entry), target
_TABLE: tuple[tuple[str, str, str], ...] = (
    (kueue.LOCAL_QUEUE, "spec.clusterQueue", kueue.CLUSTER_QUEUE),
    (kueue.CLUSTER_QUEUE, "spec.resourceGroups.*.flavors.*.name", kueue.FLAVOR),
    (kueue.CLUSTER_QUEUE, "spec.admissionChecks.*", kueue.ADMISSION_CHECK),  # of v1beta1
    (kueue.CLUSTER_QUEUE, "spec.admissionChecksStrategy.admissionChecks.*.name", kueue.ADMISSION_CHECK),
    (kueue.COHORT, "spec.parentName", kueue.COHORT),
    (kueue.COHORT, "spec.resourceGroups.*.flavors.*.name", kueue.FLAVOR),
    (kueue.FLAVOR, "spec.topologyName", kueue.TOPOLOGY),
    ("NodePool.karpenter.sh", "spec.template.spec.nodeClassRef.name", NODE_CLASS),
    (CLAIM, "spec.volumeName", VOLUME),
    ("StatefulSet.apps", "spec.serviceName", "Service"),
    (f"{policies.POLICY_KIND}Binding.{policies.GROUP}", "spec.policyName", policies.POLICY),
    ("StatefulSet.apps", "spec.volumeClaimTemplates.*.spec.storageClassName", STORAGE_CLASS),
    ("Ingress.networking.k8s.io", "spec.rules.*.http.paths.*.backend.service.name", "Service"),
    ("Ingress.networking.k8s.io", "spec.defaultBackend.service.name", "Service"),
)  # fmt: skip
_IN_PODS: tuple[tuple[str, str], ...] = (
    ("spec.serviceAccountName", "ServiceAccount"),
    ("spec.priorityClassName", "PriorityClass.scheduling.k8s.io"),
    ("spec.runtimeClassName", "RuntimeClass.node.k8s.io"),
    ("spec.volumes.*.persistentVolumeClaim.claimName", CLAIM),
    ("spec.volumes.*.ephemeral.volumeClaimTemplate.spec.storageClassName", STORAGE_CLASS),
    ("spec.resourceClaims.*.resourceClaimName", "ResourceClaim.resource.k8s.io"),
    ("spec.resourceClaims.*.resourceClaimTemplateName", _CLAIM_TEMPLATE),
    ("spec.volumes.*.configMap.name", CONFIG_MAP),
    ("spec.volumes.*.projected.sources.*.configMap.name", CONFIG_MAP),
    ("spec.containers.*.envFrom.*.configMapRef.name", CONFIG_MAP),
    ("spec.containers.*.env.*.valueFrom.configMapKeyRef.name", CONFIG_MAP),
    ("spec.initContainers.*.envFrom.*.configMapRef.name", CONFIG_MAP),
    ("spec.initContainers.*.env.*.valueFrom.configMapKeyRef.name", CONFIG_MAP),
    ("spec.volumes.*.secret.secretName", SECRET),
    ("spec.volumes.*.projected.sources.*.secret.name", SECRET),
    ("spec.imagePullSecrets.*.name", SECRET),
    ("spec.containers.*.envFrom.*.secretRef.name", SECRET),
    ("spec.containers.*.env.*.valueFrom.secretKeyRef.name", SECRET),
    ("spec.initContainers.*.envFrom.*.secretRef.name", SECRET),
    ("spec.initContainers.*.env.*.valueFrom.secretKeyRef.name", SECRET),
)
_CLAIM_TEMPLATES = (
    "volumeClaimTemplates.*.metadata.name",
    "volumeClaimPolicies.*.templates.*.metadata.name",
)
_ALWAYS = frozenset(  # objects that each cluster has by default
    {
        *(("Namespace", name) for name in ("default", "kube-node-lease", "kube-public", "kube-system")),
        *(("ClusterRole.rbac.authorization.k8s.io", name) for name in ("admin", "cluster-admin", "edit", "view")),
        *(("PriorityClass.scheduling.k8s.io", f"system-{name}-critical") for name in ("cluster", "node")),
        ("ServiceAccount", "default"),
        (CONFIG_MAP, "kube-root-ca.crt"),
    }
)  # fmt: skip
_THERE = frozenset(  # objects that each cluster has in one namespace
    {
        ("Service", "default", "kubernetes"),
        (CONFIG_MAP, "kube-system", "extension-apiserver-authentication"),
        (ROLES["Role"], "kube-system", "extension-apiserver-authentication-reader"),
        *(("ServiceAccount", "kube-system", name) for name in ("daemon-set-controller", "deployment-controller", "generic-garbage-collector", "horizontal-pod-autoscaler", "job-controller", "namespace-controller", "node-controller", "persistent-volume-binder", "replicaset-controller", "statefulset-controller")),
    }
)  # fmt: skip
_SOFT = frozenset(
    {("StatefulSet.apps", "Service")}
)  # its pods run without the object, and only names are missing
_MAKES = frozenset({"*", "create"})  # verbs


def check(manifests: ManifestSet) -> Iterator[Finding]:
    """Follow references only if the input is the whole cluster: else the object may exist there."""
    if not manifests.facts.whole:
        return
    made = _made_secrets(manifests)
    made |= _made_templates(manifests)
    claims = tuple(_made_claims(manifests))
    for thing in manifests.objects:
        if thing.is_client_file:
            continue
        for owner, path, target in _TABLE:
            if owner == thing.key:
                yield from _follow(manifests, thing, path, target)
        for special in (_namespace, _cohort, _claim, _admission_check, _binding, _scaler, _queue, _hooks, _classes, _runtime):  # fmt: skip
            yield from special(manifests, thing)
        for pods in parts_of(thing):
            yield from _in_pods(manifests, pods, made, claims)
            yield from _requests(manifests, pods)
    yield from _circles(manifests)


def _follow(manifests: ManifestSet, thing: Obj, path: str, target: str) -> Iterator[Finding]:
    for where, value in along(thing.body, path.split(".")):
        yield from _resolve(manifests, thing, where, target, text(value))


def _resolve(manifests: ManifestSet, thing: Obj, where: Path, target: str, name: str) -> Iterator[Finding]:
    namespace = "" if target in _cluster_scoped() else thing.namespace
    if thing.key in _cluster_scoped() and target not in _cluster_scoped():
        return  # a template without a namespace: its pods run in that of whoever uses it
    if name and not _is_there(manifests, target, namespace, name):
        kind, place = target.partition(".")[0], f" in namespace {quoted(namespace)}" if namespace else ""
        soft = (thing.key, target) in _SOFT or (
            target == SECRET and _can_make_secret(manifests, namespace, name)
        )
        level = Severity.WARNING if soft else Severity.ERROR
        yield thing.found("reference", f"there is no {kind} {quoted(name)}{place}", where, level)


def _is_there(manifests: ManifestSet, target: str, namespace: str, name: str) -> bool:
    by_default = (target, name) in _ALWAYS or (target, namespace, name) in _THERE
    return by_default or manifests.has(target, name, namespace)


@cache
def _cluster_scoped() -> frozenset[str]:
    """Return the keys of cluster-scoped objects."""
    own = {
        f"{kind}.{api.rpartition('/')[0]}" for (api, kind), crd in crd_schemas().items() if crd.cluster_scoped
    }
    facts = kubernetes_facts()
    pairs = ((api.rpartition("/")[0], kind) for api, kind in facts.served if kind in facts.cluster_scoped)
    return frozenset(own | {f"{kind}.{group}" if group else kind for group, kind in pairs})


def _at_home(thing: Obj) -> bool:
    """Return whether the object belongs to Flux or Argo CD, whose installation makes the namespace."""
    match thing.namespace:
        case "flux-system":
            return thing.group.endswith(".toolkit.fluxcd.io")
        case "argocd":
            return thing.group == "argoproj.io" or (thing.kind, thing.name) == ("ConfigMap", "argocd-cm")
        case _:
            return False


def _cohort(manifests: ManifestSet, thing: Obj) -> Iterator[Finding]:
    """Queues form a cohort by its name alone (pkg/cache/hierarchy of Kueue). A queue that is the only one with it borrows nothing."""
    name = kueue.cohort_of(thing) if thing.key == kueue.CLUSTER_QUEUE else ""
    members = [one for one in manifests.all(kueue.CLUSTER_QUEUE) if kueue.cohort_of(one) == name]
    if name and len(members) == 1 and not manifests.has(kueue.COHORT, name):
        words = (
            f"there is no Cohort {quoted(name)}, and no other queue is in it: it lends and borrows nothing"
        )
        yield thing.warned("reference", words, ("spec", kueue.cohort_field(thing)))


def _namespace(manifests: ManifestSet, thing: Obj) -> Iterator[Finding]:
    if _at_home(thing):
        return
    if manifests.is_namespaced(thing):
        yield from _resolve(manifests, thing, ("metadata", "namespace"), "Namespace", thing.namespace)


def _claim(manifests: ManifestSet, thing: Obj) -> Iterator[Finding]:
    """A claim that names its volume only compares class names. A claim without a volume needs the class."""
    if thing.key == CLAIM and not text(at(thing.body, "spec", "volumeName")):
        yield from _follow(manifests, thing, "spec.storageClassName", STORAGE_CLASS)


def _admission_check(manifests: ManifestSet, thing: Obj) -> Iterator[Finding]:
    parameters = mapping(at(thing.body, "spec", "parameters"))
    if thing.key == kueue.ADMISSION_CHECK and parameters.get("kind") == "ProvisioningRequestConfig":
        target = "ProvisioningRequestConfig.kueue.x-k8s.io"
        yield from _follow(manifests, thing, "spec.parameters.name", target)


def _binding(manifests: ManifestSet, thing: Obj) -> Iterator[Finding]:
    if thing.kind not in ("RoleBinding", "ClusterRoleBinding"):
        return
    role = mapping(at(thing.body, "roleRef"))
    kind, name = text(role.get("kind")), text(role.get("name"))
    if kind in ROLES and not name.startswith("system:"):
        yield from _resolve(manifests, thing, ("roleRef", "name"), ROLES[kind], name)
    for path, subject in entries(thing.body, "subjects"):
        if at(subject, "kind") == "ServiceAccount":
            name, namespace = text(at(subject, "name")), text(at(subject, "namespace")) or thing.namespace
            if not _is_there(manifests, "ServiceAccount", namespace, name):
                yield thing.found("reference", f"there is no ServiceAccount {quoted(name)} in namespace {quoted(namespace)}", path)  # fmt: skip


def _hooks(manifests: ManifestSet, thing: Obj) -> Iterator[Finding]:
    """A hook whose service is missing fails. With failurePolicy Fail, the default, the API server then refuses the requests."""
    for path, hook in entries(thing.body, "webhooks") if thing.kind in _HOOKS else ():
        service = mapping(at(hook, "clientConfig", "service"))
        name, namespace = text(service.get("name")), text(service.get("namespace"))
        if name and not _is_there(manifests, "Service", namespace, name):
            level = Severity.WARNING if at(hook, "failurePolicy") == "Ignore" else Severity.ERROR
            words = f"there is no Service {quoted(name)} in namespace {quoted(namespace)}: the hook fails"
            yield thing.found("reference", words, (*path, "clientConfig", "service"), level)


def _scaler(manifests: ManifestSet, thing: Obj) -> Iterator[Finding]:
    if thing.key != "HorizontalPodAutoscaler.autoscaling":
        return
    target = mapping(at(thing.body, "spec", "scaleTargetRef"))
    group = text(target.get("apiVersion")).rpartition("/")[0]
    key = f"{text(target.get('kind'))}.{group}" if group else text(target.get("kind"))
    yield from _resolve(manifests, thing, ("spec", "scaleTargetRef", "name"), key, text(target.get("name")))  # fmt: skip


def _queue(manifests: ManifestSet, thing: Obj) -> Iterator[Finding]:
    """Kueue never admits a workload whose queue is not in its namespace. The workload stays suspended without an error."""
    for label, target in (
        (kueue.QUEUE_LABEL, kueue.LOCAL_QUEUE),
        (kueue.PRIORITY_LABEL, kueue.PRIORITY_CLASS),
    ):
        where = ("metadata", "labels", label)
        yield from _resolve(manifests, thing, where, target, text(thing.labels.get(label)))


def _classes(manifests: ManifestSet, thing: Obj) -> Iterator[Finding]:
    """A driver makes its classes, so that a missing one is a warning."""
    for path, request in entries(thing.body, *_REQUESTS.get(thing.key, ("",))):
        for way in _CLASS_NAMES:
            for inner, name in along(request, way.split(".")):
                if text(name) not in _CLASSES_OF_DRIVERS and not manifests.has(_CLASS, text(name)):
                    words = f"there is no DeviceClass {quoted(name)}"
                    yield thing.warned("reference", words, (*path, *inner))


def _runtime(manifests: ManifestSet, thing: Obj) -> Iterator[Finding]:
    """The webhook of Kubeflow Trainer refuses a TrainJob whose runtime is not there."""
    ref = mapping(at(thing.body, "spec", "runtimeRef") if thing.key == kueue.TRAIN_JOB else None)
    kind, name = text(ref.get("kind")) or kueue.RUNTIMES[0], text(ref.get("name"))
    by_trainer = kind == kueue.RUNTIMES[0] and name in _RUNTIMES_OF_TRAINER
    if ref and kind in kueue.RUNTIMES and not by_trainer:
        target = f"{kind}.{thing.group}"
        yield from _resolve(manifests, thing, ("spec", "runtimeRef", "name"), target, name)


def _requests(manifests: ManifestSet, pods: Pods) -> Iterator[Finding]:
    """A container names a request of a claim. Without that request the kubelet starts it without a device."""
    claims = {text(at(one, "name")): one for _, one in entries(pods.spec, "resourceClaims")}
    for path, container in pods.containers():
        for inner, used in entries(container, "resources", "claims"):
            claim, request = claims.get(text(at(used, "name"))), text(at(used, "request"))
            for field, key in (("resourceClaimName", _CLAIM), ("resourceClaimTemplateName", _CLAIM_TEMPLATE)):
                made = manifests.get(key, text(at(claim, field)), pods.owner.namespace)
                known = {text(at(one, "name")) for _, one in entries(made.body, *_REQUESTS[key])} if made else set[str]()  # fmt: skip
                if made and request and request not in known:
                    words = f"{made.kind} {quoted(made.name)} has no request {quoted(request)}: the container gets no device"
                    yield pods.owner.found("reference", words, (*path, *inner, "request"))


def _in_pods(
    manifests: ManifestSet,
    pods: Pods,
    made: frozenset[tuple[str, str, str]],
    claims: tuple[tuple[str, str], ...],
) -> Iterator[Finding]:
    for path, target in _IN_PODS:
        for where, value in along(pods.template, path.split(".")):
            optional = at(below(pods.template, where[:-1]), "optional") is True
            by_operator = (target, pods.owner.namespace, text(value)) in made
            by_set = target == CLAIM and any(
                pods.owner.namespace == space and text(value).startswith(name) for space, name in claims
            )
            if not optional and not by_operator and not by_set:
                yield from _resolve(manifests, pods.owner, pods.where(*where), target, text(value))


def _made_templates(manifests: ManifestSet) -> frozenset[tuple[str, str, str]]:
    return frozenset(
        (_CLAIM_TEMPLATE, thing.namespace, text(name))
        for thing in manifests.all("ComputeDomain.resource.nvidia.com")
        for _, name in along(thing.body, _DOMAIN)
    )


def _made_secrets(manifests: ManifestSet) -> frozenset[tuple[str, str, str]]:
    """Return kind, namespace and name of Secrets that operators make from objects of the manifests."""
    makers = [one for one in manifests.objects if one.kind in _SECRET_MAKERS]
    paths = (("spec", "secretName"), ("spec", "target", "name"), ("metadata", "name"))
    return frozenset((SECRET, one.namespace, text(at(one.body, *path))) for one in makers for path in paths)


def _made_claims(manifests: ManifestSet) -> Iterator[tuple[str, str]]:
    """Return namespace and beginning of the names of claims that a StatefulSet or a JobSet makes: TEMPLATE-SET-NUMBER."""
    for thing in manifests.objects:
        for way in _CLAIM_TEMPLATES:
            for _, name in along(thing.body.get("spec"), way.split(".")):
                yield thing.namespace, f"{text(name)}-{thing.name}"


def _can_make_secret(manifests: ManifestSet, namespace: str, name: str) -> bool:
    """Return whether a pod of the namespace can make a Secret: an argument names it, or its account may make Secrets."""
    accounts: set[str] = set()
    for thing in manifests.objects if name else ():
        for pods in pods_of(thing) if thing.namespace == namespace else ():
            accounts.add(text(pods.spec.get("serviceAccountName")) or "default")
            words = (items(one.get(part)) for _, one in pods.containers() for part in ("command", "args"))
            if any(name in text(word) for part in words for word in part):
                return True
    return any(_may_make_secrets(manifests, binding, namespace, accounts) for binding in manifests.objects)


def _may_make_secrets(manifests: ManifestSet, binding: Obj, namespace: str, accounts: set[str]) -> bool:
    if binding.kind not in ("RoleBinding", "ClusterRoleBinding") or binding.namespace not in ("", namespace):
        return False
    subjects = [subject for _, subject in entries(binding.body, "subjects")]
    ours = any(
        at(one, "kind") == "ServiceAccount"
        and text(at(one, "name")) in accounts
        and (text(at(one, "namespace")) or binding.namespace) == namespace
        for one in subjects
    )
    ref = mapping(binding.body.get("roleRef"))
    kind, name = text(ref.get("kind")), text(ref.get("name"))
    role = manifests.get(ROLES.get(kind, ""), name, binding.namespace if kind == "Role" else "")
    rules = [mapping(rule) for _, rule in entries(role.body, "rules")] if role and ours else []
    return any(
        {*map(text, items(rule.get("resources")))} & {"*", "secrets"}
        and {*map(text, items(rule.get("verbs")))} & _MAKES
        for rule in rules
    )


def _circles(manifests: ManifestSet) -> Iterator[Finding]:
    """Kueue stops all admission in cohorts that form a circle."""
    for cohort in manifests.all(kueue.COHORT):
        seen, parent = {cohort.name}, text(at(cohort.body, "spec", "parentName"))
        while parent and parent not in seen:
            seen.add(parent)
            above = manifests.get(kueue.COHORT, parent)
            parent = text(at(above.body, "spec", "parentName")) if above else ""
        if parent == cohort.name:
            yield cohort.found("cycle", "the cohort is its own ancestor", ("spec", "parentName"))

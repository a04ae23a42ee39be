"""What the API server refuses in rights, secrets, claims, quotas, autoscalers and selectors beyond their schemas."""

import re
from base64 import b64decode
from binascii import Error
from collections.abc import Iterator, Mapping
from typing import Any

from gpucluster import kubernetes_quantity as quantity
from gpucluster.k8s.lint import kueue
from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.manifest_set import ManifestSet, Obj, is_built_in
from gpucluster.k8s.lint.names import is_data_key, is_label_name
from gpucluster.k8s.lint.pods import JOBSET, amounts
from gpucluster.k8s.lint.tree import Path, along, at, entries, items, mapping, text
from gpucluster.text import quoted

_RBAC = "rbac.authorization.k8s.io"
_SELECTORS = frozenset({"labelSelector", "namespaceSelector", "objectSelector", "podSelector", "selector"})
_OPERATORS = {"In": True, "NotIn": True, "Exists": False, "DoesNotExist": False}  # whether it needs values
_TYPED_SECRETS = {  # a type of Secret, and the keys that it must have
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}
_QUOTAS = frozenset(
    {"configmaps", "cpu", "ephemeral-storage", "limits.cpu", "limits.ephemeral-storage", "limits.memory", "memory", "persistentvolumeclaims", "pods", "replicationcontrollers", "requests.cpu", "requests.ephemeral-storage", "requests.memory", "requests.storage", "resourcequotas", "secrets", "services", "services.loadbalancers", "services.nodeports"}
)  # fmt: skip
_PAGES = ("hugepages-", "requests.hugepages-", "limits.hugepages-")
# a type of metric, its part, and the fields of its target of which one is needed
_TARGETS = {
    "ContainerResource": ("containerResource", ("averageUtilization", "averageValue")),
    "External": ("external", ("averageValue", "value")),
    "Object": ("object", ("averageValue", "value")),
    "Pods": ("pods", ("averageValue",)),
    "Resource": ("resource", ("averageUtilization", "averageValue")),
}
_SIDES = (
    ("min", "max"),
    ("min", "default"),
    ("default", "max"),
    ("min", "defaultRequest"),
    ("defaultRequest", "max"),
)
_CLAIM_TEMPLATES = {
    "StatefulSet.apps": ("spec.volumeClaimTemplates.*",),
    JOBSET: ("spec.volumeClaimPolicies.*.templates.*",),
}
_SYSTEM, _HIGHEST = "system-", 10**9
_SYSTEM_CLASSES = {"system-cluster-critical": 2 * 10**9, "system-node-critical": 2 * 10**9 + 1000}
_SHARE = re.compile(r"[0-9]+%", re.ASCII)
_TIMES = ("minReadySeconds", "progressDeadlineSeconds")


def check(manifests: ManifestSet) -> Iterator[Finding]:
    for thing in manifests.objects:
        for special in _SPECIAL.get(thing.key, ()):
            yield from special(thing)
        if is_built_in(thing.api_version) and not thing.is_client_file and thing.kind not in _OPAQUE:
            yield from _selectors(thing, thing.body, ())


def _selectors(thing: Obj, value: Any, path: Path) -> Iterator[Finding]:
    """The selectors of all built-in kinds have one form."""
    for key, inner in mapping(value).items():
        if key in _SELECTORS:
            for where, term in entries(inner, "matchExpressions"):
                if words := _of_term(mapping(term)):
                    yield thing.found("selector", words, (*path, key, *where))
        yield from _selectors(thing, inner, (*path, key))
    for number, inner in enumerate(items(value)):
        yield from _selectors(thing, inner, (*path, number))


def _of_term(term: Mapping[str, Any]) -> str:
    operator, values = text(term.get("operator")), items(term.get("values"))
    needs = _OPERATORS.get(operator)
    if needs is None:
        return f"the operator {quoted(operator)} is none of {', '.join(_OPERATORS)}"
    return "" if needs is bool(values) else f"the operator {operator} needs {'' if needs else 'no '}values"


def _roles(thing: Obj) -> Iterator[Finding]:
    for path, rule in entries(thing.body, "rules"):
        urls, resources = items(at(rule, "nonResourceURLs")), items(at(rule, "resources"))
        if not items(at(rule, "verbs")):
            yield thing.found("one-of", "`verbs` is required", path)
        if urls and thing.kind == "Role":
            yield thing.found("one-of", "a Role has no nonResourceURLs: use a ClusterRole", path)
        elif not urls and resources and not items(at(rule, "apiGroups")):
            yield thing.found("one-of", "`apiGroups` is required", path)
        elif not urls and not resources:
            yield thing.found("one-of", "`resources` is required", path)


def _bindings(thing: Obj) -> Iterator[Finding]:
    if at(thing.body, "roleRef", "apiGroup") not in (None, "", _RBAC):
        yield thing.found("word", f"the group of a role is {_RBAC}", ("roleRef", "apiGroup"))
    for path, subject in entries(thing.body, "subjects"):
        account = at(subject, "kind") == "ServiceAccount"
        if account and not at(subject, "namespace") and thing.kind == "ClusterRoleBinding":
            yield thing.found("schema", "`namespace` is required", path)


def _secret(thing: Obj) -> Iterator[Finding]:
    data, more = mapping(thing.body.get("data")), mapping(thing.body.get("stringData"))
    for key, value in data.items():
        if isinstance(value, str) and not _is_base64(value):
            words = "is no base64: use stringData for text"
            yield thing.found("schema", words, ("data", key))
    for key in _TYPED_SECRETS.get(text(thing.body.get("type")), ()):
        if key not in data and key not in more:
            words = f"a Secret of type {thing.body['type']} needs the key {key}"
            yield thing.found("one-of", words, ("data",))
    yield from _keys(thing, ("data", "stringData"))
    own = {key: value for key, value in data.items() if key not in more}
    yield from _size(thing, _bytes(own, coded=True) + _bytes(more))


def _is_base64(value: str) -> bool:
    try:
        b64decode(value.replace("\n", "").replace("\r", ""), validate=True)
    except (Error, ValueError):
        return False
    return True


def _bytes(values: Any, *, coded: bool = False) -> int:
    """Return the size of texts; of base64 that of what is in it."""
    found = [text(value) for value in mapping(values).values()]
    return sum(len("".join(one.split()).rstrip("=")) * 3 // 4 if coded else len(one.encode()) for one in found)  # fmt: skip


def _size(thing: Obj, size: int) -> Iterator[Finding]:
    if size > _LARGEST:
        words = f"has {size} bytes; the limit is {_LARGEST}: put large files into a volume or an image"
        yield thing.found("range", words, ("data",))


def _config(thing: Obj) -> Iterator[Finding]:
    yield from _keys(thing, ("data", "binaryData"))
    yield from _size(thing, _bytes(thing.body.get("data")) + _bytes(thing.body.get("binaryData"), coded=True))
    for key in mapping(thing.body.get("data")).keys() & mapping(thing.body.get("binaryData")).keys():
        yield thing.found("one-of", "the key is in data, too", ("binaryData", key))


def _keys(thing: Obj, parts: tuple[str, ...]) -> Iterator[Finding]:
    for part in parts:
        for key in mapping(thing.body.get(part)):
            if not is_data_key(key):
                words = f"{quoted(key)} is no key: use letters, digits, `-`, `_` and `.`"
                yield thing.found("name", words, (part, key))


def _claims(thing: Obj) -> Iterator[Finding]:
    """Also the templates of a StatefulSet and a JobSet, whose claims a controller makes later."""
    if thing.key == "PersistentVolumeClaim":
        yield from claim(thing, thing.body, ())
    for way in _CLAIM_TEMPLATES.get(thing.key, ()):
        for path, template in along(thing.body, way.split(".")):
            yield from claim(thing, template, path)


def claim(thing: Obj, written: Any, path: Path) -> Iterator[Finding]:
    """Return what the API server refuses in a claim, or in the template of one, at a path of the object."""
    spec, where = mapping(at(written, "spec")), (*path, "spec")
    modes, size = items(spec.get("accessModes")), at(spec, "resources", "requests", "storage")
    if not modes:
        yield thing.found("schema", "`accessModes` is required", where)
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        yield thing.found("one-of", "ReadWriteOncePod excludes other modes", (*where, "accessModes"))
    if size is None:
        yield thing.found("schema", "`storage` is required", (*where, "resources"))
    elif (amount := quantity.parse(size)) is not None and amount <= 0:
        yield thing.found("range", "the size must be above 0", (*where, "resources", "requests", "storage"))


def _volume(thing: Obj) -> Iterator[Finding]:
    spec = mapping(thing.body.get("spec"))
    for field in ("accessModes", "capacity"):
        if not spec.get(field):
            yield thing.found("schema", f"`{field}` is required", ("spec",))
    size = quantity.parse(at(spec, "capacity", "storage"))
    if size is not None and size <= 0:
        yield thing.found("range", "the size must be above 0", ("spec", "capacity", "storage"))
    if spec.get("local") is not None and spec.get("nodeAffinity") is None:
        yield thing.found("schema", "`nodeAffinity` is required: a local volume is on one node", ("spec",))
    elif spec.get("nodeAffinity") is not None and not at(spec, "nodeAffinity", "required"):
        yield thing.found("schema", "`required` is required", ("spec", "nodeAffinity"))
    for kind in ("hostPath", "local"):
        if ".." in text(at(spec, kind, "path")).split("/"):
            words = f"{quoted(at(spec, kind, 'path'))} must not contain `..`"
            yield thing.found("volume", words, ("spec", kind, "path"))


def _priority(thing: Obj) -> Iterator[Finding]:
    """Names with the prefix are those of the two classes that each cluster has."""
    value = thing.body.get("value")
    if thing.name.startswith(_SYSTEM):
        own = _SYSTEM_CLASSES.get(thing.name)
        if own is None:
            words = f"{quoted(thing.name)}: names with {_SYSTEM} are reserved for the system"
            yield thing.found("name", words, ("metadata", "name"))
        elif type(value) is int and value != own:
            yield thing.found("range", f"the value of {thing.name} is {own}", ("value",))
    elif type(value) is int and not -(2**31) <= value <= _HIGHEST:
        yield thing.found("range", f"{value} is not between {-(2**31)} and {_HIGHEST}", ("value",))


def _stateful(thing: Obj) -> Iterator[Finding]:
    name = at(thing.body, "spec", "serviceName")
    if isinstance(name, str) and name and not is_label_name(name):
        words = f"{quoted(name)} is not one part of a DNS name"
        yield thing.found("name", words, ("spec", "serviceName"))
    strategy, where = mapping(at(thing.body, "spec", "updateStrategy")), ("spec", "updateStrategy")
    partition = at(strategy, "rollingUpdate", "partition")
    if strategy.get("type") == "OnDelete" and strategy.get("rollingUpdate") is not None:
        words = "rollingUpdate is not allowed with OnDelete"
        yield thing.found("one-of", words, (*where, "rollingUpdate"))
    elif type(partition) is int and partition < 0:
        yield thing.found("range", f"{partition} is below 0", (*where, "rollingUpdate", "partition"))


def _limits(thing: Obj) -> Iterator[Finding]:
    for path, limit in entries(thing.body, "spec", "limits"):
        for low, high in _SIDES:
            most = amounts(at(limit, high))
            for name, least in amounts(at(limit, low)).items():
                if name in most and least > most[name]:
                    words = (
                        f"{name}: {low} {quantity.shown(least)} is above {high} {quantity.shown(most[name])}"
                    )
                    yield thing.found("range", words, (*path, low, name))


def _quota(thing: Obj) -> Iterator[Finding]:
    for name, amount in amounts(at(thing.body, "spec", "hard")).items():
        where = ("spec", "hard", name)
        if "/" not in name and name not in _QUOTAS and not name.startswith(_PAGES):
            yield thing.found("resources", f"{name}: is no resource of a quota", where)
        elif amount < 0:
            yield thing.found("range", f"{name}: is below 0", where)


def _scaler(thing: Obj) -> Iterator[Finding]:
    for path, metric in (
        entries(thing.body, "spec", "metrics") if thing.api_version == "autoscaling/v2" else ()
    ):
        part, fields = _TARGETS.get(text(at(metric, "type")), ("", ()))
        target = mapping(at(metric, part, "target"))
        if part in mapping(metric) and not any(target.get(field) is not None for field in fields):
            words = f"the target needs {' or '.join(fields)}"
            yield thing.found("one-of", words, (*path, part, "target"))
        for field in ("averageValue", "value"):
            amount, where = target.get(field), (*path, part, "target", field)
            if amount is not None and (quantity.parse(amount) or 0) <= 0:
                if field == "averageValue" and quantity.parse(amount) is None:
                    continue  # `names` reports it
                yield thing.found("quantity", f"{quoted(amount)} is not a quantity above 0", where)
        if (
            part in ("containerResource", "external", "resource")
            and len([one for one in fields if target.get(one) is not None]) > 1
        ):
            yield thing.found("one-of", f"{' and '.join(fields)} exclude each other", (*path, part, "target"))
    for side in ("scaleDown", "scaleUp"):
        if at(thing.body, "spec", "behavior", side, "policies") == []:
            words = "a list of policies needs one: leave it out for the defaults"
            yield thing.found("one-of", words, ("spec", "behavior", side, "policies"))
        seconds = at(thing.body, "spec", "behavior", side, "stabilizationWindowSeconds")
        if type(seconds) is int and not 0 <= seconds <= 3600:
            where = ("spec", "behavior", side, "stabilizationWindowSeconds")
            yield thing.found("range", f"{seconds} is not between 0 and 3600", where)


def _deployment(thing: Obj) -> Iterator[Finding]:
    ready, limit = (at(thing.body, "spec", field) for field in _TIMES)
    if type(ready) is type(limit) is int and 0 < limit <= ready:
        words = f"progressDeadlineSeconds must be above minReadySeconds, which is {ready}"
        yield thing.found("range", words, ("spec", "progressDeadlineSeconds"))


def _daemons(thing: Obj) -> Iterator[Finding]:
    update = mapping(at(thing.body, "spec", "updateStrategy", "rollingUpdate"))
    where = ("spec", "updateStrategy", "rollingUpdate")
    if update and all(update.get(side) in (0, "0%") for side in ("maxSurge", "maxUnavailable")):
        yield thing.found("range", "maxSurge and maxUnavailable are both 0: no pod could be replaced", where)


def _budget(thing: Obj) -> Iterator[Finding]:
    for field in ("maxUnavailable", "minAvailable"):
        amount = at(thing.body, "spec", field)
        share = text(amount)
        if (type(amount) is int and amount < 0) or (share and not _SHARE.fullmatch(share)):
            words = f"{quoted(amount)} is no number of pods and no share such as 50%"
            yield thing.found("range", words, ("spec", field))
        if share.endswith("%") and share[:-1].isdecimal() and int(share[:-1]) > 100:
            yield thing.found("range", f"{quoted(share)} is above 100%", ("spec", field))


def _flavors(queue: Obj) -> Iterator[Finding]:
    """As Kueue's webhook: a flavor is in one group, and lends at most what it has."""
    seen: dict[str, int] = {}
    for way, group in entries(queue.body, "spec", "resourceGroups"):
        for path, flavor in entries(group, "flavors"):
            where = (*way, *path)
            name = text(at(flavor, "name"))
            if seen.setdefault(name, int(way[-1])) != int(way[-1]):
                yield queue.found("quota-resources", f"flavor {quoted(name)} is in two groups", where)
            for inner, resource in entries(flavor, "resources"):
                lends, has = (quantity.parse(at(resource, part)) for part in ("lendingLimit", "nominalQuota"))
                if queue.key == kueue.CLUSTER_QUEUE and lends is not None and has is not None and lends > has:
                    words = f"lends {quantity.shown(lends)} and has {quantity.shown(has)}"
                    yield queue.found("range", words, (*where, *inner, "lendingLimit"))


_LARGEST = 2**20  # bytes of a ConfigMap or a Secret
_OPAQUE = frozenset({"ConfigMap", "CustomResourceDefinition", "Secret"})
_SPECIAL = {
    f"Role.{_RBAC}": (_roles,),
    f"ClusterRole.{_RBAC}": (_roles,),
    f"RoleBinding.{_RBAC}": (_bindings,),
    f"ClusterRoleBinding.{_RBAC}": (_bindings,),
    "Secret": (_secret,),
    "ConfigMap": (_config,),
    "PersistentVolumeClaim": (_claims,),
    "StatefulSet.apps": (_claims, _stateful),
    JOBSET: (_claims,),
    "PriorityClass.scheduling.k8s.io": (_priority,),
    "PersistentVolume": (_volume,),
    "LimitRange": (_limits,),
    "ResourceQuota": (_quota,),
    "HorizontalPodAutoscaler.autoscaling": (_scaler,),
    "Deployment.apps": (_deployment,),
    "DaemonSet.apps": (_daemons,),
    "PodDisruptionBudget.policy": (_budget,),
    kueue.CLUSTER_QUEUE: (_flavors,),
    kueue.COHORT: (_flavors,),
}

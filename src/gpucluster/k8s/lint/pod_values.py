"""What the API server refuses in a pod beyond its schema: numbers, resources, probes, places, ports of the host, rights.

It compares the template of a Deployment or a Job as it does a pod. Of a kind with its own controller nothing is said here.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from gpucluster import kubernetes_quantity as quantity
from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.manifest_set import ManifestSet
from gpucluster.k8s.lint.names import is_label_key, is_label_name
from gpucluster.k8s.lint.pods import Pods, amounts, needs, pods_of
from gpucluster.k8s.lint.tree import Path, along, at, entries, items, mapping, text
from gpucluster.text import quoted

_MOST = 2**31 - 1
_SOURCES = ("secret", "configMap", "projected", "downwardAPI")
_TERM = "podAffinityTerm"
# path in the pod's spec (`*` is each entry), the minimum and the maximum
_RANGES: tuple[tuple[str, int, int], ...] = (
    ("activeDeadlineSeconds", 1, _MOST),
    ("topologySpreadConstraints.*.maxSkew", 1, _MOST),
    ("topologySpreadConstraints.*.minDomains", 1, _MOST),
    ("affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution.*.weight", 1, 100),
    ("affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution.*.weight", 1, 100),
    ("affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution.*.weight", 1, 100),
    *((f"volumes.*.{source}.defaultMode", 0, 0o777) for source in _SOURCES),
    *((f"volumes.*.{source}.items.*.mode", 0, 0o777) for source in _SOURCES),
    ("volumes.*.projected.sources.*.serviceAccountToken.expirationSeconds", 600, 2**32),
    *((f"securityContext.{field}", 0, _MOST) for field in ("fsGroup", "runAsGroup", "runAsUser")),
)
_IN_CONTAINERS: tuple[tuple[str, int, int], ...] = (
    *((f"securityContext.{field}", 0, _MOST) for field in ("runAsGroup", "runAsUser")),
    *(
        (f"{probe}.{field}", 0, _MOST)
        for probe in ("livenessProbe", "readinessProbe", "startupProbe")
        for field in ("failureThreshold", "initialDelaySeconds", "periodSeconds", "successThreshold", "timeoutSeconds")
    ),
    *((f"{probe}.successThreshold", 0, 1) for probe in ("livenessProbe", "startupProbe")),
    *(
        (f"{probe}.{handler}.port", 1, 65535)
        for probe in ("livenessProbe", "readinessProbe", "startupProbe")
        for handler in ("httpGet", "tcpSocket", "grpc")
    ),
)  # fmt: skip
_CALLS = ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe")
_OF_CONTAINERS = frozenset({"cpu", "memory", "ephemeral-storage"})
_OF_PODS = frozenset({"cpu", "memory"})
_PAGES = "hugepages-"
_CLAIM_SOURCES = ("resourceClaimName", "resourceClaimTemplateName")
_COMMANDS = (("livenessProbe",), ("readinessProbe",), ("startupProbe",), ("lifecycle", "postStart"), ("lifecycle", "preStop"))  # fmt: skip
_HOOK_ACTIONS = ("exec", "httpGet", "sleep", "tcpSocket")
_ONE, _SOME, _NONE = "one value", "values", "no values"
_OPERATORS = {"In": _SOME, "NotIn": _SOME, "Exists": _NONE, "DoesNotExist": _NONE, "Gt": _ONE, "Lt": _ONE}
_HARD = "requiredDuringSchedulingIgnoredDuringExecution"
_NODE_TERMS = (
    f"affinity.nodeAffinity.{_HARD}.nodeSelectorTerms.*.matchExpressions.*",
    "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution.*.preference.matchExpressions.*",
)
_PLACES = (
    "topologySpreadConstraints.*",
    *(f"affinity.{kind}.{_HARD}.*" for kind in ("podAffinity", "podAntiAffinity")),
    *(f"affinity.{kind}.preferredDuringSchedulingIgnoredDuringExecution.*.{_TERM}" for kind in ("podAffinity", "podAntiAffinity")),
)  # fmt: skip


def check(manifests: ManifestSet) -> Iterator[Finding]:
    for thing in manifests.objects:
        for pods in pods_of(thing):
            if pods.complete:
                yield from _pod(pods)


def _pod(pods: Pods) -> Iterator[Finding]:
    yield from _ranges(pods, pods.spec, pods.where("spec"), _RANGES)
    yield from _of_the_pod(pods)
    yield from _affinity(pods)
    yield from _places(pods)
    yield from _host_ports(pods)
    yield from _names(pods)
    yield from _repeated_places(pods)
    if items(pods.spec.get("ephemeralContainers")):
        words = "nobody creates a pod with them: `kubectl debug` adds them to a pod that runs"
        yield pods.owner.found("container", words, pods.where("spec", "ephemeralContainers"))
    yield from _of_the_whole(pods)
    for path, claim in entries(pods.spec, "resourceClaims"):
        given = [field for field in _CLAIM_SOURCES if at(claim, field) is not None]
        if len(given) != 1:
            words = f"expected one of {' and '.join(_CLAIM_SOURCES)}"
            yield pods.owner.found("one-of", words, pods.where("spec", *path))
    claims = {text(at(one, "name")) for _, one in entries(pods.spec, "resourceClaims")}
    for path, container in pods.containers():
        yield from _ranges(pods, container, path, _IN_CONTAINERS)
        yield from _resources(pods, path, container, claims)
        yield from _probes(pods, path, container)
        yield from _rights(pods, path, container)
        yield from _port_names(pods, path, container)
        for inner, mount in entries(container, "volumeMounts"):
            way = text(at(mount, "subPath"))
            if (
                at(mount, "mountPropagation") == "Bidirectional"
                and at(container, "securityContext", "privileged") is not True
            ):
                words = "Bidirectional needs a privileged container"
                yield pods.owner.found("volume", words, (*path, *inner, "mountPropagation"))
            if way and at(mount, "subPathExpr"):
                words = "subPath and subPathExpr exclude each other"
                yield pods.owner.found("one-of", words, (*path, *inner))
            if way.startswith("/") or ".." in way.split("/"):
                words = "is not a path below the volume"
                yield pods.owner.found("volume", f"{quoted(way)} {words}", (*path, *inner, "subPath"))


def _ranges(pods: Pods, value: Any, path: Path, rows: tuple[tuple[str, int, int], ...]) -> Iterator[Finding]:
    for way, least, most in rows:
        for where, number in along(value, way.split(".")):
            if type(number) is int and not least <= number <= most:
                words = f"{number} is not between {least} and {most}"
                yield pods.owner.found("range", words, (*path, *where))


def _of_the_pod(pods: Pods) -> Iterator[Finding]:
    """Resources of a whole pod are those that containers share. A device belongs to one container."""
    for part in ("limits", "requests"):
        for name in mapping(at(pods.spec, "resources", part)):
            if name not in _OF_PODS and not name.startswith(_PAGES):
                words = (
                    f"{name}: a pod as a whole has only cpu, memory and huge pages: move it to a container"
                )
                yield pods.owner.found("resources", words, pods.where("spec", "resources", part, name))


def _of_the_whole(pods: Pods) -> Iterator[Finding]:
    """A pod has at least what its containers request, and at most its own limit for each of them."""
    whole = {part: amounts(at(pods.spec, "resources", part)) for part in ("limits", "requests")}
    sums = needs(pods)
    for name, amount in whole["requests"].items():
        where = pods.where("spec", "resources", "requests", name)
        if amount < sums.get(name, 0):
            words = f"{quantity.shown(amount)} is below the {quantity.shown(sums[name])} of its containers"
            yield pods.owner.found("resources", words, where)
        if amount > whole["limits"].get(name, amount):
            yield pods.owner.found("resources", "the request is above the limit", where)
    for path, container in pods.containers() if whole["limits"] else ():
        for name, amount in amounts(at(container, "resources", "limits")).items():
            if amount > whole["limits"].get(name, amount):
                words = f"{quantity.shown(amount)} is above the limit of the pod"
                yield pods.owner.found("resources", words, (*path, "resources", "limits", name))


def _repeated_places(pods: Pods) -> Iterator[Finding]:
    """A constraint is known by its key and by what happens without it. Keys of labels narrow a selector."""
    seen: set[tuple[str, str]] = set()
    for path, one in entries(pods.spec, "topologySpreadConstraints"):
        where = pods.where("spec", *path)
        sign = (text(at(one, "topologyKey")), text(at(one, "whenUnsatisfiable")))
        if sign in seen:
            yield pods.owner.found("one-of", f"{' and '.join(sign)} are given twice", where)
        seen.add(sign)
        keys, chosen = items(at(one, "matchLabelKeys")), mapping(at(one, "labelSelector", "matchLabels"))
        if keys and at(one, "labelSelector") is None:
            yield pods.owner.found("one-of", "matchLabelKeys need a labelSelector", where)
        for key in keys:
            if text(key) in chosen:
                words = f"{quoted(key)} is in labelSelector, too"
                yield pods.owner.found("one-of", words, (*where, "matchLabelKeys"))


def _resources(pods: Pods, path: Path, container: Mapping[str, Any], claims: set[str]) -> Iterator[Finding]:
    for part in ("limits", "requests"):
        given = mapping(at(container, "resources", part))
        for name in given:
            where = (*path, "resources", part, name)
            if "/" not in name and name not in _OF_CONTAINERS and not name.startswith(_PAGES):
                words = f"{name}: is no resource: cpu, memory, ephemeral-storage, or a device such as nvidia.com/gpu"
                yield pods.owner.found("resources", words, where)
        for name, amount in amounts(given).items():
            if amount < 0:
                yield pods.owner.found("resources", f"{name}: is below 0", (*path, "resources", part, name))
    for inner, claim in entries(container, "resources", "claims"):
        if (name := text(at(claim, "name"))) not in claims:
            words = f"the pod has no resource claim {quoted(name)}"
            yield pods.owner.found("resources", words, (*path, *inner, "name"))


def _probes(pods: Pods, path: Path, container: Mapping[str, Any]) -> Iterator[Finding]:
    if at(container, "readinessProbe", "terminationGracePeriodSeconds") is not None:
        where = (*path, "readinessProbe", "terminationGracePeriodSeconds")
        yield pods.owner.found("one-of", "a readinessProbe ends nothing, and has no grace period", where)
    for way in _COMMANDS:
        if at(container, *way, "exec") is not None and not items(at(container, *way, "exec", "command")):
            yield pods.owner.found("one-of", "`command` is required", (*path, *way, "exec"))
    for name in ("livenessProbe", "startupProbe"):
        seconds = at(container, name, "terminationGracePeriodSeconds")
        if type(seconds) is int and seconds < 1:
            where = (*path, name, "terminationGracePeriodSeconds")
            yield pods.owner.found("range", f"{seconds} is below 1", where)
    for name in ("postStart", "preStop"):
        hook = at(container, "lifecycle", name)
        given = [action for action in _HOOK_ACTIONS if at(hook, action) is not None]
        if isinstance(hook, dict) and len(given) != 1:
            words = f"expected one of {', '.join(_HOOK_ACTIONS)}, found {' and '.join(given) or 'none'}"
            yield pods.owner.found("one-of", words, (*path, "lifecycle", name))
    for name in _CALLS if "initContainers" in path and container.get("restartPolicy") != "Always" else ():
        if container.get(name):
            words = f"an init container has no {name}, unless its restartPolicy is Always"
            yield pods.owner.found("one-of", words, (*path, name))


def _rights(pods: Pods, path: Path, container: Mapping[str, Any]) -> Iterator[Finding]:
    context = mapping(container.get("securityContext"))
    if context.get("privileged") is True and context.get("allowPrivilegeEscalation") is False:
        words = "privileged and allowPrivilegeEscalation: false exclude each other"
        yield pods.owner.found("one-of", words, (*path, "securityContext"))
    for where, own in (((*path, "securityContext"), context), (pods.where("spec", "securityContext"), mapping(pods.spec.get("securityContext")))):  # fmt: skip
        profile = mapping(own.get("seccompProfile"))
        if profile.get("type") == "Localhost" and not profile.get("localhostProfile"):
            words = "a profile of type Localhost needs `localhostProfile`"
            yield pods.owner.found("one-of", words, (*where, "seccompProfile"))


def _port_names(pods: Pods, path: Path, container: Mapping[str, Any]) -> Iterator[Finding]:
    seen: set[str] = set()
    for inner, port in entries(container, "ports"):
        name = text(at(port, "name"))
        if name and name in seen:
            yield pods.owner.found("port", f"the name {quoted(name)} is given twice", (*path, *inner, "name"))
        seen.add(name)


def _host_ports(pods: Pods) -> Iterator[Finding]:
    """Two containers cannot have one port of the host. With the host's network each port is one of the host."""
    seen: set[tuple[str, str, str]] = set()
    for path, container in pods.containers():
        for inner, port in entries(container, "ports") if "initContainers" not in path else ():
            number = at(port, "hostPort")
            sign = (repr(number), text(at(port, "protocol")) or "TCP", text(at(port, "hostIP")))
            if number and sign in seen:
                yield pods.owner.found(
                    "port", f"the host's port {number} is given twice", (*path, *inner, "hostPort")
                )
            if number and pods.spec.get("hostNetwork") is True and number != at(port, "containerPort"):
                words = "with hostNetwork, hostPort and containerPort must be equal"
                yield pods.owner.found("port", words, (*path, *inner, "hostPort"))
            seen.add(sign)


def _affinity(pods: Pods) -> Iterator[Finding]:
    hard = mapping(at(pods.spec, "affinity", "nodeAffinity", _HARD))
    if hard and not items(hard.get("nodeSelectorTerms")):
        where = pods.where("spec", "affinity", "nodeAffinity", _HARD)
        yield pods.owner.found("selector", "a required affinity needs a term", where)
    for way in _NODE_TERMS:
        for path, term in along(pods.spec, way.split(".")):
            where = pods.where("spec", *path)
            if words := _of_term(mapping(term)):
                yield pods.owner.found("selector", words, where)


def _of_term(term: Mapping[str, Any]) -> str:
    """Return what is wrong with an expression of an affinity; "" if nothing is."""
    operator, count = text(term.get("operator")), len(items(term.get("values")))
    needs = _OPERATORS.get(operator)
    if needs is None:
        return f"the operator {quoted(operator)} is none of {', '.join(_OPERATORS)}"
    if not is_label_key(text(term.get("key"))):
        return f"{quoted(term.get('key'))} is not a label name"
    fits = {_SOME: count > 0, _NONE: count == 0, _ONE: count == 1}[needs]
    return "" if fits else f"the operator {operator} needs {needs}"


def _places(pods: Pods) -> Iterator[Finding]:
    for way in _PLACES:
        for path, term in along(pods.spec, way.split(".")):
            where = pods.where("spec", *path)
            if not text(at(term, "topologyKey")):
                yield pods.owner.found("selector", "a topologyKey is required", (*where, "topologyKey"))
            if at(term, "minDomains") and at(term, "whenUnsatisfiable") == "ScheduleAnyway":
                words = "minDomains needs whenUnsatisfiable DoNotSchedule"
                yield pods.owner.found("one-of", words, (*where, "minDomains"))


def _names(pods: Pods) -> Iterator[Finding]:
    for field in ("hostname", "subdomain"):
        name = pods.spec.get(field)
        if isinstance(name, str) and name and not is_label_name(name):
            words = f"{quoted(name)} is not one part of a DNS name"
            yield pods.owner.found("name", words, pods.where("spec", field))
    if pods.spec.get("dnsPolicy") == "None" and not items(at(pods.spec, "dnsConfig", "nameservers")):
        words = "dnsPolicy None needs a name server in dnsConfig"
        yield pods.owner.found("one-of", words, pods.where("spec", "dnsPolicy"))

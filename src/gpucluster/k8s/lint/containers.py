"""Checks of a pod template beyond its schema: images, names, ports, probes, variables, restarts."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.manifest_set import ManifestSet
from gpucluster.k8s.lint.pods import JOBSET, Pods, parts_of
from gpucluster.k8s.lint.tree import Path, along, at, entries, items, mapping, text
from gpucluster.k8s.lint.values import PROTOCOLS
from gpucluster.text import quoted

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
PORT_NAME = re.compile(r"(?=.*[a-z])(?!.*--)[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?", re.ASCII)
_VARIABLE = re.compile(r"[ -<>-~]+", re.ASCII)  # printable ASCII without `=`
_USED = re.compile(r"(?<!\$)\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)", re.ASCII)
_HANDLERS = frozenset({"exec", "grpc", "httpGet", "tcpSocket"})
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_ALWAYS = frozenset({"Deployment.apps", "ReplicaSet.apps", "StatefulSet.apps", "DaemonSet.apps"})
_POLICIES: dict[str, Path] = {
    "Job.batch": ("spec", "podFailurePolicy"),
    "CronJob.batch": ("spec", "jobTemplate", "spec", "podFailurePolicy"),
}
_PROFILES = ("Localhost", "RuntimeDefault", "Unconfined")
# path in the template, the allowed words
_WORDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("spec.restartPolicy", ("Always", "Never", "OnFailure")),
    ("spec.dnsPolicy", ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")),
    ("spec.preemptionPolicy", ("Never", "PreemptLowerPriority")),
    ("spec.tolerations.*.operator", ("Equal", "Exists", "Gt", "Lt")),
    ("spec.tolerations.*.effect", ("NoExecute", "NoSchedule", "PreferNoSchedule", "")),
    ("spec.topologySpreadConstraints.*.whenUnsatisfiable", ("DoNotSchedule", "ScheduleAnyway")),
    ("spec.os.name", ("linux", "windows")),
    ("spec.topologySpreadConstraints.*.nodeAffinityPolicy", ("Honor", "Ignore")),
    ("spec.topologySpreadConstraints.*.nodeTaintsPolicy", ("Honor", "Ignore")),
    ("spec.securityContext.fsGroupChangePolicy", ("Always", "OnRootMismatch")),
    ("spec.securityContext.supplementalGroupsPolicy", ("Merge", "Strict")),
    ("spec.securityContext.seccompProfile.type", _PROFILES),
    ("spec.securityContext.appArmorProfile.type", _PROFILES),
    ("spec.volumes.*.hostPath.type", ("BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket", "")),
    *(
        (f"spec.{kind}.*.{field}", words)
        for kind in ("containers", "initContainers")
        for field, words in (
            ("imagePullPolicy", ("Always", "IfNotPresent", "Never", "")),
            ("ports.*.protocol", (*PROTOCOLS, "")),
            ("restartPolicy", ("Always", "Never", "OnFailure")),
            ("terminationMessagePolicy", ("FallbackToLogsOnError", "File", "")),
            ("volumeMounts.*.mountPropagation", ("Bidirectional", "HostToContainer", "None")),
            ("volumeMounts.*.recursiveReadOnly", ("Disabled", "Enabled", "IfPossible")),
            ("resizePolicy.*.resourceName", ("cpu", "memory")),
            ("resizePolicy.*.restartPolicy", ("NotRequired", "RestartContainer")),
            ("securityContext.procMount", ("Default", "Unmasked")),
            ("securityContext.seccompProfile.type", _PROFILES),
            ("securityContext.appArmorProfile.type", _PROFILES),
            *((f"{probe}.httpGet.scheme", ("HTTP", "HTTPS", "")) for probe in _PROBES),
        )
    ),
)  # fmt: skip


def check(manifests: ManifestSet) -> Iterator[Finding]:
    for thing in manifests.objects:
        for pods in parts_of(thing):
            yield from _template(pods)
            for path, container in pods.containers():
                yield from _container(pods, path, container)


def _template(pods: Pods) -> Iterator[Finding]:
    owner = pods.owner
    if not items(pods.spec.get("containers")):
        yield owner.found("container", "a pod needs at least one container", pods.where("spec", "containers"))
    for path, words in _WORDS:
        for where, value in along(pods.template, path.split(".")):
            if isinstance(value, str) and value not in words:
                yield owner.found("word", f"{quoted(value)} is none of {', '.join(filter(None, words))}", pods.where(*where))  # fmt: skip
    yield from _restart(pods)
    yield from _tolerations(pods)
    for kind in (["containers", "initContainers"], ["volumes"]):
        yield from _twice(pods, kind)
    for path, volume in entries(pods.spec, "volumes"):
        if len(mapping(volume)) > 2:
            yield owner.found("one-of", "a volume needs exactly one source", pods.where("spec", *path))


def _restart(pods: Pods) -> Iterator[Finding]:
    policy, where = pods.spec.get("restartPolicy", "Always"), pods.where("spec", "restartPolicy")
    if pods.owner.key in _ALWAYS and policy in ("Never", "OnFailure"):
        yield pods.owner.found(
            "restart-policy", f"restartPolicy must be Always in the pods of a {pods.owner.kind}", where
        )
    if _failure_policy(pods) and policy == "OnFailure":
        yield pods.owner.found(
            "restart-policy", "restartPolicy must be Never in a job with a podFailurePolicy", where
        )


def _failure_policy(pods: Pods) -> bool:
    if pods.owner.key == JOBSET:
        way: Path = (*pods.path[:-1], "podFailurePolicy")
    else:
        way = _POLICIES.get(pods.owner.key, ("",))
    value: Any = pods.owner.body
    for key in way:
        value = items(value)[key] if isinstance(key, int) else mapping(value).get(key)
    return bool(value)


def _twice(pods: Pods, kinds: list[str]) -> Iterator[Finding]:
    """Report a name that is used twice, or that is no DNS label."""
    seen: set[str] = set()
    for kind in kinds:
        for path, entry in entries(pods.spec, kind):
            name, where = text(at(entry, "name")), pods.where("spec", *path, "name")
            if name and name in seen:
                yield pods.owner.found("container", f"the name {quoted(name)} is given twice", where)
            elif not _LABEL.fullmatch(name) and (name or pods.complete):
                yield pods.owner.found("container", f"{quoted(name)} is not a valid name: use lower-case letters, digits and `-`", where)  # fmt: skip
            seen.add(name)


def _container(pods: Pods, path: Path, container: Mapping[str, Any]) -> Iterator[Finding]:
    image = container.get("image")
    filled = not pods.complete and isinstance(image, str) and not image.strip()  # by its controller
    if (image is None and pods.complete) or (
        isinstance(image, str) and not filled and (not image or image != image.strip())
    ):
        yield pods.owner.found("container", "an image is required, without spaces around it", (*path, "image"))  # fmt: skip
    yield from _ports(pods, path, container)
    for name in _PROBES:
        if name in container and pods.complete:
            yield from _probe(pods, (*path, name), mapping(container[name]), _names(container))
    yield from _repeated(pods, path, container)
    for inner, variable in entries(container, "env"):
        yield from _variable(pods, (*path, *inner), mapping(variable))
    yield from _order(pods, path, container)


def _order(pods: Pods, path: Path, container: Mapping[str, Any]) -> Iterator[Finding]:
    """The kubelet fills `$(NAME)` from the variables before it. `$$(NAME)` is text."""
    names = [text(at(one, "name")) for _, one in entries(container, "env")]
    for number, (inner, one) in enumerate(entries(container, "env")):
        later = {*names[number + 1 :]} - {*names[:number]}
        used = [name for name in _USED.findall(text(at(one, "value"))) if name in later]
        if used and not items(container.get("envFrom")):
            words = f"$({used[0]}) stays as it is: the variable {used[0]} comes later in the list"
            yield pods.owner.warned("variable", words, (*path, *inner, "value"))


def _repeated(pods: Pods, path: Path, container: Mapping[str, Any]) -> Iterator[Finding]:
    """The last of two variables counts. Two mounts at one place are refused."""
    seen: dict[str, Any] = {}
    for inner, variable in entries(container, "env"):
        name = text(at(variable, "name"))
        if name and seen.setdefault(name, variable) != variable:
            words = f"{quoted(name)} is given twice, and only the last value counts"
            yield pods.owner.warned("variable-twice", words, (*path, *inner))
    places: set[str] = set()
    for inner, mount in entries(container, "volumeMounts"):
        place = text(at(mount, "mountPath"))
        if place and place in places:
            yield pods.owner.found("volume", f"another volume is mounted at {quoted(place)}", (*path, *inner, "mountPath"))  # fmt: skip
        places.add(place)


def _tolerations(pods: Pods) -> Iterator[Finding]:
    for path, one in entries(pods.spec, "tolerations"):
        where = pods.where("spec", *path)
        operator = text(at(one, "operator")) or "Equal"
        if operator == "Exists" and at(one, "value"):
            yield pods.owner.found("one-of", "value and the operator Exists exclude each other", where)
        if operator == "Equal" and not at(one, "key") and mapping(one):
            yield pods.owner.found("word", "without a key the operator must be Exists", (*where, "operator"))
        if at(one, "tolerationSeconds") is not None and at(one, "effect") != "NoExecute":
            yield pods.owner.found("word", "tolerationSeconds needs the effect NoExecute", (*where, "effect"))


def _ports(pods: Pods, path: Path, container: Mapping[str, Any]) -> Iterator[Finding]:
    for inner, port in entries(container, "ports"):
        name, number = at(port, "name"), at(port, "containerPort")
        if isinstance(name, str) and not PORT_NAME.fullmatch(name):
            words = f"{quoted(name)} is not a port name: use at most 15 of a-z, 0-9 and `-`, with at least one letter"
            yield pods.owner.found("port", words, (*path, *inner, "name"))
        if type(number) is int and not 0 < number < 2**16:
            yield pods.owner.found("port", f"{number} is not between 1 and 65535", (*path, *inner, "containerPort"))  # fmt: skip


def _names(container: Mapping[str, Any]) -> set[str]:
    return {text(at(port, "name")) for _, port in entries(container, "ports")}


def _probe(pods: Pods, path: Path, probe: Mapping[str, Any], names: set[str]) -> Iterator[Finding]:
    given = sorted(_HANDLERS & probe.keys())
    if len(given) != 1:
        words = f"expected one of {', '.join(sorted(_HANDLERS))}, found {' and '.join(given) or 'none'}"
        yield pods.owner.found("one-of", words, path)
    for handler in given:
        port = at(probe[handler], "port")
        if isinstance(port, str) and port not in names:
            yield pods.owner.found("port", f"the container has no port {quoted(port)}", (*path, handler, "port"))  # fmt: skip


def _variable(pods: Pods, path: Path, variable: Mapping[str, Any]) -> Iterator[Finding]:
    name = text(variable.get("name"))
    if not _VARIABLE.fullmatch(name):
        yield pods.owner.found("variable", f"{quoted(name)} is not a variable name", (*path, "name"))
    if text(variable.get("value")) and variable.get("valueFrom") is not None:
        yield pods.owner.found("one-of", "value and valueFrom exclude each other", path)

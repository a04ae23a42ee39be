"""Forms that the API server refuses in a pod: addresses, names, paths, and parts of the host that exclude each other.

Source: pkg/apis/core/validation/validation.go of Kubernetes 1.36. Of a kind with its own controller nothing is said here."""

import re
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import Any

from gpucluster import kubernetes_quantity as quantity
from gpucluster.k8s.lint import core_values
from gpucluster.k8s.lint.finding import Finding, Severity
from gpucluster.k8s.lint.manifest_set import ManifestSet
from gpucluster.k8s.lint.names import is_label_key, is_label_value, is_subdomain
from gpucluster.k8s.lint.pods import Pods, pods_of
from gpucluster.k8s.lint.tree import along, at, entries, items, mapping, text
from gpucluster.text import quoted

_SYSCTL = re.compile(r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?", re.ASCII)
_IPC = frozenset({"kernel.sem", "kernel.shm", "kernel.shmall", "kernel.shmmax", "kernel.shmmni", "kernel.shm_rmid_forced", "kernel.msgmax", "kernel.msgmnb", "kernel.msgmni"})  # fmt: skip
_SEARCH = re.compile(r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*", re.ASCII)
_SERVERS, _SEARCHES = 3, 32  # the most
_STRICT_SINCE = 36  # the minor version from which an address has no zeros in front
_ZEROS = re.compile(r"(?<![0-9a-fA-F:])0+(?=[0-9])", re.ASCII)
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_PAGES = re.compile(r"HugePages(-.+)?", re.ASCII)
_HARD, _SOFT = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
_TERMS = f"affinity.nodeAffinity.{_HARD}.nodeSelectorTerms"
_WISHES = f"affinity.nodeAffinity.{_SOFT}.*.preference"
_NEIGHBOURS = tuple(
    f"affinity.{kind}.{way}"
    for kind in ("podAffinity", "podAntiAffinity")
    for way in (f"{_HARD}.*", f"{_SOFT}.*.podAffinityTerm")
)
_FIELD = "metadata.name"  # the only field of a node that a term can compare
_IN_VOLUMES = (  # paths below the volume
    *(f"volumes.*.{source}.items.*.path" for source in ("configMap", "downwardAPI", "secret")),
    *(f"volumes.*.projected.sources.*.{source}.items.*.path" for source in ("configMap", "downwardAPI", "secret")),
    *(f"volumes.*.projected.sources.*.{source}.path" for source in ("clusterTrustBundle", "serviceAccountToken")),
)  # fmt: skip


def check(manifests: ManifestSet) -> Iterator[Finding]:
    strict = int(manifests.facts.kubernetes.partition(".")[2]) >= _STRICT_SINCE
    for thing in manifests.objects:
        for pods in pods_of(thing):
            if pods.complete:
                yield from _host(pods)
                yield from _sysctls(pods)
                yield from _addresses(pods, strict=strict)
                yield from _dns(pods, strict=strict)
                yield from _keys(pods)
                yield from _places(pods)
                yield from _nodes(pods)
                yield from _paths(pods)
                yield from _volumes(pods)


def _host(pods: Pods) -> Iterator[Finding]:
    own_users = pods.spec.get("hostUsers") is False
    for field in ("hostIPC", "hostNetwork", "hostPID"):
        if own_users and pods.spec.get(field) is True:
            words = f"{field} and hostUsers: false exclude each other"
            yield pods.owner.found("one-of", words, pods.where("spec", field))
    if pods.spec.get("shareProcessNamespace") is True and pods.spec.get("hostPID") is True:
        words = "shareProcessNamespace and hostPID exclude each other"
        yield pods.owner.found("one-of", words, pods.where("spec", "shareProcessNamespace"))
    for path, container in pods.containers():
        context = mapping(container.get("securityContext"))
        if own_users and container.get("volumeDevices"):
            words = "volumeDevices and hostUsers: false exclude each other"
            yield pods.owner.found("one-of", words, (*path, "volumeDevices"))
        if not own_users and context.get("procMount") == "Unmasked":
            words = "procMount Unmasked needs hostUsers: false"
            yield pods.owner.found("one-of", words, (*path, "securityContext", "procMount"))
        added = items(at(context, "capabilities", "add"))
        if context.get("allowPrivilegeEscalation") is False and "CAP_SYS_ADMIN" in added:
            words = "CAP_SYS_ADMIN and allowPrivilegeEscalation: false exclude each other"
            yield pods.owner.found("one-of", words, (*path, "securityContext", "capabilities", "add"))


def _sysctls(pods: Pods) -> Iterator[Finding]:
    seen: set[str] = set()
    for path, one in entries(pods.spec, "securityContext", "sysctls"):
        name, where = text(at(one, "name")), pods.where("spec", *path, "name")
        if not _SYSCTL.fullmatch(name) or len(name) > 253:
            words = f"{quoted(at(one, 'name'))} is no name of a sysctl such as net.core.somaxconn"
            yield pods.owner.found("name", words, where)
        elif name in seen:
            yield pods.owner.found("one-of", f"{quoted(name)} is given twice", where)
        elif (field := _shared(name)) and pods.spec.get(field) is True:
            words = f"{quoted(name)} and {field} exclude each other: it would be a setting of the host"
            yield pods.owner.found("one-of", words, where)
        seen.add(name)


def _shared(name: str) -> str:
    """Return the field with which a pod has the sysctl of its host; "" for a sysctl of the whole node."""
    dot, slash = name.find("."), name.find("/")
    if slash >= 0 and (dot < 0 or slash < dot):  # as sysctl(8): the other sign is then a part of a name
        name = name.translate(str.maketrans("./", "/."))
    if name.startswith("net."):
        return "hostNetwork"
    return "hostIPC" if name in _IPC or name.startswith("fs.mqueue.") else ""


def _addresses(pods: Pods, *, strict: bool) -> Iterator[Finding]:
    for path, one in entries(pods.spec, "hostAliases"):
        where = pods.where("spec", *path)
        if not _is_address(at(one, "ip"), strict=strict):
            words = f"{quoted(at(one, 'ip'))} is no address such as 10.0.0.1"
            yield pods.owner.found("cidr", words, (*where, "ip"))
        for number, name in enumerate(items(at(one, "hostnames"))):
            if isinstance(name, str) and not is_subdomain(name):
                yield pods.owner.found("name", f"{quoted(name)} is not a DNS name", (*where, "hostnames", number))  # fmt: skip


def _dns(pods: Pods, *, strict: bool) -> Iterator[Finding]:
    where = pods.where("spec", "dnsConfig")
    config = mapping(pods.spec.get("dnsConfig"))
    for field, most in (("nameservers", _SERVERS), ("searches", _SEARCHES)):
        if (count := len(items(config.get(field)))) > most:
            yield pods.owner.found("range", f"has {count} entries; the limit is {most}", (*where, field))
    for path, server in entries(config, "nameservers"):
        if not _is_address(server, strict=strict):
            words = f"{quoted(server)} is no address such as 10.0.0.10"
            yield pods.owner.found("cidr", words, (*where, *path))
    for path, search in entries(config, "searches"):
        if isinstance(search, str) and search != "." and not _SEARCH.fullmatch(search.removesuffix(".")):
            yield pods.owner.found("name", f"{quoted(search)} is not a DNS name", (*where, *path))
    for path, option in entries(config, "options"):
        if not at(option, "name"):
            yield pods.owner.found("schema", "`name` is required", (*where, *path))


def _is_address(written: Any, *, strict: bool) -> bool:
    plain = text(written) if strict else _ZEROS.sub("", text(written))
    try:
        ip_address(plain)
    except ValueError:
        return False
    return "%" not in plain


def _keys(pods: Pods) -> Iterator[Finding]:
    for path, one in entries(pods.spec, "tolerations"):
        key, value, where = at(one, "key"), at(one, "value"), pods.where("spec", *path)
        if isinstance(key, str) and key and not is_label_key(key):
            yield pods.owner.found("label", f"{quoted(key)} is not a label name", (*where, "key"))
        if at(one, "operator") in (None, "", "Equal") and isinstance(value, str) and not is_label_value(value):  # fmt: skip
            yield pods.owner.found("label", f"{quoted(value)} is not a label value", (*where, "value"))
    seen: set[str] = set()
    for path, gate in entries(pods.spec, "schedulingGates"):
        name, where = text(at(gate, "name")), pods.where("spec", *path, "name")
        if not is_label_key(name):
            words = f"{quoted(at(gate, 'name'))} is no name of a gate such as example.org/gate"
            yield pods.owner.found("name", words, where)
        elif name in seen:
            yield pods.owner.found("one-of", f"{quoted(name)} is given twice", where)
        seen.add(name)


def _places(pods: Pods) -> Iterator[Finding]:
    """The API server refuses such a key in an affinity. In a spread it takes the key, and no node has the label."""
    for way in (*_NEIGHBOURS, "topologySpreadConstraints.*"):
        for path, term in along(pods.spec, way.split(".")):
            key, where = text(at(term, "topologyKey")), pods.where("spec", *path, "topologyKey")
            if key and not is_label_key(key):
                level = Severity.WARNING if at(term, "whenUnsatisfiable") == "ScheduleAnyway" else Severity.ERROR  # fmt: skip
                yield pods.owner.found("selector", f"{quoted(key)} is not a label name", where, level)


def _nodes(pods: Pods) -> Iterator[Finding]:
    terms = [*along(pods.spec, [*_TERMS.split("."), "*"])]
    # the scheduler leaves out a required term that it cannot read, and stops at a preferred one
    levels = Severity.WARNING if len(terms) > 1 else Severity.ERROR
    for level, found in ((levels, terms), (Severity.ERROR, [*along(pods.spec, _WISHES.split("."))])):
        for path, term in found:
            where = pods.where("spec", *path)
            for inner, one in entries(term, "matchExpressions"):
                values = items(at(one, "values"))
                compares = at(one, "operator") in ("Gt", "Lt") and len(values) == 1
                if compares and not _INTEGER.fullmatch(text(values[0])):
                    words = f"{quoted(values[0])} is no whole number: the scheduler cannot compare with it"
                    yield pods.owner.found("selector", words, (*where, *inner, "values"), level)
            for inner, one in entries(term, "matchFields"):
                if words := _of_field(mapping(one)):
                    yield pods.owner.found("selector", words, (*where, *inner))


def _of_field(one: Mapping[str, Any]) -> str:
    """Return what is wrong with a comparison of a node's field; "" if nothing is."""
    if one.get("key") != _FIELD:
        return f"{quoted(one.get('key'))} is no field of a node for a selector: the only one is {_FIELD}"
    if one.get("operator") not in ("In", "NotIn"):
        return f"the operator {quoted(one.get('operator'))} is none of In, NotIn, those for a field"
    return "" if len(items(one.get("values"))) == 1 else "a field is compared with one value"


def _paths(pods: Pods) -> Iterator[Finding]:
    for path, written in along(pods.spec, ["volumes", "*", "hostPath", "path"]):
        if ".." in text(written).split("/"):
            words = f"{quoted(written)} must not contain `..`"
            yield pods.owner.found("volume", words, pods.where("spec", *path))
    for way in _IN_VOLUMES:
        for path, written in along(pods.spec, way.split(".")):
            if _leaves(text(written)):
                words = f"{quoted(written)} is not a path below the volume"
                yield pods.owner.found("volume", words, pods.where("spec", *path))


def _volumes(pods: Pods) -> Iterator[Finding]:
    for path, volume in along(pods.spec, ["volumes", "*", "emptyDir"]):
        where, size, medium = pods.where("spec", *path), at(volume, "sizeLimit"), text(at(volume, "medium"))
        if (amount := quantity.parse(size)) is not None and amount < 0:
            yield pods.owner.found("range", "the size is below 0", (*where, "sizeLimit"))
        if medium not in ("", "Memory") and not _PAGES.fullmatch(medium):
            words = f"{quoted(medium)} is none of Memory, HugePages, HugePages-SIZE: the kubelet cannot make the volume"
            yield pods.owner.found("word", words, (*where, "medium"))
    for path, volume in along(pods.spec, ["volumes", "*", "ephemeral"]):
        where, template = pods.where("spec", *path), at(volume, "volumeClaimTemplate")
        if template is None:
            yield pods.owner.found("schema", "`volumeClaimTemplate` is required", where)
        else:
            yield from core_values.claim(pods.owner, template, (*where, "volumeClaimTemplate"))


def _leaves(way: str) -> bool:
    return way.startswith(("/", "..")) or ".." in way.split("/")

"""What the API server refuses in services, Ingresses and NetworkPolicies beyond their schemas."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.manifest_set import ManifestSet, Obj
from gpucluster.k8s.lint.names import is_label_name, is_subdomain
from gpucluster.k8s.lint.tree import Path, at, entries, items, mapping, text
from gpucluster.text import quoted

_NODE_PORTS = range(30000, 32768)  # the server's default


def check(manifests: ManifestSet) -> Iterator[Finding]:
    for thing in manifests.objects:
        if (special := _SPECIAL.get(thing.key)) is not None:
            yield from special(thing)


def _service(thing: Obj) -> Iterator[Finding]:
    spec = mapping(thing.body.get("spec"))
    kind, ports = spec.get("type", "ClusterIP"), list(entries(spec, "ports"))
    if kind == "ExternalName" and not spec.get("externalName"):
        yield thing.found("one-of", "`externalName` is required", ("spec",))
    if spec and not ports and kind != "ExternalName" and spec.get("clusterIP") != "None":
        yield thing.found("port", "`ports` is required", ("spec", "ports"))
    if kind in ("LoadBalancer", "NodePort") and spec.get("clusterIP") == "None":
        yield thing.found(
            "one-of", f"type {kind} and clusterIP None exclude each other", ("spec", "clusterIP")
        )
    seen: set[Any] = set()
    for path, port in ports:
        yield from _service_port(thing, ("spec", *path), mapping(port), several=len(ports) > 1, kind=kind)
        for sign in (text(at(port, "name")), (repr(at(port, "port")), text(at(port, "protocol")) or "TCP")):
            if sign and sign in seen:
                shown = sign if isinstance(sign, str) else f"{sign[0]} {sign[1]}"
                yield thing.found("port", f"{shown} is given twice", ("spec", *path))
            seen.add(sign)


def _service_port(
    thing: Obj, path: Path, port: Mapping[str, Any], *, several: bool, kind: Any
) -> Iterator[Finding]:
    name, target, node = text(port.get("name")), port.get("targetPort"), port.get("nodePort")
    if several and not name:
        yield thing.found("port", "a service with several ports needs a name for each", path)
    if name and not is_label_name(name):
        yield thing.found("port", f"{quoted(name)} is not a port name: use a-z, 0-9 and `-`", (*path, "name"))
    if type(target) is int and not 0 < target < 2**16:
        yield thing.found("port", f"{target} is not between 1 and 65535", (*path, "targetPort"))
    if type(node) is int and node > 0:
        if kind == "ClusterIP":
            yield thing.found("port", "a service of type ClusterIP has no nodePort", (*path, "nodePort"))
        elif node not in _NODE_PORTS:
            words = f"{node} is not between 30000 and 32767, the default of the server"
            yield thing.warned("port", words, (*path, "nodePort"))


def _ingress(thing: Obj) -> Iterator[Finding]:
    spec = mapping(thing.body.get("spec"))
    if not items(spec.get("rules")) and not spec.get("defaultBackend"):
        yield thing.found("one-of", "one of `defaultBackend` and `rules` is required", ("spec",))
    for path, rule in entries(spec, "rules"):
        host = text(at(rule, "host"))
        if host and not is_subdomain(host.removeprefix("*.")):
            yield thing.found("name", f"{quoted(host)} is not a DNS name", ("spec", *path, "host"))
        for inner, one in entries(rule, "http", "paths"):
            where = ("spec", *path, *inner)
            way = text(at(one, "path"))
            if at(one, "pathType") in ("Exact", "Prefix") and not way.startswith("/"):
                yield thing.found("name", f"the path {quoted(way)} must begin with a slash", (*where, "path"))
            port = mapping(at(one, "backend", "service", "port"))
            if port.get("name") and port.get("number"):
                yield thing.found("one-of", "name and number exclude each other", (*where, "backend"))


def _policy(thing: Obj) -> Iterator[Finding]:
    for side, peers in (("ingress", "from"), ("egress", "to")):
        for path, rule in entries(thing.body, "spec", side):
            for inner, peer in entries(rule, peers):
                if at(peer, "ipBlock") and len(mapping(peer)) > 1:
                    yield thing.found("one-of", "ipBlock excludes selectors", (*path, *inner))
            for inner, port in entries(rule, "ports"):
                first, last = at(port, "port"), at(port, "endPort")
                if last is not None and (type(first) is not int or (type(last) is int and last < first)):
                    words = "endPort needs a port that is a number, and not above it"
                    yield thing.found("range", words, (*path, *inner, "endPort"))


_SPECIAL = {
    "Service": _service,
    "Ingress.networking.k8s.io": _ingress,
    "NetworkPolicy.networking.k8s.io": _policy,
}

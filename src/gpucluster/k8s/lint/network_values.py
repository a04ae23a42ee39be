"""What the API server refuses in services, Ingresses and NetworkPolicies beyond their schemas."""

from collections.abc import Iterator, Mapping
from ipaddress import ip_address, ip_network
from typing import Any

from gpucluster.k8s.lint.containers import PORT_NAME
from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.manifest_set import ManifestSet, Obj
from gpucluster.k8s.lint.names import is_label_name, is_label_value, is_subdomain
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
    yield from _outside(thing, spec, kind)
    seen: set[Any] = set()
    for path, port in ports:
        yield from _service_port(thing, ("spec", *path), mapping(port), several=len(ports) > 1, kind=kind)
        for sign in (text(at(port, "name")), (repr(at(port, "port")), text(at(port, "protocol")) or "TCP")):
            if sign and sign in seen:
                shown = sign if isinstance(sign, str) else f"{sign[0]} {sign[1]}"
                yield thing.found("port", f"{shown} is given twice", ("spec", *path))
            seen.add(sign)


def _outside(thing: Obj, spec: Mapping[str, Any], kind: Any) -> Iterator[Finding]:
    """Fields of services that clients outside of the cluster reach."""
    if kind != "LoadBalancer":
        for field in ("allocateLoadBalancerNodePorts", "loadBalancerClass", "loadBalancerSourceRanges"):
            if spec.get(field) not in (None, []):
                yield thing.found("one-of", f"{field} needs type LoadBalancer", ("spec", field))
    if spec.get("externalTrafficPolicy") and kind == "ClusterIP" and not items(spec.get("externalIPs")):
        words = "externalTrafficPolicy needs type LoadBalancer or NodePort"
        yield thing.found("one-of", words, ("spec", "externalTrafficPolicy"))
    for number, written in enumerate(items(spec.get("loadBalancerSourceRanges"))):
        if not _is_block(text(written).strip()):
            words = f"{quoted(written)} is not a network such as 10.0.0.0/8"
            yield thing.found("cidr", words, ("spec", "loadBalancerSourceRanges", number))
    address = text(spec.get("clusterIP"))
    if address not in ("", "None") and not _is_address(address):
        words = f"{quoted(address)} is no address, and not None"
        yield thing.found("word", words, ("spec", "clusterIP"))
    for key, value in mapping(spec.get("selector")).items():
        if isinstance(value, str) and not is_label_value(value):
            yield thing.found("label", f"{quoted(value)} is not a label value", ("spec", "selector", key))


def _is_block(written: str) -> bool:
    try:
        ip_network(written, strict=False)
    except ValueError:
        return False
    return "/" in written


def _is_address(written: str) -> bool:
    try:
        ip_address(written)
    except ValueError:
        return False
    return True


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
    if isinstance(target, str) and target and not PORT_NAME.fullmatch(target):
        words = f"{quoted(target)} is not a port name: use at most 15 of a-z, 0-9 and `-`, with at least one letter"
        yield thing.found("port", words, (*path, "targetPort"))
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

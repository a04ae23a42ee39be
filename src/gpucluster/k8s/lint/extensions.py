"""What the API server refuses in definitions of kinds, webhooks and claims of devices beyond their schemas."""

from collections.abc import Iterator

from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.manifest_set import ManifestSet, Obj
from gpucluster.k8s.lint.names import is_subdomain
from gpucluster.k8s.lint.tree import Path, along, at, entries, mapping, text
from gpucluster.text import quoted

_LEAST_PARTS = 3  # of the name of a webhook
_ADMISSION = "admissionregistration.k8s.io"
_REQUESTS = {"ResourceClaim": ["spec", "devices", "requests", "*"], "ResourceClaimTemplate": ["spec", "spec", "devices", "requests", "*"]}  # fmt: skip
_FLAT = (
    "resource.k8s.io/v1alpha3",
    "resource.k8s.io/v1beta1",
)  # the fields of `exactly` are in the request itself
_MODES = ("All", "ExactCount")


def check(manifests: ManifestSet) -> Iterator[Finding]:
    for thing in manifests.objects:
        if thing.key == "CustomResourceDefinition.apiextensions.k8s.io":
            yield from _definition(thing)
        elif thing.group == _ADMISSION and "webhooks" in thing.body:
            yield from _hooks(thing)
        elif thing.group == "resource.k8s.io" and thing.kind in _REQUESTS:
            yield from _requests(thing)


def _definition(thing: Obj) -> Iterator[Finding]:
    plural, group = text(at(thing.body, "spec", "names", "plural")), text(at(thing.body, "spec", "group"))
    if plural and group and thing.name and thing.name != f"{plural}.{group}":
        words = f"the name is that of the kind in its group: {plural}.{group}"
        yield thing.found("name", words, ("metadata", "name"))
    versions = list(entries(thing.body, "spec", "versions"))
    stored = [path for path, version in versions if at(version, "storage") is True]
    if versions and len(stored) != 1:
        words = f"one version is stored, found {len(stored)} with `storage: true`"
        yield thing.found("one-of", words, ("spec", "versions"))
    for path, version in versions:
        if thing.api_version.endswith("/v1") and not mapping(at(version, "schema", "openAPIV3Schema")):
            yield thing.found("schema", "`schema.openAPIV3Schema` is required", ("spec", *path))


def _hooks(thing: Obj) -> Iterator[Finding]:
    for path, hook in entries(thing.body, "webhooks"):
        name, client = text(at(hook, "name")), mapping(at(hook, "clientConfig"))
        if name and (not is_subdomain(name) or name.count(".") < _LEAST_PARTS - 1):
            words = (
                f"{quoted(name)} is no full name, such as pods.hooks.example.org: it has three parts or more"
            )
            yield thing.found("name", words, (*path, "name"))
        if (client.get("url") is None) is (client.get("service") is None):
            yield thing.found("one-of", "expected one of service and url", (*path, "clientConfig"))


def _requests(thing: Obj) -> Iterator[Finding]:
    for path, request in along(thing.body, _REQUESTS[thing.kind]):
        if thing.api_version in _FLAT:
            continue
        exact, first = at(request, "exactly"), at(request, "firstAvailable")
        if (exact is None) is (not first):
            yield thing.found("one-of", "expected one of exactly and firstAvailable", path)
        parts: list[tuple[Path, object]] = [((*path, "exactly"), exact)]
        parts += [((*path, *inner), one) for inner, one in entries(request, "firstAvailable")]
        for where, one in parts:
            mode, count = at(one, "allocationMode"), at(one, "count")
            if isinstance(mode, str) and mode not in (*_MODES, ""):
                words = f"{quoted(mode)} is none of {', '.join(_MODES)}"
                yield thing.found("word", words, (*where, "allocationMode"))
            if mode == "All" and count:
                yield thing.found("one-of", "allocationMode All has no count", (*where, "count"))

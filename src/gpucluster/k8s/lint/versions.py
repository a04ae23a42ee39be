"""The Kubernetes version serves the apiVersion and has it enabled. Deprecated versions are reported."""

from collections.abc import Iterator

from gpucluster.catalog import crd_schemas, kubernetes_facts
from gpucluster.k8s.lint.facts import Distribution
from gpucluster.k8s.lint.finding import Finding
from gpucluster.k8s.lint.manifest_set import ManifestSet, Obj, is_built_in

_AT = ("apiVersion",)


def check(manifests: ManifestSet) -> Iterator[Finding]:
    for thing in manifests.objects:
        if thing.is_client_file:
            continue
        crd = crd_schemas().get((thing.api_version, thing.kind))
        if is_built_in(thing.api_version):
            yield from _built_in(thing, manifests)
        elif crd is not None and crd.instead:
            yield thing.warned("deprecated", f"{thing.api_version} is deprecated: use {crd.instead}", _AT)


def _built_in(thing: Obj, manifests: ManifestSet) -> Iterator[Finding]:
    facts, release = kubernetes_facts(), manifests.facts.kubernetes
    name = (thing.api_version, thing.kind)
    what = " ".join(name)
    if release not in facts.served.get(name, ()):
        yield thing.found(
            "not-served", f"Kubernetes {release} does not serve {what}{_other(name, release)}", _AT
        )
    elif thing.api_version in facts.off_by_default:
        if manifests.facts.distribution is Distribution.EKS:
            yield thing.found("not-served", f"EKS serves no alpha versions and no beta versions that are off by default: {what}{_other(name, release)}", _AT)  # fmt: skip
        else:
            yield thing.warned("off-by-default", f"{what} is off by default; enable it in the API server{_other(name, release)}", _AT)  # fmt: skip
    elif (since := facts.deprecated.get(name)) is not None:
        yield thing.warned("deprecated", f"{what}: {since}", _AT)


def _other(name: tuple[str, str], release: str) -> str:
    """Return where else the kind is served: with another apiVersion of this release, or in another release."""
    facts = kubernetes_facts()
    here = sorted(
        api
        for (api, kind), releases in facts.served.items()
        if kind == name[1] and release in releases and api != name[0] and api not in facts.off_by_default
    )
    if here:
        return f"; it has {' and '.join(here)}"
    elsewhere = [known for known in facts.served.get(name, ()) if known != release]
    return f"; {', '.join(elsewhere)} does" if elsewhere else ""

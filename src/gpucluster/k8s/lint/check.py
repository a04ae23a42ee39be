"""The table of checkers, and their run over one set of objects."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gpucluster.catalog import kubernetes_facts
from gpucluster.k8s.lint import (
    access,
    admission,
    builtin,
    cel,
    containers,
    core_values,
    device_names,
    disruption,
    extensions,
    fabric_names,
    flavors,
    gangs,
    hosts,
    isolation,
    job_values,
    keys,
    kustomize,
    launchers,
    limit_ranges,
    literal_secrets,
    names,
    network,
    network_values,
    operator_jobs,
    pairs,
    placement,
    pod_addresses,
    pod_forms,
    pod_values,
    policies,
    probes,
    queue_labels,
    quotas,
    ray_jobs,
    references,
    resources,
    scaling,
    schemas,
    security,
    storage,
    trainjobs,
    value_sources,
    values,
    versions,
    well_known,
    windows,
)
from gpucluster.k8s.lint.client_files import is_client_file
from gpucluster.k8s.lint.document import Document, documents
from gpucluster.k8s.lint.facts import Facts
from gpucluster.k8s.lint.finding import Finding, Severity
from gpucluster.k8s.lint.manifest_set import ManifestSet, build, is_built_in, is_encrypted
from gpucluster.k8s.lint.tree import at, text

CHECKERS: dict[str, Callable[[ManifestSet], Iterator[Finding]]] = {
    "versions": versions.check,
    "builtin": builtin.check,
    "schemas": schemas.check,
    "names": names.check,
    "references": references.check,
    "quotas": quotas.check,
    "placement": placement.check,
    "resources": resources.check,
    "operator_jobs": operator_jobs.check,
    "ray_jobs": ray_jobs.check,
    "pairs": pairs.check,
    "values": values.check,
    "core_values": core_values.check,
    "network_values": network_values.check,
    "job_values": job_values.check,
    "pod_values": pod_values.check,
    "pod_addresses": pod_addresses.check,
    "pod_forms": pod_forms.check,
    "containers": containers.check,
    "security": security.check,
    "policies": policies.check,
    "kustomize": kustomize.check,
    "admission": admission.check,
    "access": access.check,
    "disruption": disruption.check,
    "flavors": flavors.check,
    "gangs": gangs.check,
    "scaling": scaling.check,
    "storage": storage.check,
    "trainjobs": trainjobs.check,
    "hosts": hosts.check,
    "isolation": isolation.check,
    "keys": keys.check,
    "launchers": launchers.check,
    "limit_ranges": limit_ranges.check,
    "literal_secrets": literal_secrets.check,
    "network": network.check,
    "queue_labels": queue_labels.check,
    "device_names": device_names.check,
    "value_sources": value_sources.check,
    "windows": windows.check,
    "extensions": extensions.check,
    "well_known": well_known.check,
    "probes": probes.check,
    "fabric_names": fabric_names.check,
}


def check(manifests: Iterable[Any], facts: Facts) -> tuple[Finding, ...]:
    """Return all findings in the order of the documents. ValueError for a Kubernetes version without facts."""
    if facts.kubernetes not in kubernetes_facts().versions:
        raise ValueError(f"Kubernetes {facts.kubernetes} is none of {', '.join(kubernetes_facts().versions)}")
    objects, findings = build(_documents(manifests), facts)
    for checker in CHECKERS.values():
        findings.extend(checker(objects))
    return tuple(sorted(dict.fromkeys(findings), key=_order))


def unchecked(manifests: Iterable[Any], facts: Facts) -> tuple[str, ...]:
    """Return the parts that were not checked, as sentences, so that a missing check is not taken for a pass."""
    documents = _documents(manifests)
    objects, _ = build(documents, facts)
    found = [f"{text(at(one.value, 'kind'))} {text(at(one.value, 'metadata', 'name'))}: SOPS encrypts its values" for one in documents if is_encrypted(one.value)]  # fmt: skip
    if facts.pools is None:
        found.append("quotas, labels, taints and sizes against the pools: needs a spec")
    if not facts.whole:
        found.append("objects that the manifests name and do not hold: needs --whole")
    for api_version, kind in sorted({(thing.api_version, thing.kind) for thing in objects.objects}):
        found.extend(_of_kind(objects, api_version, kind))
    return (*found, *_left_out(objects))


def _of_kind(manifests: ManifestSet, api_version: str, kind: str) -> Iterator[str]:
    """Return what is not checked of all objects of a kind."""
    resource = manifests.resource_of(api_version, kind)
    if is_client_file(api_version, kind):
        yield f"{kind} ({api_version}): only clients and daemons read it; the API server has no schema for it"
    elif resource is not None:
        count = len(cel.transitions(resource.schema))
        if count:
            yield f"{kind}: update rules ({count}): they need the old object"
    elif not is_built_in(api_version):
        yield f"{kind} ({api_version}): its fields, except those of its pods: needs its CustomResourceDefinition, with --schemas"


def _left_out(manifests: ManifestSet) -> Iterator[str]:
    """Report the volumes that are left out until the bindings name their file systems."""
    for there in manifests.facts.present:
        if there.kind == "PersistentVolume" and manifests.get(there.kind, there.name) is None:
            yield f"PersistentVolume {there.name}: left out until the bindings name its file system"


def _documents(manifests: Iterable[Any]) -> list[Document]:
    made = list(manifests)
    if all(isinstance(one, Document) for one in made):
        return made
    return list(documents(made))


def _order(finding: Finding) -> tuple[Any, ...]:
    """Sort the errors of a document before its warnings, then by place."""
    return (finding.file, finding.document, finding.level is Severity.WARNING, finding.path, finding.rule, finding.message)  # fmt: skip

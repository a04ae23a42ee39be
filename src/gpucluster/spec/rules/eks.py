"""EKS: fields that only it has, and who reaches and uses it."""

import ipaddress
from collections.abc import Iterator

from gpucluster.catalog import Catalog, eks_addon_versions
from gpucluster.plan.eks import is_private
from gpucluster.spec.addons import addons_of
from gpucluster.spec.decode import did_you_mean
from gpucluster.spec.kubernetes import on_eks
from gpucluster.spec.model import ClusterSpec
from gpucluster.spec.part import require
from gpucluster.spec.problem import Finding
from gpucluster.spec.rules.access import WIDE
from gpucluster.spec.rules.findings import error, or_none, repeated, warning
from gpucluster.text import quoted

OF_EKS = ("admins", "api_from", "system")


def its_fields(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    """Refuse the fields of EKS for a cluster that exists: its owner decides them."""
    part = require(spec.kubernetes)
    if on_eks(part):
        return
    message = "is for a control plane that gpucluster creates; the owner of an existing cluster decides it"
    for key in OF_EKS:
        if or_none(lambda key=key: getattr(part, key)):
            yield error("kubernetes", key, id="not-here", message=f"'{key}' {message}")
    for index, team in enumerate(part.teams):
        if or_none(lambda team=team: team.members):
            yield error(
                "kubernetes", "teams", index, "members", id="not-here", message=f"'members' {message}"
            )


def system(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    """Check the machine of the add-ons: its image has no GPU driver."""
    machine = require(require(require(spec.kubernetes).system).machine)
    found, at = catalog.machines.get(machine), ("kubernetes", "system", "machine")
    if found is None:
        near = did_you_mean(machine, catalog.machines)
        yield error(*at, id="unknown-machine", message=f"{quoted(machine)} is not in the catalog{near}")
    elif found.gpu is not None:
        message = f"{machine} has GPUs, which no add-on uses: write a machine without GPUs"
        yield error(*at, id="gpu-without-use", message=message)


def addons(spec: ClusterSpec, catalog: Catalog) -> Iterator[Finding]:
    """Warn of an add-on without a version in the catalog: EKS would choose it on the day of `pulumi up`."""
    part = require(spec.kubernetes)
    if not on_eks(part) or part.version not in catalog.kubernetes_known:
        return  # `version` reports an unknown one
    pins = eks_addon_versions(part.version)
    missing = [name for name in addons_of(spec.storage) if name not in pins]
    if missing:
        message = f"no version of the add-ons {', '.join(missing)} is known for Kubernetes {part.version}, so EKS installs its default of the day, and two clusters of this spec can differ"
        yield warning("kubernetes", "version", id="addon-version", message=message)


def people(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    part = require(spec.kubernetes)
    yield from repeated(part.admins, ("kubernetes", "admins"), "the principal")
    for index, team in enumerate(part.teams):
        members = or_none(lambda team=team: team.members) or ()
        yield from repeated(members, ("kubernetes", "teams", index, "members"), "the principal")


def ranges(spec: ClusterSpec, _catalog: Catalog) -> Iterator[Finding]:
    found = require(spec.kubernetes).api_from
    yield from repeated(found, ("kubernetes", "api_from"), "the range")
    for index, one in enumerate(found):
        if ipaddress.IPv4Network(one).prefixlen <= WIDE and not is_private(one):
            message = f"{one} is a large part of the internet: write the site's own address ranges"
            yield warning("kubernetes", "api_from", index, id="open-to-all", message=message)

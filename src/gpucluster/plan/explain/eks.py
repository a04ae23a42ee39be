"""Decisions of the control plane of EKS."""

from collections.abc import Iterator

from gpucluster.catalog import eks_standard_until
from gpucluster.plan.defaults import Note
from gpucluster.plan.eks import KEY_DAYS, LEAST_ZONES, LOG_DAYS, SYSTEM_COUNT, SYSTEM_MACHINE_REASON
from gpucluster.plan.model.eks import EksControlPlane
from gpucluster.plan.names import SYSTEM_NODES

AT = "kubernetes.control_plane"


def explain(plane: EksControlPlane, version: str) -> Iterator[Note]:
    """Who reaches the API server, how long EKS supports the version, and the defaults of logs and keys."""
    until = eks_standard_until(version)
    if until is not None:
        why = f"EKS's standard support ends on {until}: then its fee is six times as high, and a year later EKS upgrades the control plane by itself"
        yield Note("kubernetes.version", version, why)
    if plane.public_from:
        why = "the ranges of `api_from` that are not private; nodes use the private address"
        yield Note(f"{AT}.public_from", ", ".join(plane.public_from), why)
    else:
        why = "`api_from` has no public range: the API server has no public address"
        yield Note(f"{AT}.public_from", "none", why)
    why = "private ranges that reach the API server: those of `api_from`, else the VPC's own"
    yield Note(f"{AT}.private_from", ", ".join(plane.private_from), why)
    if plane.spare is not None:
        why = f"EKS needs subnets in {LEAST_ZONES} zones; no pool is in this one"
        yield Note(f"{AT}.spare", f"{plane.spare.zone} {plane.spare.cidr}", why)
    for group in plane.groups:
        if group.pool == SYSTEM_NODES:
            why = f"{SYSTEM_MACHINE_REASON}; {SYSTEM_COUNT.reason}"
            yield Note("kubernetes.system", f"{group.nodes} x {group.machines[0]}", why)
        elif group.placement:
            why = "always-on nodes of a gang are near each other; reserved capacity has its place already"
            yield Note(f"pools[{group.pool}].placement", "cluster", why)
    for addon in plane.addons:
        why = "the version in the catalog; an upgrade is a change of it, never of a day"
        why = why if addon.version else "the catalog has no version for this release: EKS takes its default"
        yield Note(f"{AT}.addons[{addon.name}]", addon.version or "default", why)
    yield Note(f"{AT}.logs", f"{LOG_DAYS.value:g} days", LOG_DAYS.reason)
    yield Note(f"{AT}.key", f"{KEY_DAYS.value:g} days", KEY_DAYS.reason)

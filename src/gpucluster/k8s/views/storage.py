"""Volumes and claims of file systems for pods: one of each for each (mount, team).

Only the cloud knows the id of an FSx for Lustre. Without bindings its volume is left out: a made-up id would pass every
check and fail only at the mount. The claim is still rendered and names its volume, so claim and pods wait, and their
status names the missing volume. MISSING.md lists it, too.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from gpucluster.k8s.manifest import scalar
from gpucluster.k8s.site import Site, team_labels
from gpucluster.plan import kubernetes as kube
from gpucluster.plan import names
from gpucluster.plan.model import FileSystemBinding, FsxLustre, Lustre, Mount, Nfs
from gpucluster.plan.model.kubernetes import Team
from gpucluster.plan.model.values import MEMORY, quantity

_CLAIM_GIB = 1  # Kubernetes requires a size, and a claim that names its volume gets all of it


@dataclass(frozen=True, slots=True, kw_only=True)
class LustreVolume:
    """templates/k8s/volume-lustre.yaml.j2"""

    name: str
    labels: str
    size: str
    namespace: str
    claim: str
    handle: str
    dns_name: str
    mount_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NfsVolume:
    """templates/k8s/volume-nfs.yaml.j2"""

    name: str
    labels: str
    size: str
    namespace: str
    claim: str
    server: str
    export: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """templates/k8s/claim.yaml.j2"""

    name: str
    namespace: str
    labels: str
    volume: str
    size: str


def lustre_volumes(site: Site) -> Iterator[tuple[str, LustreVolume]]:
    for mount, team in _pairs(site):
        bound = _bound(site, mount)
        if isinstance(mount.source, Lustre) and bound is not None:
            name = names.persistent_volume(site.plan.name, team.name, mount.path)
            yield (
                f"volume-{names.of_team(team.name, names.volume_name(mount.path))}",
                LustreVolume(
                    name=scalar(name),
                    labels=team_labels(site, team),
                    size=_size(mount),
                    namespace=scalar(team.namespace),
                    claim=scalar(names.volume_name(mount.path)),
                    # The CSI driver itself gives this form to volumes of one file system without folders.
                    handle=scalar(f"{bound.dns_name}:{bound.mount_name}:::{name}"),
                    dns_name=scalar(bound.dns_name),
                    mount_name=scalar(bound.mount_name),
                ),
            )


def nfs_volumes(site: Site) -> Iterator[tuple[str, NfsVolume]]:
    for mount, team in _pairs(site):
        if isinstance(mount.source, Nfs):
            yield (
                f"volume-{names.of_team(team.name, names.volume_name(mount.path))}",
                NfsVolume(
                    name=scalar(names.persistent_volume(site.plan.name, team.name, mount.path)),
                    labels=team_labels(site, team),
                    size=_size(mount),
                    namespace=scalar(team.namespace),
                    claim=scalar(names.volume_name(mount.path)),
                    server=scalar(mount.source.server),
                    export=scalar(mount.source.export),
                ),
            )


def claims(site: Site) -> Iterator[tuple[str, Claim]]:
    for mount, team in _pairs(site):
        yield (
            f"claim-{names.of_team(team.name, names.volume_name(mount.path))}",
            Claim(
                name=scalar(names.volume_name(mount.path)),
                namespace=scalar(team.namespace),
                labels=team_labels(site, team),
                volume=scalar(names.persistent_volume(site.plan.name, team.name, mount.path)),
                size=_quantity(_CLAIM_GIB),
            ),
        )


def missing(site: Site) -> tuple[Mount, ...]:
    """Return the mounts whose file system has no binding yet."""
    return tuple(m for m in site.mounts() if isinstance(m.source, Lustre) and _bound(site, m) is None)


def _pairs(site: Site) -> Iterator[tuple[Mount, Team]]:
    return ((mount, team) for mount in site.mounts() for team in site.kubernetes.teams)


def _bound(site: Site, mount: Mount) -> FileSystemBinding | None:
    return None if site.bindings is None else site.bindings.file_systems.get(mount.path)


def _size(mount: Mount) -> str:
    gib = mount.source.size_gib if isinstance(mount.source, FsxLustre) else kube.VOLUME_GIB.value
    return _quantity(gib)


def _quantity(gib: float) -> str:
    return scalar(quantity(MEMORY, int(gib) * 1024))

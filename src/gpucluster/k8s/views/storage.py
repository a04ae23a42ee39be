"""File systems for pods: a volume and a claim for each (mount, team).

What an FSx for Lustre is called, only the cloud knows. Without bindings its volume is left out, whole: a made-up id
would pass every check and fail at three in the morning. The claim stands and names its volume, so the API server keeps
claim and pods waiting and says for what; MISSING.md says it to whoever reads the files.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from gpucluster.k8s.scalar import scalar
from gpucluster.k8s.site import Site
from gpucluster.plan import defaults_kubernetes as kube
from gpucluster.plan import names
from gpucluster.plan.kubernetes import Team
from gpucluster.plan.model import FileSystemBinding, Mount


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
        if mount.lustre is not None and bound is not None:
            name = names.persistent_volume(site.plan.name, team.name, mount.path)
            yield (
                f"volume-{names.of_team(team.name, names.volume_name(mount.path))}",
                LustreVolume(
                    name=scalar(name),
                    labels=_labels(site, team),
                    size=_size(mount),
                    namespace=scalar(team.namespace),
                    claim=scalar(names.volume_name(mount.path)),
                    # The form that the driver itself gives to the volumes of one file system, without folders.
                    handle=scalar(f"{bound.dns_name}:{bound.mount_name}:::{name}"),
                    dns_name=scalar(bound.dns_name),
                    mount_name=scalar(bound.mount_name),
                ),
            )


def nfs_volumes(site: Site) -> Iterator[tuple[str, NfsVolume]]:
    for mount, team in _pairs(site):
        if mount.nfs is not None:
            yield (
                f"volume-{names.of_team(team.name, names.volume_name(mount.path))}",
                NfsVolume(
                    name=scalar(names.persistent_volume(site.plan.name, team.name, mount.path)),
                    labels=_labels(site, team),
                    size=_size(mount),
                    namespace=scalar(team.namespace),
                    claim=scalar(names.volume_name(mount.path)),
                    server=scalar(mount.nfs.server),
                    export=scalar(mount.nfs.export),
                ),
            )


def claims(site: Site) -> Iterator[tuple[str, Claim]]:
    for mount, team in _pairs(site):
        yield (
            f"claim-{names.of_team(team.name, names.volume_name(mount.path))}",
            Claim(
                name=scalar(names.volume_name(mount.path)),
                namespace=scalar(team.namespace),
                labels=_labels(site, team),
                volume=scalar(names.persistent_volume(site.plan.name, team.name, mount.path)),
                size=_size(mount),
            ),
        )


def missing(site: Site) -> tuple[Mount, ...]:
    """Mounts whose file system nobody has named yet."""
    return tuple(m for m in site.mounts() if m.lustre is not None and _bound(site, m) is None)


def _pairs(site: Site) -> Iterator[tuple[Mount, Team]]:
    return ((mount, team) for mount in site.mounts() for team in site.kubernetes.teams)


def _bound(site: Site, mount: Mount) -> FileSystemBinding | None:
    return None if site.bindings is None else site.bindings.file_systems.get(mount.path)


def _size(mount: Mount) -> str:
    gib = kube.VOLUME_GIB.value if mount.lustre is None else mount.lustre.size_gib
    return scalar(f"{gib:g}Gi")


def _labels(site: Site, team: Team) -> str:
    return scalar({**site.labels, names.LABEL_TEAM: team.name})

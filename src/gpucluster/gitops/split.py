"""Edits that cannot be applied at once, and how to split them. Pure."""

from collections.abc import Iterator

from gpucluster.gitops.refine import release
from gpucluster.plan.model import (
    ClusterPlan,
    Mount,
    NfsFromServer,
    OtherMount,
    SiteEfs,
    SiteLustre,
    eks_of,
)

_ELSEWHERE = (
    NfsFromServer,
    SiteEfs,
    SiteLustre,
    OtherMount,
)  # a site's own: two mounts can have the same one


def splits(old: ClusterPlan, new: ClusterPlan) -> tuple[str, ...]:
    """Return a sentence for each part of an edit of one cluster that needs two edits."""
    return (*_partitions(old, new), *_mounts(old, new), *_releases(old, new))


def _partitions(old: ClusterPlan, new: ClusterPlan) -> Iterator[str]:
    """A job moves only to a partition that exists, so a new name comes beside the old one."""
    before, after = ({one.name: set(one.pools) for one in plan.partitions} for plan in (old, new))
    for name, pools in before.items():
        other = next((one for one in after if one not in before and after[one] == pools), None)
        if name not in after and other is not None:
            yield (
                f"the partition {name} cannot become {other} in one edit, because its jobs can move only to a partition that exists. "
                f"First add {other}, and write `extra: {{State: DRAIN}}` in {name}; remove {name} when it has no job"
            )


def _mounts(old: ClusterPlan, new: ClusterPlan) -> Iterator[str]:
    """Jobs use the old path until they end."""
    before, after = ({one.path: one for one in plan.storage} for plan in (old, new))
    for path, mount in before.items():
        other = next((one for one in after.values() if one.path not in before and _same(one, mount)), None)
        if path not in after and other is not None:
            yield (
                f"the mount {path} cannot become {other.path} in one edit, because jobs use {path} until they end. "
                f"First add {other.path}; remove {path} when no job uses it"
            )


def _same(one: Mount, other: Mount) -> bool:
    return isinstance(one.source, _ELSEWHERE) and one.source == other.source


def _releases(old: ClusterPlan, new: ClusterPlan) -> Iterator[str]:
    """EKS refuses to skip a minor version."""
    if old.kubernetes is None or new.kubernetes is None or eks_of(old) is None or eks_of(new) is None:
        return
    (major, minor, *_), (to_major, to_minor, *_) = map(
        release, (old.kubernetes.version, new.kubernetes.version)
    )
    if major == to_major and to_minor - minor > 1:
        yield (
            f"`pulumi up` fails: EKS upgrades one minor version at a time, so {old.kubernetes.version} cannot become "
            f"{new.kubernetes.version} in one edit. First write {major}.{minor + 1}"
        )
